package identity

import (
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// watcher takes what the Workload API says. All calls come from one goroutine.
type watcher struct {
	source *Source
	logger log.Logger
	addr   string
	closed func() bool
}

// OnX509ContextUpdate makes the new identity the current one.
func (w *watcher) OnX509ContextUpdate(update *workloadapi.X509Context) {
	s := w.source
	s.mu.Lock()
	before, lost := s.current, s.lastErr != nil
	s.current, s.lastErr = update, nil
	svid := update.DefaultSVID()
	rotated := before != nil && !before.DefaultSVID().Certificates[0].Equal(svid.Certificates[0])
	if rotated {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()

	notAfter := svid.Certificates[0].NotAfter
	switch {
	case before == nil:
		w.logger.Infof("identity: SVID %q, valid until %s", svid.ID, notAfter.Format(time.RFC3339))
		close(s.first)
	case rotated:
		w.logger.Infof("identity: SVID %q renewed, valid until %s", svid.ID, notAfter.Format(time.RFC3339))
	case lost:
		w.logger.Infof("identity: workload API at %s is back, the SVID is the same", w.addr)
	default:
		w.logger.Infof("identity: bundles of %d trust domains received", update.Bundles.Len())
	}
}

// OnX509ContextWatchError says once that the agent cannot be asked: the reason
// is most often a pod that starts before its agent, and lasts minutes.
func (w *watcher) OnX509ContextWatchError(err error) {
	if w.closed() {
		return
	}
	s := w.source
	s.mu.Lock()
	repeated, current := s.lastErr != nil, s.current
	s.lastErr = err
	s.mu.Unlock()

	switch {
	case repeated:
		w.logger.Debugf("identity: still waiting for the workload API at %s: %v", w.addr, err)
	case current == nil:
		w.logger.Infof("identity: waiting for the workload API at %s: %v", w.addr, err)
	default:
		w.logger.Infof("identity: workload API at %s lost, the SVID stays in use until %s: %v", w.addr,
			current.DefaultSVID().Certificates[0].NotAfter.Format(time.RFC3339), err)
	}
}
