package sdksuite

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const original = `package other_test

import (
	"testing"

	box "github.com/networkservicemesh/sdk/pkg/tools/sandbox"
)

// box.NewBuilder in a comment stays.
func TestNamed(t *testing.T) {
	a, b := box.NewBuilder(nil, t).SetDNSDomainName("a").Build(), box.NewBuilder(nil, t).Build()
	other.NewBuilder(a, b, "box.NewBuilder(")
}

func TestNameless(t *testing.T) { box.NewBuilder(nil, t).Build() }

func helper(t *testing.T) { box.NewBuilder(nil, t).SetDNSDomainName("b") }
`

func TestRewrite(t *testing.T) {
	got, err := rewrite("x_test.go", []byte(original))
	require.NoError(t, err)
	require.Equal(t, []string{"TestNamed"}, got.tests)

	want := strings.ReplaceAll(original, "box.NewBuilder(nil", "newBuilder(nil")
	want = strings.Replace(want, "other_test", "sdksuite_test", 1)
	require.Equal(t, want, string(got.content))
}

func TestRewriteRefusesUnknownBuilder(t *testing.T) {
	_, err := rewrite("x_test.go", []byte(strings.ReplaceAll(original, "NewBuilder", "NewWorld")))
	require.ErrorIs(t, err, errNoBuilder)

	_, err = rewrite("x_test.go", []byte("not Go"))
	require.Error(t, err)
}

func TestParse(t *testing.T) {
	results, rest := parse([]byte(`{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA/sub","Output":"in sub\n"}
{"Action":"fail","Test":"TestA/sub","Elapsed":1}
{"Action":"fail","Test":"TestA","Elapsed":2}
{"Action":"run","Test":"TestHung"}
{"Action":"output","Test":"TestHung","Output":"hung\n"}
{"Action":"pass","Test":"TestB","Elapsed":3}
{"Action":"build-output","Output":"no such package\n"}
not JSON
`))
	require.Equal(t, map[string]Result{
		"TestA":    {Outcome: Fail, Seconds: 2, Output: "in sub\n"},
		"TestHung": {Output: "hung\n"},
		"TestB":    {Outcome: Pass, Seconds: 3},
	}, results)
	require.Equal(t, "no such package\nnot JSON\n", rest)
	require.Equal(t, "in sub\nhung\n", troubled(results))
}

func TestBrief(t *testing.T) {
	result := Result{Output: "Nov 30 05:52:49.186 [ERRO] [id:1] failed\n    x_test.go:3: why [not]\n2026/11/30 [DEBUG] more\n"}
	require.Equal(t, "    x_test.go:3: why [not]\n", result.Brief())
}
