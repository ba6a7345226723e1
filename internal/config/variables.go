package config

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// telemetryName has no prefix, because the SDK reads it, too.
const telemetryName = "TELEMETRY"

// variable is the one place where a variable is described: reading, checking
// and the usage text come from it.
type variable struct {
	name, def, desc string
	set             func(value string) error
}

// declare lists all variables; their setters write to c.
func declare(c *Config) []variable {
	return []variable{
		{"NSM_NAME", "nsmgr-proxy", "Name of this proxy, unique in its domain; keep it over restarts", text(&c.Name)},
		{"NSM_LISTEN_ON", "unix:///listen.on.socket", "URLs to listen on (tcp or unix), comma-separated; others are told the first tcp one", listenURLs(&c.ListenOn)},
		{"NSM_REGISTRY_URL", "", "Registry of this domain, host:port or tcp://host:port (required)", address(&c.RegistryURL)},
		{"NSM_REGISTRY_PROXY_URL", "", "Registry proxy of this domain, host:port or tcp://host:port (required)", address(&c.RegistryProxyURL)},
		{"SPIFFE_ENDPOINT_SOCKET", "", "Workload API, unix:///path or tcp://ip:port (required)", workloadAPI(&c.SPIFFEEndpointSocket)},
		{"NSM_MAX_TOKEN_LIFETIME", "10m", "Longest lifetime of a token, over 0", duration(&c.MaxTokenLifetime, notZero)},
		{"NSM_REGISTRY_SERVER_POLICIES", "etc/nsm/opa/common/.*.rego,etc/nsm/opa/registry/.*.rego,etc/nsm/opa/server/.*.rego", "Policies for registry calls to us, comma-separated masks of files; empty for none", masks(&c.RegistryServerPolicies)},
		{"NSM_REGISTRY_CLIENT_POLICIES", "etc/nsm/opa/common/.*.rego,etc/nsm/opa/registry/.*.rego,etc/nsm/opa/client/.*.rego", "Policies for registry calls by us, comma-separated masks of files; empty for none", masks(&c.RegistryClientPolicies)},
		{"NSM_MAP_IP_FILE_PATH", "map-ip.yaml", "File that maps internal to external addresses", anyText(&c.MapIPFilePath)},

		{"NSM_MONITOR_POLICIES", "", "Policies for subscriptions, comma-separated masks of files; none as in stock", masks(&c.MonitorPolicies)},
		{"NSM_REQUEST_POLICIES", "", "Policies for Requests and Closes, comma-separated masks of files; none as in stock", masks(&c.RequestPolicies)},
		{"NSM_TRUST_DOMAINS", "", "SPIFFE trust domains whose members may connect, comma-separated; none for all that the bundle knows", trustDomains(&c.TrustDomains)},

		{"NSM_MONITOR_GRACE", "30s", "How long a lost monitor stream to another domain is kept from subscribers; 0 for not at all", duration(&c.MonitorGrace, orZero)},
		{"NSM_MONITOR_LOCAL_GRACE", "10s", "The same for streams to the nsmgrs of this domain", duration(&c.MonitorLocalGrace, orZero)},
		{"NSM_DIAL_TIMEOUT", "4s", "Longest attempt at one address of an upstream; unless both graces are 0, under 5s and under either grace", hopTime(&c.DialTimeout, notZero)},
		{"NSM_HOP_PROBE_INTERVAL", "15s", "Silence on a used upstream connection after which it is probed; 0 for never; with 10s more within the longer grace, or 30s", hopTime(&c.HopProbeInterval, orZero)},
		{"NSM_HOP_MAX_BACKOFF", "5s", "Longest pause between attempts at an upstream; together with NSM_DIAL_TIMEOUT under either grace, and under 15s", hopTime(&c.HopMaxBackoff, notZero)},

		{"NSM_LOG_LEVEL", "INFO", "Log level; SIGUSR1 sets TRACE, SIGUSR2 sets this one again", level(&c.LogLevel)},
		{telemetryName, "false", "Whether to export traces and metrics", lenientBoolean(&c.Telemetry)},
		{"NSM_OPEN_TELEMETRY_ENDPOINT", "otel-collector.observability.svc.cluster.local:4317", "OpenTelemetry collector, host:port", anyText(&c.OpenTelemetryEndpoint)},
		{"NSM_METRICS_EXPORT_INTERVAL", "10s", "Pause between exports of metrics; 0 for the one of OpenTelemetry", duration(&c.MetricsExportInterval, orZero)},
		{"NSM_PPROF_ENABLED", "false", "Whether to serve profiles over HTTP", boolean(&c.PprofEnabled)},
		{"NSM_PPROF_LISTEN_ON", "localhost:6060", "Where to serve profiles, host:port", anyText(&c.PprofListenOn)},
	}
}

// Usage writes a table of all variables.
func Usage(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range declare(&Config{}) {
		_, _ = fmt.Fprintf(table, "  %s\t%s\n\t  default: %s\n", v.name, v.desc, orNone(v.def))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("config: usage: %w", err)
	}
	return nil
}

func orNone(def string) string {
	if def == "" {
		return "none"
	}
	return def
}
