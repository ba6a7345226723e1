package nsmgrproxy

import (
	"context"
	"errors"
	"fmt"

	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
)

// instruments are what OpenTelemetry reads when it exports: nothing is counted for it in
// the meantime. Names are below "nsmgr_proxy.".
type instruments struct {
	connections, subscribers, mapEntries, mapUnusable, hopUsers, hopConnected metric.Int64ObservableGauge
	panics, hopDials, hopFailures                                             metric.Int64ObservableCounter
}

// Measure has the meter read what a server made by NewServer knows, until ctx ends. The
// error is one of the meter's.
func Measure(ctx context.Context, made nsmgr.Nsmgr, meter metric.Meter) (err error) {
	s, ok := made.(*server)
	if !ok {
		return errors.New("nsmgrproxy: not a server of ours")
	}
	var all []metric.Observable
	gauge := func(name, what string) metric.Int64ObservableGauge {
		g, failed := meter.Int64ObservableGauge("nsmgr_proxy."+name, metric.WithDescription(what))
		if err == nil {
			err = failed
		}
		all = append(all, g)
		return g
	}
	counter := func(name, what string) metric.Int64ObservableCounter {
		c, failed := meter.Int64ObservableCounter("nsmgr_proxy."+name, metric.WithDescription(what))
		if err == nil {
			err = failed
		}
		all = append(all, c)
		return c
	}
	i := &instruments{
		connections:  gauge("connections", "connections known"),
		subscribers:  gauge("subscribers", "subscribers of connections"),
		mapEntries:   gauge("map.entries", "addresses mapped"),
		mapUnusable:  gauge("map.unusable", "1 while the map file cannot be used and the last good map stays"),
		hopUsers:     gauge("hop.users", "connections and calls over an upstream"),
		hopConnected: gauge("hop.connected", "1 while an upstream is connected"),
		panics:       counter("panics", "panics recovered from, each a defect"),
		hopDials:     counter("hop.connects", "connections made to an upstream"),
		hopFailures:  counter("hop.failures", "calls that an upstream did not answer, by class"),
	}
	if err != nil {
		return fmt.Errorf("nsmgrproxy: %w", err)
	}
	registration, err := meter.RegisterCallback(
		func(_ context.Context, o metric.Observer) error { s.observe(i, o); return nil }, all...)
	if err != nil {
		return fmt.Errorf("nsmgrproxy: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = registration.Unregister() })
	return nil
}

func (s *server) observe(i *instruments, o metric.Observer) {
	connections, subscribers := s.table.Len()
	o.ObserveInt64(i.connections, int64(connections))
	o.ObserveInt64(i.subscribers, int64(subscribers))
	o.ObserveInt64(i.mapEntries, int64(s.addresses.Len()))
	o.ObserveInt64(i.mapUnusable, one64(s.addresses.Unusable()))
	o.ObserveInt64(i.panics, guard.Panics())
	for _, h := range s.pool.Status() {
		s.observeHop(i, o, h)
	}
}

func (s *server) observeHop(i *instruments, o metric.Observer, h hop.Status) {
	target := attribute.String("target", h.Target)
	of := metric.WithAttributes(target)
	o.ObserveInt64(i.hopUsers, int64(h.Users), of)
	o.ObserveInt64(i.hopConnected, one64(h.Connected), of)
	o.ObserveInt64(i.hopDials, int64(h.Dials), of)
	for class, n := range h.Failures {
		o.ObserveInt64(i.hopFailures, int64(n), metric.WithAttributes(target, attribute.String("class", class.String())))
	}
}

func one64(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
