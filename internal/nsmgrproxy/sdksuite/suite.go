// Package sdksuite runs the SDK's own interdomain tests against the chain of
// this module.
//
// The tests are not part of this tree. They are read from the SDK's folder in
// the module cache, in the version that go.mod requires, and reach the
// compiler through an overlay: each call of sandbox.NewBuilder becomes a call
// of newBuilder, which stands in this package's test files and puts our proxy
// in the place of the SDK's. Nothing else in them is changed.
//
// A run either reports every selected test or returns an error. A test that
// the SDK no longer has, a build that fails and a run that starts no test are
// errors, never an empty success.
package sdksuite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/race"
)

const (
	sdkModule = "github.com/networkservicemesh/sdk"

	// runTimeout bounds one run, build included. The suite takes well under a
	// minute; a cold build with the race detector on a small machine adds a
	// few more.
	runTimeout = 8 * time.Minute
)

// sources are the SDK's test files that build domains with a proxy, and the
// files that those need. All of them are compiled as one package.
var sources = []string{
	"pkg/networkservice/chains/nsmgr/dns_test.go",
	"pkg/networkservice/chains/nsmgr/utils_test.go",
	"pkg/networkservice/chains/nsmgr/vl3_test.go",
	"pkg/networkservice/chains/nsmgrproxy/server_test.go",
	"pkg/registry/chains/proxydns/server_ns_test.go",
	"pkg/registry/chains/proxydns/server_nse_test.go",
}

// Suite is the rewritten suite, ready to run.
type Suite struct {
	// Tests are the names of the interdomain tests, in the SDK's order.
	Tests []string

	dir     string // the folder whose package the tests are compiled into
	overlay string // path of the overlay file
}

// Load reads the suite from the module cache and writes its rewritten files
// and the overlay into scratch. The go command has to be in PATH and the
// working directory inside the module.
func Load(ctx context.Context, scratch string) (*Suite, error) {
	sdkDir, err := goList(ctx, "-m", "-f", "{{.Dir}}", sdkModule)
	if err != nil {
		return nil, err
	}
	dir, err := goList(ctx, "-f", "{{.Dir}}", packagePath)
	if err != nil {
		return nil, err
	}

	suite := &Suite{dir: dir, overlay: filepath.Join(scratch, "overlay.json")}
	replace := make(map[string]string, len(sources))
	for i, source := range sources {
		path := filepath.Join(sdkDir, filepath.FromSlash(source))
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("sdksuite: %w", err)
		}
		file, err := rewrite(path, content)
		if err != nil {
			return nil, err
		}
		suite.Tests = append(suite.Tests, file.tests...)

		name := fmt.Sprintf("sdk%d_%s", i, filepath.Base(path))
		target := filepath.Join(scratch, name)
		if err := os.WriteFile(target, file.content, 0o600); err != nil {
			return nil, fmt.Errorf("sdksuite: %w", err)
		}
		replace[filepath.Join(dir, name)] = target
	}

	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, fmt.Errorf("sdksuite: overlay: %w", err)
	}
	if err := os.WriteFile(suite.overlay, data, 0o600); err != nil {
		return nil, fmt.Errorf("sdksuite: %w", err)
	}
	return suite, nil
}

// Run compiles and runs the named tests in a process of its own, under the
// race detector when this package is built with it, and returns one result for
// each name. The error is about the run as a whole: it did not build, did not
// end in time, or left a test without a result.
func (s *Suite) Run(ctx context.Context, names []string) (map[string]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()

	args := []string{
		"test", "-json", "-count=1",
		"-vet=off", // the files are not ours to mend
		"-overlay=" + s.overlay,
		"-run=^(" + strings.Join(names, "|") + ")$",
		"-timeout=" + (runTimeout - time.Minute).String(),
	}
	if race.Enabled {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = s.dir
	killGroup(cmd)

	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()

	results, rest := parse(out)
	for _, name := range names {
		if results[name].Outcome == "" {
			return nil, fmt.Errorf("sdksuite: %s has no result, exit status %d:\n%s%s%s",
				name, cmd.ProcessState.ExitCode(), rest, &stderr, troubled(results))
		}
	}
	if runErr != nil && troubled(results) == "" {
		return nil, fmt.Errorf("sdksuite: no test failed, but the run did: %w:\n%s%s", runErr, rest, &stderr)
	}
	return results, nil
}

func goList(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("sdksuite: go list %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
