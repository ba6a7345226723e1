package sdksuite

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

const (
	packagePath = "github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy/sdksuite"

	sandboxPath = sdkModule + "/pkg/tools/sandbox"

	// builderPackage and builderFunc name what the rewritten files belong to
	// and call; both stand in builder_test.go.
	builderPackage = "sdksuite_test"
	builderFunc    = "newBuilder"
)

type rewritten struct {
	content []byte
	tests   []string // tests that build a domain with a name, so with a proxy
}

type edit struct {
	from, to int
	text     string
}

// rewrite moves a test file of the SDK into this package and gives it our
// builder. The text is edited in place, so that a failure names the line that
// it has in the SDK's file.
func rewrite(path string, content []byte) (*rewritten, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, content, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("sdksuite: %w", err)
	}
	offset := func(pos token.Pos) int { return fset.Position(pos).Offset }

	edits := []edit{{offset(file.Name.Pos()), offset(file.Name.End()), builderPackage}}
	sandbox := importName(file, sandboxPath)
	result := &rewritten{}
	for _, decl := range file.Decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "NewBuilder" || !isIdent(sel.X, sandbox) {
				return true
			}
			edits = append(edits, edit{offset(sel.Pos()), offset(sel.End()), builderFunc})
			return false
		})
		if fn, ok := decl.(*ast.FuncDecl); ok && isTest(fn) && selects(fn, "SetDNSDomainName") {
			result.tests = append(result.tests, fn.Name.Name)
		}
	}
	if len(result.tests) > 0 && len(edits) == 1 {
		return nil, fmt.Errorf("sdksuite: %s: %w", path, errNoBuilder)
	}

	slices.SortFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out bytes.Buffer
	last := 0
	for _, e := range edits {
		out.Write(content[last:e.from])
		out.WriteString(e.text)
		last = e.to
	}
	out.Write(content[last:])
	result.content = out.Bytes()
	return result, nil
}

// errNoBuilder says that the SDK builds its domains in another way by now, so
// that its tests would run against its own proxy instead of ours.
var errNoBuilder = errors.New("builds domains without sandbox.NewBuilder")

func importName(file *ast.File, path string) string {
	for _, imp := range file.Imports {
		if unquoted, err := strconv.Unquote(imp.Path.Value); err != nil || unquoted != path {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name
		}
		return path[strings.LastIndex(path, "/")+1:]
	}
	return ""
}

func isIdent(x ast.Expr, name string) bool {
	ident, ok := x.(*ast.Ident)
	return ok && name != "" && ident.Name == name
}

func isTest(fn *ast.FuncDecl) bool {
	return fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test")
}

func selects(fn *ast.FuncDecl, name string) bool {
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
			found = true
		}
		return !found
	})
	return found
}
