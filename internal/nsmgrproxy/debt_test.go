package nsmgrproxy_test

import (
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

func TestARequestInterruptsWhicheverRerequestIsInFlight(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		time.Sleep(time.Minute)
		end := outages["at its start"](w)
		conn, err := w.request(again(conn)) // answered from memory, owed
		require.NoError(w, err)
		w.far.Set(lbtest.Faults{RequestDelay: time.Minute, MonitorError: status.Error(codes.NotFound, "restarting")})
		end()
		time.Sleep(8 * time.Second) // the owed one hangs at the far side; the relay's waits for its turn
		w.far.Set(lbtest.Faults{})  // well again
		began := time.Now()
		_, err = w.request(again(conn))
		t.Logf("after %s: %v", time.Since(began), err)
		require.NoError(w, err)
	})
}

func TestDownOfTheOldHopAfterAMove(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		time.Sleep(time.Minute)
		other := lbtest.NewPeer("far")
		other.Set(lbtest.Faults{RequestDelay: 2 * time.Second, MonitorSilent: true})
		defer w.serve(otherAddr, other.Register)()
		w.remote.set(endpointName, "tcp://"+otherAddr)
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "no such endpoint here")})
		time.AfterFunc(1500*time.Millisecond, func() { w.far.Say(setState(networkservice.State_DOWN)) })
		_, err := w.request(again(conn))
		require.NoError(w, err)
		s.up()
		other.Set(lbtest.Faults{})
		time.Sleep(4 * time.Second)
		s.nothing("a late event of the older leg never touches the newer one")
	})
}

func TestOwedRefreshDoesNotArgueWithADown(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		time.Sleep(time.Minute)
		end := outages["at its start"](w)
		_, err := w.request(again(conn)) // answered from memory, owed
		require.NoError(w, err)
		s.up()
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "not yet")})
		end()
		time.Sleep(6 * time.Second)
		s.nothing("resumed")
		w.far.Say(setState(networkservice.State_DOWN))
		s.down()
		asked := len(w.far.Requests())
		w.far.Set(lbtest.Faults{})
		time.Sleep(30 * time.Second)
		require.Len(w, w.far.Requests(), asked, "nothing is requested in place after the far side's DOWN")
	})
}

func TestRefusedDebtIsNotHammered(t *testing.T) {
	inBubble(t, func(w *world) {
		_, conn := w.watched(1)
		time.Sleep(time.Minute)
		end := outages["at its start"](w)
		_, err := w.request(again(conn))
		require.NoError(w, err)
		asked := len(w.far.Requests())
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.PermissionDenied, "no")})
		end()
		time.Sleep(time.Minute)
		require.LessOrEqual(w, len(w.far.Requests())-asked, 8, "backed off")
	})
}
