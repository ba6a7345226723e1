package scenario

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

const (
	proxySegment = 3 // of the outbound proxy in a path
	nsmgrSegment = 1 // of the client's nsmgr
	// resubscribeAfter is the pause before a stream that ended is opened again.
	resubscribeAfter = 100 * time.Millisecond
)

// observer subscribes to each connection in two places: at the client's nsmgr,
// as the client's heal does, and at the outbound proxy, as its forwarder does.
type observer struct {
	lab    *lab
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ccs    map[ledger.Who]*grpc.ClientConn

	mu     sync.Mutex
	begun  bool // before that, paths are noted and nothing is subscribed to
	conns  map[string]*observed
	opened int           // initial states received
	news   chan struct{} // closed and replaced when opened grows
}

// observed is a connection that is watched.
type observed struct {
	number  int
	conn    *networkservice.Connection
	streams map[ledger.Who]*watched
}

// watched is a subscription to one path segment.
type watched struct {
	segment string // its id
	cancel  context.CancelFunc
}

func newObserver(l *lab) (*observer, error) {
	o := &observer{
		lab:   l,
		ccs:   make(map[ledger.Who]*grpc.ClientConn),
		conns: make(map[string]*observed),
		news:  make(chan struct{}),
	}
	o.ctx, o.cancel = context.WithCancel(l.ctx)
	id, err := l.domains[0].Identity("lab")
	if err != nil {
		return nil, err
	}
	targets := map[ledger.Who]string{
		ledger.Client: l.domains[0].NSMgrURL.Host,
		ledger.Proxy:  l.domains[0].ProxyURL.Host,
	}
	// A proxy that comes back must find its subscriber soon.
	soon := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: resubscribeAfter / 2, Multiplier: 1, MaxDelay: resubscribeAfter},
		MinConnectTimeout: time.Second,
	})
	for who, target := range targets {
		if o.ccs[who], err = grpc.NewClient("passthrough:///"+target, append(id.DialOptions(), soon)...); err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
	}
	return o, nil
}

func (o *observer) close() {
	o.cancel()
	o.wg.Wait()
	for _, cc := range o.ccs {
		_ = cc.Close()
	}
}

// answered enters a call of the client and follows its path.
func (o *observer) answered(call domain.Call) {
	o.lab.book.Ended(call)
	if call.Kind == domain.Refresh && call.Err != nil {
		o.lab.say(ledger.Client, "REFRESH FAILED", "", "", firstLine(call.Err))
	}
	if call.Kind == domain.Close || call.Err != nil {
		return
	}
	segments := call.Path.GetPathSegments()
	if len(segments) <= proxySegment {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, ok := o.conns[call.Conn]
	if !ok {
		seen = &observed{number: len(o.conns) + 1, streams: make(map[ledger.Who]*watched)}
		o.conns[call.Conn] = seen
	}
	seen.conn = &networkservice.Connection{Id: call.Conn, Path: call.Path}
	if o.begun {
		o.followBoth(seen)
	}
}

// begin subscribes to all connections, and to each that comes later.
func (o *observer) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = true
	for _, seen := range o.conns {
		o.followBoth(seen)
	}
}

// followBoth subscribes in both places. Called with mu held.
func (o *observer) followBoth(seen *observed) {
	segments := seen.conn.GetPath().GetPathSegments()
	o.follow(seen, ledger.Client, seen.conn.GetId(), segments[nsmgrSegment])
	o.follow(seen, ledger.Proxy, seen.conn.GetId(), segments[proxySegment])
}

// follow subscribes to a segment, anew if the path has another one now. Called
// with mu held.
func (o *observer) follow(seen *observed, who ledger.Who, conn string, segment *networkservice.PathSegment) {
	if old, ok := seen.streams[who]; ok {
		if old.segment == segment.GetId() {
			return
		}
		old.cancel()
	}
	ctx, cancel := context.WithCancel(o.ctx)
	seen.streams[who] = &watched{segment: segment.GetId(), cancel: cancel}
	selector := &networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{
		{Id: segment.GetId(), Name: segment.GetName()},
	}}
	number := seen.number
	o.wg.Go(func() {
		defer cancel()
		for ctx.Err() == nil {
			opened, err := o.stream(ctx, who, conn, number, selector)
			if ctx.Err() != nil {
				return
			}
			if opened && number == 1 {
				o.lab.say(who, "STREAM ENDED", "", "", firstLine(err))
			}
			select {
			case <-ctx.Done():
			case <-time.After(resubscribeAfter):
			}
		}
	})
}

// stream reads one subscription to its end, and tells whether it had begun.
func (o *observer) stream(
	ctx context.Context, who ledger.Who, conn string, number int, selector *networkservice.MonitorScopeSelector,
) (opened bool, err error) {
	client, err := networkservice.NewMonitorConnectionClient(o.ccs[who]).MonitorConnections(ctx, selector)
	if err != nil {
		return false, err
	}
	for {
		event, err := client.Recv()
		if err != nil {
			return opened, err
		}
		now := time.Now()
		for _, c := range event.GetConnections() {
			reason := o.lab.book.Event(who, conn, now, event.GetType(), c.GetState())
			if number == 1 { // the others are counted; a screen has room for one
				o.lab.say(who, eventName(event.GetType()), stateName(event.GetType(), c), hopOf(who), reason)
			}
		}
		if event.GetType() == networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER {
			opened = true
			o.noteOpened()
		}
	}
}

func (o *observer) noteOpened() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened++
	close(o.news)
	o.news = make(chan struct{})
}

// awaitSubscribed waits until every stream of that many connections is open.
func (o *observer) awaitSubscribed(ctx context.Context, connections int) error {
	for {
		o.mu.Lock()
		done, news := o.opened >= connections*len(o.ccs), o.news
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("lab: monitor streams do not open: %w", ctx.Err())
		}
	}
}

// ids returns the ids of all connections.
func (o *observer) ids() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	ids := make([]string, 0, len(o.conns))
	for id := range o.conns {
		ids = append(ids, id)
	}
	return ids
}

// closeConnections says goodbye; what does not answer in time is left.
func (o *observer) closeConnections(client *domain.Client) {
	ctx, cancel := context.WithTimeout(o.ctx, closeTimeout)
	defer cancel()
	o.mu.Lock()
	conns := make([]*networkservice.Connection, 0, len(o.conns))
	for _, seen := range o.conns {
		conns = append(conns, seen.conn)
	}
	o.mu.Unlock()
	for _, conn := range conns {
		_ = client.Close(ctx, conn)
	}
}

func eventName(kind networkservice.ConnectionEventType) string {
	if kind == networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER {
		return "INITIAL"
	}
	return kind.String()
}

func stateName(kind networkservice.ConnectionEventType, conn *networkservice.Connection) string {
	if kind == networkservice.ConnectionEventType_DELETE {
		return ""
	}
	return strings.TrimSuffix(conn.GetState().String(), "_REQUESTED")
}

func hopOf(who ledger.Who) string {
	if who == ledger.Proxy {
		return fmt.Sprint(proxySegment)
	}
	return fmt.Sprint(nsmgrSegment)
}

func firstLine(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
