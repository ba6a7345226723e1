package leg_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

func TestRequest_OfACallerThatIsGoneLeavesNoLeg(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.hold = make(chan struct{}) // whoever gets through ends with the context
		for n := range 100 {
			r := request()
			r.Connection.Id = fmt.Sprint(n)
			_, err := server.Request(ctx, r)
			require.Error(t, err)
		}
		require.Zero(t, table.Len())
	})
}

func TestExpiry_SurvivesALongFailingRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		_, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		time.Sleep(b.lifetime - time.Second)
		b.set(func() { b.hold = make(chan struct{}) })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err = server.Request(ctx, request())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		b.set(func() { b.hold = nil })
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Zero(t, table.Len(), "tokens ran out a day ago: %v", b.seen())
	})
}

func TestExpiry_CallerWithMorePatienceThanItsTokenKeepsTheLeg(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := server.Request(ctx, request())
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, 1, table.Len(), "closed %v", b.seen())
	})
}

func TestRequest_ThatPanicsLeavesNoLeg(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, _ *behind) {
		r := request()
		r.Connection.Path = nil // behind indexes it
		func() {
			defer func() { _ = recover() }() // as a recovery interceptor does
			_, _ = server.Request(t.Context(), r)
		}()
		require.Zero(t, table.Len())
	})
}

func TestRerequest_IsNotSentAfterARefreshThatItWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, _ *leg.Table, b *behind) {
		_, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		hold := make(chan struct{})
		b.set(func() { b.hold = hold })
		done := make(chan struct{}, 2)
		go func() { _, _ = server.Request(t.Context(), request()); done <- struct{}{} }()
		synctest.Wait()
		go func() { _ = b.leg.Rerequest(t.Context(), nil); done <- struct{}{} }()
		synctest.Wait()
		close(hold)
		<-done
		<-done
		require.Equal(t, []string{"request", "request"}, b.seen())
	})
}

func TestExpiry_OfOurOwnTokenEndsALegWhoseCallersWouldLastForYears(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		b.lifetime = 9 * 365 * 24 * time.Hour
		r := request()
		r.Connection.Path.PathSegments[1].Expires = timestamppb.New(time.Now().Add(10 * time.Minute))
		_, err := server.Request(t.Context(), r)
		require.NoError(t, err)
		time.Sleep(10*time.Minute - time.Second)
		require.Equal(t, 1, table.Len())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"request", "close at expiry"}, b.seen())
	})
}
