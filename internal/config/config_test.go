package config_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// required is the least that is accepted.
var required = []string{
	"NSM_REGISTRY_URL=registry:5002",
	"NSM_REGISTRY_PROXY_URL=registry-proxy:5005",
	"SPIFFE_ENDPOINT_SOCKET=unix:///run/spire/sockets/agent.sock",
}

// with puts more in front, because the first of two equal names wins.
func with(more ...string) []string { return append(more, required...) }

func TestDefaults(t *testing.T) {
	c, warnings, err := config.FromEnv(with("PATH=/bin", "HOME"))
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Len(t, c.ListenOn, 1)
	require.Equal(t, "unix:///listen.on.socket", c.ListenOn[0].String())
	require.Equal(t, "tcp://registry:5002", c.RegistryURL.String())
	require.Equal(t, "tcp://registry-proxy:5005", c.RegistryProxyURL.String())
	c.ListenOn, c.RegistryURL, c.RegistryProxyURL = nil, nil, nil
	require.Equal(t, &config.Config{
		Name:                   "nsmgr-proxy",
		MaxTokenLifetime:       10 * time.Minute,
		RegistryServerPolicies: []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/server/.*.rego"},
		RegistryClientPolicies: []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/client/.*.rego"},
		MapIPFilePath:          "map-ip.yaml",
		SPIFFEEndpointSocket:   "unix:///run/spire/sockets/agent.sock",
		LogLevel:               logrus.InfoLevel,
		OpenTelemetryEndpoint:  "otel-collector.observability.svc.cluster.local:4317",
		MetricsExportInterval:  10 * time.Second,
		PprofListenOn:          "localhost:6060",
		MonitorGrace:           30 * time.Second,
		MonitorLocalGrace:      10 * time.Second,
		DialTimeout:            4 * time.Second,
		HopProbeInterval:       15 * time.Second,
		HopMaxBackoff:          5 * time.Second,
	}, c)
}

func TestAuthorization(t *testing.T) {
	c, _, err := config.FromEnv(with("NSM_TRUST_DOMAINS=nsm.cluster1, nsm.cluster2",
		"NSM_MONITOR_POLICIES=etc/nsm/opa/monitor/.*.rego", "NSM_REQUEST_POLICIES=etc/nsm/opa/common/.*.rego,etc/nsm/opa/server/.*.rego"))
	require.NoError(t, err)
	require.Len(t, c.TrustDomains, 2)
	require.Equal(t, "nsm.cluster2", c.TrustDomains[1].Name())
	require.Equal(t, []string{"etc/nsm/opa/monitor/.*.rego"}, c.MonitorPolicies)
	require.Len(t, c.RequestPolicies, 2)
	_, _, err = config.FromEnv(with("NSM_TRUST_DOMAINS=not a domain", "NSM_MONITOR_POLICIES=("))
	require.ErrorContains(t, err, "NSM_TRUST_DOMAINS")
	require.ErrorContains(t, err, "NSM_MONITOR_POLICIES")
}

func TestShippedManifest(t *testing.T) {
	c, warnings, err := config.FromEnv(with("NSM_NAME=nsmgr-proxy-7c9", "NSM_LOG_LEVEL=TRACE", "NSM_LISTEN_ON=tcp://:5004",
		"NSM_IP=10.0.0.7", "NSM_MAP_IP_FILE_PATH=/etc/mapip/config.yaml"))
	require.NoError(t, err)
	require.Equal(t, []string{"config: NSM_IP is not a variable of this program"}, warnings)
	require.Equal(t, "nsmgr-proxy-7c9", c.Name)
	require.Equal(t, logrus.TraceLevel, c.LogLevel)
	require.Equal(t, "tcp://:5004", c.ListenOn[0].String())
	require.Equal(t, "5004", c.ListenOn[0].Port())
	require.Equal(t, "/etc/mapip/config.yaml", c.MapIPFilePath)
}

