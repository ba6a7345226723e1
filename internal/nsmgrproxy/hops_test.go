package nsmgrproxy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// farHop is what is known of the hop to the far side.
func (w *world) farHop() hop.Status {
	w.Helper()
	for _, status := range nsmgrproxy.HopsOf(w.chain) {
		if strings.HasSuffix(status.Target, farAddr) {
			return status
		}
	}
	w.Fatal("no hop to the far side")
	return hop.Status{}
}

func TestHops_WhatIsKnownOfThem(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		began := time.Now()
		status := w.farHop()
		require.Equal(w, hop.Stock, status.Peer)
		require.True(w, status.Connected)
		require.Equal(w, 1, status.Dials)
		require.Equal(w, 2, status.Users, "the leg and its relay")
		require.WithinDuration(w, began, status.LastAnswer, time.Second)
		require.WithinDuration(w, began, status.LastPayload, time.Second)
		require.Empty(w, status.Failures)

		w.wire.Blackhole(farAddr, true)
		_, err := w.request(again(conn))
		require.NoError(w, err, "answered from memory")
		status = w.farHop()
		require.Equal(w, 1, status.Failures[hop.Silent], "%v", status.Failures)
		require.Positive(w, status.Failures[hop.Lost]+status.Failures[hop.Unreachable], "%v", status.Failures)
		require.False(w, status.Connected)
		require.WithinDuration(w, began, status.LastAnswer, time.Second, "nothing since")

		w.wire.Blackhole(farAddr, false)
		time.Sleep(15 * time.Second)
		status = w.farHop()
		require.True(w, status.Connected)
		require.Greater(w, status.Dials, 1)
		require.Greater(w, time.Since(began), time.Since(status.LastAnswer), "it answers again")
	})
}

// A proxy like this one says so with each answer to a Request; stock neighbours pass it
// by.
func TestHops_OursAreToldFromStock(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx, cancel := context.WithTimeout(withToken(context.Background(), tokenTime), callTime)
		defer cancel()
		var trailer metadata.MD
		_, err := networkservice.NewNetworkServiceClient(w.cc).Request(ctx, newRequest(1), grpc.Trailer(&trailer))
		require.NoError(w, err)
		require.NotEmpty(w, trailer.Get("nsmgr-proxy-kind"))
	})
}
