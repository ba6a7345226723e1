package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc"
)

// leg is one connection through the proxy. One caller at a time uses it.
type leg struct {
	load   *Load
	number int

	conn *networkservice.Connection // of the last answer; nil before the first
	cc   *grpc.ClientConn           // its own, if it has one
	// leave ends the monitor stream and waits for that; nil without one.
	leave func()
}

// refresh requests the leg, for the first time or again, and subscribes to it if it
// is not subscribed to.
func (l *leg) refresh(ctx context.Context) error {
	if err := l.request(ctx); err != nil {
		return err
	}
	return l.subscribe(ctx)
}

func (l *leg) request(ctx context.Context) error {
	request := newRequest(l.number, l.load.options.Role)
	first := l.conn == nil
	if !first {
		request.Connection = l.conn
	}
	began := time.Now()
	cc, err := l.connect()
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := client(cc).Request(call, request, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("load: leg %d: %w", l.number, err)
	}
	if !first {
		l.load.took(time.Since(began))
		if err := sameIDs(l.conn, conn); err != nil {
			return fmt.Errorf("load: leg %d: %w", l.number, err)
		}
	}
	l.conn = conn
	return nil
}

// connect returns the connection for a Request. One of the leg's own is made
// anew, and the stream on the old one ends first, as in the SDK.
func (l *leg) connect() (*grpc.ClientConn, error) {
	if l.load.shared != nil {
		return l.load.shared, nil
	}
	l.disconnect()
	cc, err := l.load.dial()
	if err != nil {
		return nil, err
	}
	l.cc = cc
	return cc, nil
}

func (l *leg) disconnect() {
	if l.leave != nil {
		l.leave()
		l.leave = nil
	}
	if l.cc != nil {
		_ = l.cc.Close()
		l.cc = nil
	}
}

// subscribe opens the stream of the forwarder of this leg, if none is open, and waits
// for its initial state.
func (l *leg) subscribe(ctx context.Context) error {
	cc := l.load.shared
	if cc == nil {
		cc = l.cc
	}
	if l.leave != nil || l.conn == nil || cc == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	own := l.conn.GetCurrentPathSegment()
	stream, err := networkservice.NewMonitorConnectionClient(cc).MonitorConnections(ctx, &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Id: own.GetId(), Name: own.GetName()}},
	})
	if err != nil {
		cancel()
		return fmt.Errorf("load: leg %d: subscribe: %w", l.number, err)
	}
	initial, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for heard := false; ; heard = true {
			event, err := stream.Recv()
			if err != nil {
				if ctx.Err() == nil {
					l.load.fault(fmt.Errorf("load: leg %d: stream: %w", l.number, err))
				}
				return
			}
			l.load.events.note(event)
			if !heard {
				close(initial)
			}
		}
	}()
	l.leave = func() {
		cancel()
		<-done
	}
	timer := time.NewTimer(initialTime)
	defer timer.Stop()
	select {
	case <-initial:
		return nil
	case <-done:
		return nil // noted where it ended
	case <-timer.C:
		return fmt.Errorf("load: leg %d: no initial state in %s", l.number, initialTime)
	}
}

func (l *leg) remove(ctx context.Context) error {
	if l.conn == nil {
		return nil
	}
	cc, err := l.connect()
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if _, err = client(cc).Close(call, l.conn, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("load: leg %d: close: %w", l.number, err)
	}
	return nil
}

// sameIDs holds the ids of a refresh against those before: a leg that is made
// anew each time is none that was refreshed.
func sameIDs(before, after *networkservice.Connection) error {
	a, b := before.GetPath().GetPathSegments(), after.GetPath().GetPathSegments()
	if len(a) != len(b) {
		return fmt.Errorf("the path had %d segments, and has %d", len(a), len(b))
	}
	for i := range a {
		if a[i].GetId() != b[i].GetId() {
			return fmt.Errorf("segment %d is another one than before", i)
		}
	}
	if before.GetId() != after.GetId() {
		return errors.New("the id is another one than before")
	}
	return nil
}