func TestAccepted(t *testing.T) {
	c, warnings, err := config.FromEnv(with("TELEMETRY=true", "NSM_PPROF_ENABLED=1", "NSM_PPROF_LISTEN_ON=:6061",
		"NSM_REGISTRY_SERVER_POLICIES=", "NSM_REGISTRY_CLIENT_POLICIES= a.rego ,, b/.*", "NSM_MAP_IP_FILE_PATH=",
		"NSM_LISTEN_ON=unix:///run/a.sock, tcp://:5004,tcp://fd00::1:5001", "NSM_MONITOR_GRACE=0", "NSM_MONITOR_LOCAL_GRACE=0s",
		"NSM_DIAL_TIMEOUT=2m", "NSM_HOP_PROBE_INTERVAL=0", "NSM_METRICS_EXPORT_INTERVAL=0", "NSM_LOG_LEVEL=warn",
		"NSM_NAME=first", "NSM_NAME=second"))
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.True(t, c.Telemetry)
	require.True(t, c.PprofEnabled)
	require.Empty(t, c.RegistryServerPolicies, "set to nothing means no policies")
	require.Equal(t, []string{"a.rego", "b/.*"}, c.RegistryClientPolicies)
	require.Empty(t, c.MapIPFilePath)
	require.Len(t, c.ListenOn, 3)
	require.Equal(t, "unix:///run/a.sock", c.ListenOn[0].String())
	require.Equal(t, "tcp://:5004", c.ListenOn[1].String())
	require.Equal(t, "tcp://[fd00::1]:5001", c.ListenOn[2].String())
	require.Zero(t, c.MonitorGrace)
	require.Equal(t, 2*time.Minute, c.DialTimeout)
	require.Zero(t, c.HopProbeInterval)
	require.Equal(t, logrus.WarnLevel, c.LogLevel)
	require.Equal(t, "first", c.Name)
}

func TestTelemetryThatIsNoBooleanIsOff(t *testing.T) {
	c, warnings, err := config.FromEnv(with("TELEMETRY=opentelemetry"))
	require.NoError(t, err)
	require.False(t, c.Telemetry)
	require.Equal(t, []string{`config: TELEMETRY="opentelemetry" is not a boolean, telemetry is off`}, warnings)
}

func TestRegistryURL(t *testing.T) {
	for value, want := range map[string]string{
		"registry:5002":                         "tcp://registry:5002",
		" registry.nsm-system.svc:5002 ":        "tcp://registry.nsm-system.svc:5002",
		"my_registry:5002":                      "tcp://my_registry:5002",
		"10.0.0.1:5002":                         "tcp://10.0.0.1:5002",
		"[fd00::1]:5002":                        "tcp://[fd00::1]:5002",
		"fd00::1:5002":                          "tcp://[fd00::1]:5002",
		"tcp://registry:5002":                   "tcp://registry:5002",
		"tcp://registry:05002/":                 "tcp://registry:5002",
		"tcp://[fd00::1]:5002":                  "tcp://[fd00::1]:5002",
		"tcp://fd00::1:5002":                    "tcp://[fd00::1]:5002",
		"dns:///registry:5002":                  "tcp://registry:5002",
		"unix:///run/registry.sock":             "unix:///run/registry.sock",
		"unix:/run/registry.sock":               "unix:///run/registry.sock",
		"":                                      "must not be empty",
		"registry":                              "has no port",
		"tcp://registry":                        "has no port",
		"registry:0":                            "has no port",
		":5002":                                 "has no host",
		"tcp://:5002":                           "has no host",
		"registry:65536":                        `port "65536" is not a number up to 65535`,
		"registry:-1":                           `port "-1" is not a number up to 65535`,
		"registry:grpc":                         `port "grpc" is not a number up to 65535`,
		"http://registry:5002":                  `scheme "http" is neither tcp nor unix`,
		"a b:5002":                              `"a b" is not a host`,
		"user@registry:5002":                    `"user@registry" is not a host`,
		"tcp://registry:5002/path":              `port "5002/path" is not a number up to 65535`,
		"[registry]:5002":                       "[registry] is not an IPv6 address in brackets",
		"[fd00::1:5002":                         "is not an IPv6 address in brackets",
		"fd00::zz:5002":                         `"fd00::zz" is not an IPv6 address`,
		"unix://run/registry.sock":              "has no absolute path",
		"unix:///":                              "names no socket file",
		"tcp://registry:5002,tcp://registry2:1": "is not an IPv6 address",
	} {
		c, _, err := config.FromEnv(with("NSM_REGISTRY_URL=" + value))
		if strings.Contains(want, "://") {
			require.NoError(t, err, value)
			require.Equal(t, want, c.RegistryURL.String())
			continue
		}
		require.ErrorContains(t, err, "config: NSM_REGISTRY_URL=", value)
		require.ErrorContains(t, err, want, value)
	}
}

