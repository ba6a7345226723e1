package hop_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
)

func TestTarget(t *testing.T) {
	for raw, want := range map[string]string{
		"registry:5002":                 "dns:///registry:5002",
		"tcp://registry:5002":           "dns:///registry:5002",
		"tcp://lb.example.org:443":      "dns:///lb.example.org:443",
		"tcp://10.0.0.1:5004":           "passthrough:///10.0.0.1:5004",
		"tcp://[fd00::1]:5004":          "passthrough:///[fd00::1]:5004",
		"tcp://:5004":                   "passthrough:///:5004",
		"unix:///var/run/nsm.sock":      "unix:///var/run/nsm.sock",
		"":                              "",
		"tcp://10.0.0.1":                "",
		"tcp://fd00::1":                 "",
		"registry":                      "",
		"inode://4/5":                   "",
		"tcp://registry:":               "",
		"tcp://user:secret@10.0.0.1:80": "passthrough:///10.0.0.1:80",
	} {
		t.Run(raw, func(t *testing.T) {
			u, err := url.Parse(raw)
			if err != nil {
				return
			}
			got, err := hop.Target(u)
			require.Equal(t, want, got)
			require.Equal(t, want == "", err != nil, "%v", err)
			if err != nil {
				require.NotContains(t, err.Error(), "secret")
			}
		})
	}
	_, err := hop.Target(nil)
	require.Error(t, err)
}

func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"registry:5002", "tcp://10.0.0.1:5004", "tcp://[fd00::1]:5004", "unix:///a", "tcp://:5004", "inode://4/5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		target, err := hop.Target(u)
		require.Equal(t, err != nil, target == "", "a target or a reason")
	})
}
