package scenario

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/log/logruslogger"
	"github.com/sirupsen/logrus"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	// countsEvery is how often the numbers are shown.
	countsEvery = 10 * time.Second
	// tailLines is how much of each log is shown of a run that went wrong.
	tailLines = 20
	// closeTimeout bounds the goodbye of each connection.
	closeTimeout = 5 * time.Second
)

// lab is one running experiment.
type lab struct {
	options *Options
	start   time.Time
	ctx     context.Context
	cancel  context.CancelCauseFunc
	book    *ledger.Ledger
	wg      sync.WaitGroup

	dir    string // temporary
	logDir string
	log    *os.File // of this process

	cas       [2]*identitytest.CA
	dns       *domain.DNS
	domains   [2]*domain.Domain
	workloads []*identitytest.WorkloadAPI
	relay     *lbtest.Relay // the balancer between the proxies
	inner     *lbtest.Relay // between the second proxy and its nsmgr, in a soak
	relays    []*lbtest.Relay
	proxies   [2]*proxyProcess
	client    *domain.Client
	endpoints int    // started so far
	kill      func() // the latest of them
	cost      Cost
	soaking   *Soak // nil until it begins
	observer  *observer
	segments  int

	// sayMu keeps the watcher's calls apart.
	sayMu   sync.Mutex
	watcher Watcher
	over    bool // what still happens is the clearing up
}

func newLab(ctx context.Context, options *Options, watcher Watcher) (*lab, error) {
	dir, err := os.MkdirTemp("", "nsmgr-proxy-lab-")
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	l := &lab{options: options, start: time.Now(), book: ledger.New(), dir: dir, logDir: dir, watcher: watcher}
	if options.LogDir != "" {
		l.logDir = filepath.Join(options.LogDir, options.Name)
	}
	if err = os.MkdirAll(l.logDir, 0o750); err == nil {
		l.log, err = os.Create(filepath.Join(l.logDir, "lab.log"))
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("lab: %w", err)
	}
	// The SDK's chains log through the standard logger of the process.
	// Those that have none fall back on that of the standard library.
	logrus.SetOutput(l.log)
	stdlog.SetOutput(l.log)
	l.ctx, l.cancel = context.WithCancelCause(log.WithLog(ctx, logruslogger.New(ctx)))
	l.wg.Go(l.showCounts)
	return l, nil
}

// close ends everything. It returns the ends of the logs if the run failed and
// somebody wants to know why.
func (l *lab) close(failure error, why bool) error {
	if l.client != nil && failure == nil {
		l.observer.closeConnections(l.client)
	}
	l.cancel(nil)
	for _, p := range l.proxies {
		if p != nil && p.child != nil {
			p.child.Stop()
		}
	}
	if l.observer != nil {
		l.observer.close()
	}
	for _, d := range l.domains {
		if d != nil {
			d.Close()
		}
	}
	for _, workload := range l.workloads {
		workload.Close()
	}
	for _, relay := range l.relays {
		_ = relay.Close()
	}
	if l.dns != nil {
		l.dns.Close()
	}
	l.wg.Wait()

	var tails error
	if failure != nil && why {
		tails = l.tails()
	}
	logrus.SetOutput(os.Stderr)
	stdlog.SetOutput(os.Stderr)
	_ = l.log.Close()
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return tails
}

func (l *lab) tails() error {
	return errors.New("--- end of the lab's own log:\n" + proc.Tail(l.log.Name(), tailLines) + "\n" + l.proxyTails())
}

// proxyTails returns the last lines of both proxies.
func (l *lab) proxyTails() string {
	var text strings.Builder
	for _, p := range l.proxies {
		if p != nil && p.child != nil {
			fmt.Fprintf(&text, "--- end of the log of %s:\n%s\n", p.child.Name(), p.child.Tail(tailLines))
		}
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// within runs f with a deadline of its own.
func (l *lab) within(d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.ctx, d)
	defer cancel()
	if err := f(ctx); err != nil {
		if cause := context.Cause(l.ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

// sleep waits unless the run ends: Ctrl-C, or a child that died.
func (l *lab) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// await waits until condition holds. The conditions are on numbers that other
// processes change, so there is nothing to be woken by.
func (l *lab) await(d time.Duration, what string, condition func() bool) error {
	const step = 20 * time.Millisecond
	for deadline := time.Now().Add(d); !condition(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("lab: %s: not within %s", what, d)
		}
		if err := l.sleep(step); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) say(who ledger.Who, event, state, hop, reason string) {
	l.sayMu.Lock()
	defer l.sayMu.Unlock()
	if l.over {
		return
	}
	l.watcher.Line(&Line{At: time.Since(l.start), Who: who, Event: event, State: state, Hop: hop, Reason: reason})
}

func (l *lab) showCounts() {
	ticker := time.NewTicker(countsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
			l.sayMu.Lock()
			l.watcher.Counts(time.Since(l.start), l.book.Counts())
			l.sayMu.Unlock()
		}
	}
}