func TestFaults(t *testing.T) {
	for entry, want := range map[string]string{
		"NSM_LISTEN_ON=":                             `config: NSM_LISTEN_ON="": must not be empty`,
		"NSM_LISTEN_ON=tcp://:5004,udp://:1":         `"udp://:1": begins with neither tcp:// nor unix://`,
		"NSM_LISTEN_ON=:5004":                        `":5004": begins with neither`,
		"NSM_LISTEN_ON=tcp://":                       `"tcp://": has no port`,
		"NSM_LISTEN_ON=unix://":                      `"unix://": has no absolute path`,
		"NSM_NAME=":                                  `config: NSM_NAME="": must not be empty`,
		"NSM_MAX_TOKEN_LIFETIME=0":                   `config: NSM_MAX_TOKEN_LIFETIME="0": must be over 0`,
		"NSM_MAX_TOKEN_LIFETIME=":                    `is not a duration`,
		"NSM_DIAL_TIMEOUT=0s":                        `must be over 0`,
		"NSM_DIAL_TIMEOUT=750":                       `config: NSM_DIAL_TIMEOUT="750": is not a duration such as 10s`,
		"NSM_HOP_MAX_BACKOFF=0":                      `must be over 0`,
		"NSM_HOP_PROBE_INTERVAL=-1s":                 `config: NSM_HOP_PROBE_INTERVAL="-1s": must not be negative`,
		"NSM_METRICS_EXPORT_INTERVAL=-1s":            `must not be negative`,
		"NSM_MONITOR_GRACE=-30s":                     `must not be negative`,
		"NSM_MONITOR_GRACE=4s":                       `config: NSM_DIAL_TIMEOUT (4s) has to be shorter than NSM_MONITOR_GRACE (4s): otherwise`,
		"NSM_MONITOR_LOCAL_GRACE=3s":                 `shorter than NSM_MONITOR_LOCAL_GRACE (3s)`,
		"NSM_LOG_LEVEL=LOUD":                         `config: NSM_LOG_LEVEL="LOUD": is none of`,
		"NSM_REGISTRY_SERVER_POLICIES=a,(":           `config: NSM_REGISTRY_SERVER_POLICIES="a,(": mask "(": error parsing regexp`,
		"NSM_PPROF_ENABLED=yes":                      `config: NSM_PPROF_ENABLED="yes": is neither true nor false`,
		"SPIFFE_ENDPOINT_SOCKET=/run/agent.sock":     `config: SPIFFE_ENDPOINT_SOCKET="/run/agent.sock": workload endpoint socket URI must`,
		"SPIFFE_ENDPOINT_SOCKET=":                    `must not be empty`,
		"NSM_REGISTRY_PROXY_URL=http://registry:80/": `config: NSM_REGISTRY_PROXY_URL="http://registry:80/": scheme`,
	} {
		c, _, err := config.FromEnv(with(entry))
		require.ErrorContains(t, err, want, entry)
		require.Nil(t, c)
		require.Len(t, strings.Split(err.Error(), "\n"), 1, "%s is one fault", entry)
	}
	_, _, err := config.FromEnv(with("NSM_PPROF_ENABLED=true", "NSM_PPROF_LISTEN_ON=6060"))
	require.ErrorContains(t, err, `config: NSM_PPROF_LISTEN_ON="6060": has no port`)
	_, _, err = config.FromEnv(with("TELEMETRY=true", "NSM_OPEN_TELEMETRY_ENDPOINT="))
	require.ErrorContains(t, err, "NSM_OPEN_TELEMETRY_ENDPOINT is empty")
	_, _, err = config.FromEnv(with("NSM_PPROF_LISTEN_ON=6060", "NSM_OPEN_TELEMETRY_ENDPOINT="))
	require.NoError(t, err, "what is off is not checked")
}

