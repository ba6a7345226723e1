package leg_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

// clock notes how long the chain is given.
type clock struct{ given time.Duration }

func (c *clock) Request(ctx context.Context, r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	deadline, _ := ctx.Deadline()
	c.given = time.Until(deadline)
	return next.Server(ctx).Request(ctx, r)
}

func (c *clock) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	return next.Server(ctx).Close(ctx, conn)
}

// The far side takes the time that a Request is given off the token's life.
func TestRequest_IsNotGivenMoreThanItsTokenBears(t *testing.T) {
	for name, c := range map[string]struct{ token, try, given time.Duration }{
		"the shipped lifetime":  {10 * time.Minute, 15 * time.Second, 15*time.Second + 45*time.Second},
		"a second proxy":        {10 * time.Minute, time.Minute, time.Minute + 45*time.Second},
		"two minutes":           {2 * time.Minute, 15 * time.Second, 30 * time.Second},
		"a minute":              {time.Minute, 15 * time.Second, 15 * time.Second},
		"half of it is over":    {30 * time.Second, 15 * time.Second, 15 * time.Second},
		"shorter than the call": {10 * time.Second, 15 * time.Second, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wg sync.WaitGroup
				tableCtx, stop := context.WithCancel(context.Background())
				seen := new(clock)
				server := chain.NewNetworkServiceServer(leg.NewServer(leg.New(tableCtx, &wg)), seen)
				ctx, cancel := context.WithTimeout(metadata.NewIncomingContext(context.Background(), metadata.Pairs(
					"nsm-client-token", "token", "nsm-client-token-expires", time.Now().Add(c.token).Format(time.RFC3339Nano))), c.try)
				_, err := server.Request(ctx, &networkservice.NetworkServiceRequest{Connection: &networkservice.Connection{
					Id: "id", Path: &networkservice.Path{Index: 1, PathSegments: []*networkservice.PathSegment{{Id: "before"}, {Id: "id"}}},
				}})
				require.NoError(t, err)
				require.Equal(t, c.given, seen.given)
				cancel()
				stop()
				wg.Wait()
			})
		})
	}
}
