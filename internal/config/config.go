// Package config turns the environment into a typed, checked configuration.
//
// Under failure: every fault is found in one pass and named by its variable; a
// configuration is returned only if there is none. Nothing is read but the
// environment that is passed in.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// prefix is what our own variables begin with.
const prefix = "NSM_"

// Config is the configuration of the process.
type Config struct {
	ListenOn               []url.URL // scheme tcp (with a port, perhaps without a host) or unix; at least one
	Name                   string    // not empty
	MaxTokenLifetime       time.Duration
	RegistryServerPolicies []string               // masks of files; empty means no authorization
	RegistryClientPolicies []string               // masks of files; empty means no authorization
	MonitorPolicies        []string               // masks of files; empty means no authorization
	RequestPolicies        []string               // masks of files; empty means no authorization
	TrustDomains           []spiffeid.TrustDomain // empty means any that the bundle knows
	MapIPFilePath          string                 // may be empty
	RegistryURL            *url.URL               // tcp://host:port or unix:///path
	RegistryProxyURL       *url.URL               // tcp://host:port or unix:///path
	SPIFFEEndpointSocket   string                 // valid for the Workload API client

	LogLevel              logrus.Level
	Telemetry             bool
	OpenTelemetryEndpoint string
	MetricsExportInterval time.Duration
	PprofEnabled          bool
	PprofListenOn         string

	MonitorGrace      time.Duration // 0: every loss is a DOWN at once
	MonitorLocalGrace time.Duration // 0: every loss is a DOWN at once
	DialTimeout       time.Duration // > 0
	HopProbeInterval  time.Duration // 0: off
	HopMaxBackoff     time.Duration // > 0
}

// FromEnv reads environ, a list of NAME=value as os.Environ gives it. The
// warnings are about what is accepted but most likely a mistake. The error
// joins one error per fault.
//
// A variable that is set to nothing counts as set: for lists it means none, for
// most others it is a fault.
func FromEnv(environ []string) (*Config, []string, error) {
	env := lookup(environ)
	c := &Config{}
	var warnings []string
	var faults []error
	known := map[string]bool{}
	for _, v := range declare(c) {
		known[v.name] = true
		value, set := env[v.name]
		if !set {
			value = v.def
		}
		if err := v.set(value); err != nil {
			faults = append(faults, fault(v.name, value, set, err))
		}
	}
	// Such a value has always meant "off", and may be in use for that.
	if value, set := env[telemetryName]; set && !isBool(value) {
		warnings = append(warnings, fmt.Sprintf("config: %s=%q is not a boolean, telemetry is off", telemetryName, value))
	}
	for name := range env {
		if strings.HasPrefix(name, prefix) && !known[name] {
			warnings = append(warnings, fmt.Sprintf("config: %s is not a variable of this program", name))
		}
	}
	slices.Sort(warnings)
	faults = append(faults, c.contradictions()...)
	if len(faults) > 0 {
		return nil, warnings, errors.Join(faults...)
	}
	return c, warnings, nil
}

// lookup makes a map of environ. As in os.Getenv the first of several wins.
func lookup(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if _, again := env[name]; ok && !again {
			env[name] = value
		}
	}
	return env
}

func fault(name, value string, set bool, err error) error {
	if !set {
		return fmt.Errorf("config: %s is not set: %w", name, err)
	}
	return fmt.Errorf("config: %s=%q: %w", name, value, err)
}

// contradictions checks what concerns several variables. A variable that could
// not be read is zero here, and zero contradicts nothing.
func (c *Config) contradictions() []error {
	faults := c.hopContradictions()
	if c.PprofEnabled {
		if _, err := hostPort(c.PprofListenOn); err != nil {
			faults = append(faults, fmt.Errorf("config: NSM_PPROF_LISTEN_ON=%q: %w", c.PprofListenOn, err))
		}
	}
	if c.Telemetry && c.OpenTelemetryEndpoint == "" {
		faults = append(faults, errors.New("config: NSM_OPEN_TELEMETRY_ENDPOINT is empty, but TELEMETRY is on"))
	}
	return faults
}