// Times that cannot keep the contract together are refused, and both are named.
func TestContradictions(t *testing.T) {
	for _, c := range []struct {
		environ string
		want    []string // none: accepted
	}{
		{"", nil},
		{"NSM_DIAL_TIMEOUT=9s", []string{"NSM_HOP_MAX_BACKOFF (5s) and NSM_DIAL_TIMEOUT (9s) together have to be shorter than NSM_MONITOR_LOCAL_GRACE (10s): ",
			"NSM_DIAL_TIMEOUT (9s) has to be shorter than 5s while NSM_MONITOR_GRACE (30s) is not 0: a caller's try is 15s"}},
		{"NSM_DIAL_TIMEOUT=5s NSM_HOP_MAX_BACKOFF=1s", []string{"NSM_DIAL_TIMEOUT (5s) has to be shorter than 5s"}},
		{"NSM_DIAL_TIMEOUT=4999ms", nil},
		{"NSM_HOP_MAX_BACKOFF=10m", []string{"NSM_MONITOR_GRACE (30s)", "NSM_MONITOR_LOCAL_GRACE (10s)", "shorter than 15s while NSM_MONITOR_GRACE (30s)"}},
		{"NSM_HOP_MAX_BACKOFF=6s", []string{"NSM_HOP_MAX_BACKOFF (6s) and NSM_DIAL_TIMEOUT (4s) together have to be shorter than NSM_MONITOR_LOCAL_GRACE (10s): otherwise an outage"}},
		{"NSM_HOP_MAX_BACKOFF=6s NSM_MONITOR_LOCAL_GRACE=11s", nil},
		{"NSM_HOP_MAX_BACKOFF=12s NSM_MONITOR_LOCAL_GRACE=1m", []string{"together have to be shorter than 15s while NSM_MONITOR_LOCAL_GRACE (1m0s) is not 0"}},
		{"NSM_HOP_PROBE_INTERVAL=10m", []string{"NSM_HOP_PROBE_INTERVAL (10m0s) and the 10s that a ping may take have to be within 30s, which is NSM_MONITOR_GRACE (30s), or 30s"}},
		{"NSM_HOP_PROBE_INTERVAL=20s", nil},
		{"NSM_HOP_PROBE_INTERVAL=20001ms", []string{"NSM_HOP_PROBE_INTERVAL (20.001s)"}},
		{"NSM_HOP_PROBE_INTERVAL=50s NSM_MONITOR_GRACE=1m", nil},
		{"NSM_HOP_PROBE_INTERVAL=15s NSM_MONITOR_GRACE=10s", nil}, // as the local grace is by default
		{"NSM_HOP_PROBE_INTERVAL=0", nil},
		{"NSM_HOP_PROBE_INTERVAL=1ms", []string{"must not be under 100ms"}},
		{"NSM_HOP_MAX_BACKOFF=1ns", []string{"must not be under 100ms"}},
		{"NSM_DIAL_TIMEOUT=1ms", []string{"must not be under 100ms"}},
		{"NSM_HOP_MAX_BACKOFF=2562047h", []string{"NSM_MONITOR_GRACE", "NSM_MONITOR_LOCAL_GRACE", "15s"}}, // the longest there is
		{"NSM_DIAL_TIMEOUT=2562047h", []string{"NSM_MONITOR_GRACE", "NSM_MONITOR_LOCAL_GRACE", "5s"}},
		{"NSM_HOP_PROBE_INTERVAL=2562047h", []string{"NSM_MONITOR_GRACE"}},
		// As in stock there is nothing to keep.
		{"NSM_MONITOR_GRACE=0 NSM_MONITOR_LOCAL_GRACE=0 NSM_DIAL_TIMEOUT=9s NSM_HOP_MAX_BACKOFF=10m NSM_HOP_PROBE_INTERVAL=10m", nil},
		{"NSM_MONITOR_LOCAL_GRACE=0 NSM_HOP_MAX_BACKOFF=10s", nil},
		{"NSM_MONITOR_GRACE=0 NSM_DIAL_TIMEOUT=6s NSM_HOP_MAX_BACKOFF=1s", []string{"NSM_MONITOR_LOCAL_GRACE (10s) is not 0"}},
	} {
		_, _, err := config.FromEnv(with(strings.Fields(c.environ)...))
		if c.want == nil {
			require.NoError(t, err, c.environ)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, len(c.want), "%s: %v", c.environ, err)
		for i, want := range c.want {
			require.Contains(t, lines[i], want, c.environ)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, warnings, err := config.FromEnv([]string{"NSM_LOG_LEVEL=LOUD", "NSM_DIAL_TIMEOUT=fast", "NSM_ZZ=", "NSM_AA=1"})
	require.Equal(t, []string{"config: NSM_AA is not a variable of this program", "config: NSM_ZZ is not a variable of this program"}, warnings)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 5)
	require.Contains(t, err.Error(), "config: NSM_REGISTRY_URL is not set: must not be empty")
	require.Contains(t, err.Error(), "config: NSM_REGISTRY_PROXY_URL is not set: must not be empty")
	require.Contains(t, err.Error(), "config: SPIFFE_ENDPOINT_SOCKET is not set: must not be empty")
	require.Contains(t, err.Error(), `config: NSM_LOG_LEVEL="LOUD"`)
	require.Contains(t, err.Error(), `config: NSM_DIAL_TIMEOUT="fast"`)
}

func TestUsageNamesEveryVariable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, config.Usage(&out))
	for _, name := range []string{"NSM_LISTEN_ON", "NSM_NAME", "NSM_MAX_TOKEN_LIFETIME", "NSM_REGISTRY_SERVER_POLICIES",
		"NSM_REGISTRY_CLIENT_POLICIES", "NSM_MAP_IP_FILE_PATH", "NSM_REGISTRY_PROXY_URL", "NSM_REGISTRY_URL", "NSM_LOG_LEVEL",
		"NSM_OPEN_TELEMETRY_ENDPOINT", "NSM_METRICS_EXPORT_INTERVAL", "NSM_PPROF_ENABLED", "NSM_PPROF_LISTEN_ON", "TELEMETRY",
		"SPIFFE_ENDPOINT_SOCKET", "NSM_MONITOR_GRACE", "NSM_MONITOR_LOCAL_GRACE", "NSM_DIAL_TIMEOUT", "NSM_HOP_PROBE_INTERVAL",
		"NSM_HOP_MAX_BACKOFF"} {
		require.Regexp(t, `(?m)^  `+name+` +\S`, out.String())
	}
	require.Contains(t, out.String(), "default: 10m\n")
	require.Error(t, config.Usage(brokenPipe{}))
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, bytes.ErrTooLarge }
