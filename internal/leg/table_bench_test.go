package leg

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// answering is a far side that answers what it is asked.
type answering struct {
	networkservice.NetworkServiceServer
}

func (answering) Request(_ context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	return request.GetConnection(), nil
}

func (answering) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	return next.Server(ctx).Close(ctx, conn)
}

// crowded is a table with so many legs.
func crowded(b *testing.B, legs int) (*Table, networkservice.NetworkServiceServer, []*networkservice.NetworkServiceRequest) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	b.Cleanup(wg.Wait)
	b.Cleanup(cancel)
	table := New(ctx, &wg)
	server := chain.NewNetworkServiceServer(NewServer(table), answering{})
	requests := make([]*networkservice.NetworkServiceRequest, legs)
	for n := range requests {
		requests[n] = &networkservice.NetworkServiceRequest{Connection: lbtest.Established(n)}
		if _, err := server.Request(b.Context(), requests[n]); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() {
		for _, request := range requests {
			_, _ = server.Close(context.Background(), request.GetConnection())
		}
	})
	return table, server, requests
}

// BenchmarkTurn is taking the turn of a leg and giving it back.
func BenchmarkTurn(b *testing.B) {
	for _, legs := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("legs=%d", legs), func(b *testing.B) {
			table, _, requests := crowded(b, legs)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				l, err := table.enter(b.Context(), requests[n].GetConnection().GetId(), false)
				if err != nil || l == nil {
					b.Fatal("no such leg")
				}
				l.leave()
				n = (n + 1) % legs
			}
		})
	}
}

// BenchmarkRefresh is a refresh as far as it is the leg's: its turn, what is kept of it,
// its expiry.
func BenchmarkRefresh(b *testing.B) {
	for _, legs := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("legs=%d", legs), func(b *testing.B) {
			_, server, requests := crowded(b, legs)
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.Request(ctx, requests[n]); err != nil {
					b.Fatal(err)
				}
				n = (n + 1) % legs
			}
		})
	}
}
