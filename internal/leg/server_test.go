package leg_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

// behind is the rest of the chain, on request.
type behind struct {
	mu       sync.Mutex
	requests []*networkservice.NetworkServiceRequest
	closes   []*networkservice.Connection
	order    []string
	leg      *leg.Leg
	err      error
	hold     chan struct{}
	lifetime time.Duration
	memory   []int
	refuse   bool
	md       metadata.MD
}

func (b *behind) Request(ctx context.Context, r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	b.mu.Lock()
	b.requests = append(b.requests, r.Clone())
	kind := "request"
	if leg.InPlace(ctx) {
		kind = "in place"
	}
	b.order = append(b.order, kind)
	b.leg = leg.FromContext(ctx)
	counter := leg.State[int](ctx)
	*counter++
	b.memory = append(b.memory, *counter)
	b.md, _ = metadata.FromIncomingContext(ctx)
	err, hold, lifetime := b.err, b.hold, b.lifetime
	b.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	conn := r.GetConnection().Clone()
	conn.Path.PathSegments[0].Expires = timestamppb.New(time.Now().Add(lifetime))
	// What elements below do to a request must not come back in a later one.
	r.Connection.NetworkService = "spoiled"
	return conn, nil
}

func (b *behind) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	if !b.refuse {
		leg.CloseBegun(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	kind := "close"
	switch {
	case leg.Reselecting(ctx):
		kind = "close for reselect"
	case leg.Expired(ctx):
		kind = "close at expiry"
	}
	b.order = append(b.order, kind)
	b.closes = append(b.closes, conn.Clone())
	return new(emptypb.Empty), b.err
}

// seen returns what came so far, once everything is at rest.
func (b *behind) seen() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.order...)
}

func (b *behind) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func request() *networkservice.NetworkServiceRequest {
	return &networkservice.NetworkServiceRequest{Connection: &networkservice.Connection{
		Id: "us", NetworkService: "service",
		Path: &networkservice.Path{Index: 1, PathSegments: []*networkservice.PathSegment{
			{Name: "before", Id: "before"}, {Name: "us", Id: "us"}, {Name: "next", Id: "next"},
		}},
	}}
}

func inBubble(t *testing.T, f func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind)) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		defer wg.Wait()
		defer cancel()
		b := &behind{lifetime: 10 * time.Minute}
		table := leg.New(ctx, &wg)
		f(t, chain.NewNetworkServiceServer(leg.NewServer(table), b), table, b)
	})
}

func TestRequest_FailedFirstLeavesNothingBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		b.err = errors.New("no")
		_, err := server.Request(t.Context(), request())
		require.ErrorIs(t, err, b.err)
		require.Zero(t, table.Len())
		b.set(func() { b.err = nil })
		_, err = server.Request(t.Context(), request())
		require.NoError(t, err)
		require.Equal(t, []int{1, 1}, b.memory, "nor in the memory")
	})
}

func TestRequest_FailedRefreshLeavesTheLegAsItWas(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		_, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		b.set(func() { b.err = errors.New("no") })
		_, err = server.Request(t.Context(), request())
		require.Error(t, err)
		require.Equal(t, 1, table.Len())
		b.set(func() { b.err = nil })
		require.NoError(t, b.leg.Rerequest(t.Context(), nil))
		require.Equal(t, []int{1, 2, 3}, b.memory)
		require.Equal(t, "service", b.requests[2].GetConnection().GetNetworkService(), "from a clean copy")
	})
}

func TestRerequest_CarriesTheCallersMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, _ *leg.Table, b *behind) {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(guard.TokenHeader, "of the caller", "path", "huge"))
		_, err := server.Request(ctx, request())
		require.NoError(t, err)
		require.NoError(t, b.leg.Rerequest(t.Context(), nil))
		require.Equal(t, []string{"of the caller"}, b.md.Get(guard.TokenHeader))
		require.Empty(t, b.md.Get("path"), "nothing else is kept")
		require.Equal(t, []string{"request", "in place"}, b.seen())
	})
}

func TestRerequest_OfALegThatIsGoneDoesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, _ *leg.Table, b *behind) {
		conn, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		_, err = server.Close(t.Context(), conn)
		require.NoError(t, err)
		require.NoError(t, b.leg.Rerequest(t.Context(), nil))
		require.Equal(t, []string{"request", "close"}, b.seen())
	})
}

func TestRerequest_YieldsToWhoComesFromDownstream(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		conn, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		b.set(func() { b.hold = make(chan struct{}) })
		failed := make(chan error, 1)
		go func() { failed <- b.leg.Rerequest(t.Context(), nil) }()
		synctest.Wait()
		began := time.Now()
		_, err = server.Close(t.Context(), conn)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, <-failed, context.Canceled)
		require.Zero(t, table.Len())
	})
}

