package nsmgrproxy_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy/sdksuite"
)

// sdkSuiteSkips lists the tests of the SDK that do not hold for this chain,
// each with the reason. It is the public list of known differences.
var sdkSuiteSkips = map[string]string{}

// sdkSuiteLeast is the number of interdomain tests in the SDK's version that
// was current when this was written. Fewer means that the selection broke.
const sdkSuiteLeast = 15

func TestSDKSuite(t *testing.T) {
	suite, err := sdksuite.Load(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(suite.Tests), sdkSuiteLeast, "tests found: %v", suite.Tests)

	for name := range sdkSuiteSkips {
		require.Contains(t, suite.Tests, name, "a skip for a test that the SDK does not have")
	}
	run := slices.DeleteFunc(slices.Clone(suite.Tests), func(name string) bool {
		_, skip := sdkSuiteSkips[name]
		return skip
	})

	results, err := suite.Run(t.Context(), run)
	require.NoError(t, err)

	for _, name := range suite.Tests {
		t.Run(name, func(t *testing.T) {
			if reason, skip := sdkSuiteSkips[name]; skip {
				t.Skip(reason)
			}
			result := results[name]
			output := result.Brief()
			if testing.Verbose() {
				output = result.Output
			}
			if result.Outcome != sdksuite.Pass {
				t.Fatalf("%s after %.2f s (-v adds the log):\n%s", result.Outcome, result.Seconds, output)
			}
			t.Logf("%.2f s", result.Seconds)
		})
	}
}
