package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/config"
)

// FuzzFromEnv checks that no environment makes FromEnv panic, that every fault
// names its variable, and that what it accepts is in its final form: reading it
// again gives the same.
func FuzzFromEnv(f *testing.F) {
	f.Add("registry:5002", "tcp://:5004", "10s", "etc/.*.rego", "INFO")
	f.Add("[fd00::1]:5002", "unix:///a,tcp://fd00::1:0", "0", "", "trace")
	f.Add("fe80::1%eth0:1", "unix:/x", "-1s", "(", "")
	f.Add("unix:///run/a?b#c%zz", "tcp://[::]:65535/", "1h1m1s1ns", "a,,b", "4")
	f.Add("dns:///a_b:1", ",", "9223372036854775807ns", "[", "FATAL")
	f.Add("tcp://[]:1", "tcp://[:]:1", "1e9s", "\x00", "\n")
	f.Fuzz(func(t *testing.T, address, listen, duration, masks, level string) {
		environ := func(address, listen string) []string {
			return []string{
				"NSM_REGISTRY_URL=" + address, "NSM_REGISTRY_PROXY_URL=" + address, "SPIFFE_ENDPOINT_SOCKET=unix:///s",
				"NSM_LISTEN_ON=" + listen, "NSM_MONITOR_GRACE=" + duration, "NSM_DIAL_TIMEOUT=1s",
				"NSM_REGISTRY_CLIENT_POLICIES=" + masks, "NSM_LOG_LEVEL=" + level, "NSM_" + level + "=",
			}
		}
		c, _, err := config.FromEnv(environ(address, listen))
		if err != nil {
			require.Nil(t, c)
			require.True(t, strings.HasPrefix(err.Error(), "config: NSM_"), err.Error())
			return
		}
		require.NotEmpty(t, c.ListenOn)
		require.Positive(t, c.DialTimeout)
		require.True(t, c.MonitorGrace == 0 || c.DialTimeout < c.MonitorGrace)
		if c.RegistryURL.Scheme == "unix" {
			return // its path may hold what String escapes
		}
		require.NotEmpty(t, c.RegistryURL.Hostname())
		require.NotEmpty(t, c.RegistryURL.Port())
		again, _, err := config.FromEnv(environ("tcp://"+c.RegistryURL.Host, listen))
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}