func TestRequests_OfOneConnectionComeOneAfterTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, _ *leg.Table, b *behind) {
		b.hold = make(chan struct{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := server.Request(t.Context(), request())
				require.NoError(t, err)
			})
		}
		for n := 1; n <= 10; n++ {
			synctest.Wait()
			b.set(func() { require.Len(t, b.requests, n) })
			b.hold <- struct{}{}
		}
		wg.Wait()
	})
}

func TestRequest_WaitingForOnesTurnEndsWithTheCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, _ *leg.Table, b *behind) {
		b.hold = make(chan struct{})
		done := make(chan error, 1)
		go func() {
			_, err := server.Request(t.Context(), request())
			done <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := server.Request(ctx, request())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(b.hold)
		require.NoError(t, <-done)
	})
}

func TestClose_FreesWhatIsKeptWhateverTheFarSideSays(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		conn, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		b.set(func() { b.err = errors.New("no") })
		_, err = server.Close(t.Context(), conn)
		require.Error(t, err)
		require.Zero(t, table.Len())
	})
}

func TestClose_ThatIsRefusedLeavesTheLegAsItWas(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		conn, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		b.set(func() { b.err, b.refuse = errors.New("no privileges"), true })
		_, err = server.Close(t.Context(), conn)
		require.Error(t, err)
		require.Equal(t, 1, table.Len())
		time.Sleep(11 * time.Minute)
		require.Equal(t, []string{"request", "close", "close at expiry"}, b.seen())
	})
}

func TestClose_OfAnUnknownConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		conn := request().GetConnection()
		_, err := server.Close(t.Context(), conn)
		require.NoError(t, err)
		require.Len(t, b.closes, 1, "is passed on: an earlier process may have opened it")

		conn.Path.PathSegments = conn.Path.PathSegments[:2]
		_, err = server.Close(t.Context(), conn)
		require.NoError(t, err)
		require.Len(t, b.closes, 1, "unless its path ends here")
		require.Zero(t, table.Len())
	})
}

func TestExpiry(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		ask := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			_, err := server.Request(ctx, request())
			require.NoError(t, err)
		}
		ask()
		time.Sleep(9 * time.Minute)
		ask()
		time.Sleep(10*time.Minute - 16*time.Second)
		require.Equal(t, []string{"request", "request"}, b.seen(), "a refresh renews it")
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"request", "request", "close at expiry"}, b.seen())
		require.Zero(t, table.Len())
	})
}

func TestExpiry_LeavesTimeForARefresh(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		// Nobody's certificate is renewed: the refreshes come ever faster, each in a
		// fifth of what is left.
		end, refreshes := time.Now().Add(10*time.Second), 0
		for time.Until(end) > time.Second {
			b.set(func() { b.lifetime = time.Until(end) })
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			_, err := server.Request(ctx, request())
			cancel()
			require.NoError(t, err)
			time.Sleep(time.Until(end) / 5)
			refreshes++
			require.Equal(t, 1, table.Len())
		}
		time.Sleep(time.Until(end))
		require.Len(t, b.seen(), refreshes+1)
		require.Len(t, b.closes, 1)
		require.Zero(t, table.Len())
	})
}

func TestAlive_RefusesWhatHasRunOut(t *testing.T) {
	b := &behind{}
	server := chain.NewNetworkServiceServer(leg.NewAliveServer(), b)
	for _, c := range []struct {
		before, own time.Duration // from now, zero for unknown
		code        codes.Code
	}{
		{0, 0, codes.OK},
		{time.Minute, time.Minute, codes.OK},
		{-time.Second, time.Minute, codes.Unauthenticated},
		{time.Minute, -time.Second, codes.Unauthenticated},
		{0, -time.Second, codes.Unauthenticated},
	} {
		r := request()
		for i, left := range []time.Duration{c.before, c.own} {
			if left != 0 {
				r.Connection.Path.PathSegments[i].Expires = timestamppb.New(time.Now().Add(left))
			}
		}
		closes := len(b.closes)
		require.Equal(t, c.code, status.Code(first(server.Request(t.Context(), r.Clone()))), "%v", c)
		require.NoError(t, first(server.Close(t.Context(), r.GetConnection())))
		require.Len(t, b.closes, closes+1, "a Close is always good")
	}
}

func first(_ any, err error) error { return err }

func TestReselect_ClosesTheOldLegFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		_, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		r := request()
		r.Connection.State = networkservice.State_RESELECT_REQUESTED
		conn, err := server.Request(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, networkservice.State_UP, conn.GetState())
		require.Equal(t, []string{"request", "close for reselect", "request"}, b.seen())
		require.Equal(t, []int{1, 1}, b.memory, "the new leg starts afresh")

		b.set(func() { b.err = errors.New("no") })
		_, err = server.Request(t.Context(), r)
		require.Error(t, err)
		require.Zero(t, table.Len(), "the old one is gone already")
	})
}
