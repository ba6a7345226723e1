package nsmgrproxy_test

import (
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// outages are ways in which a refresh may fall into an outage. Each returns what
// ends it.
var outages = map[string]func(w *world) (end func()){
	"at its start": func(w *world) func() {
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		return func() { w.wire.Refuse(farAddr, false) }
	},
	"in mid-call": func(w *world) func() {
		w.far.Set(lbtest.Faults{RequestDelay: 2 * time.Second})
		time.AfterFunc(time.Second, func() {
			w.wire.Refuse(farAddr, true)
			w.wire.Cut(farAddr)
		})
		return func() { w.wire.Refuse(farAddr, false) }
	},
	"into a black hole": func(w *world) func() {
		w.wire.Blackhole(farAddr, true)
		return func() { w.wire.Blackhole(farAddr, false) }
	},
	"into a black hole in mid-call": func(w *world) func() {
		w.far.Set(lbtest.Faults{RequestDelay: 2 * time.Second})
		time.AfterFunc(time.Second, func() { w.wire.Blackhole(farAddr, true) })
		return func() { w.wire.Blackhole(farAddr, false) }
	},
}

func TestContract_RefreshInAnOutageIsAnsweredAndDeliveredLater(t *testing.T) {
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, conn := w.watched(1)
				defer s.end()
				time.Sleep(2 * time.Minute)
				end := outage(w)
				began := time.Now()
				refreshed, err := w.request(again(conn))
				require.NoError(w, err)
				require.Less(w, time.Since(began), 10*time.Second, "with time left for those before us")
				told := s.up()
				require.Equal(w, ids(conn), ids(refreshed))
				segments, before := refreshed.GetPath().GetPathSegments(), conn.GetPath().GetPathSegments()
				require.Greater(w, segments[2].GetExpires().AsTime(), before[2].GetExpires().AsTime(), "the caller's token is renewed")
				require.Equal(w, before[3].GetToken(), segments[3].GetToken(), "ours is the one that the far side has")
				require.Equal(w, before[4].GetExpires().AsTime(), segments[4].GetExpires().AsTime(), "nothing behind us is")
				require.Equal(w, before[4].GetExpires().AsTime(), told.GetPath().GetPathSegments()[4].GetExpires().AsTime())

				asked := len(w.far.Requests())
				end()
				w.far.Set(lbtest.Faults{})
				time.Sleep(15 * time.Second)
				require.Greater(w, len(w.far.Requests()), asked, "delivered")
				last := w.far.Requests()[len(w.far.Requests())-1].GetConnection()
				require.Equal(w, ids(conn), ids(last))
				require.Greater(w, last.GetPath().GetPathSegments()[2].GetExpires().AsTime(), before[2].GetExpires().AsTime(), "with the caller's new token")
				s.nothing("the delivery is no event")
				require.Empty(w, w.far.Closes())

				w.refreshing(s, refreshed, 2)
				w.far.Say(setState(networkservice.State_DOWN))
				s.down()
			})
		})
	}
}

func TestContract_RefreshAfterTheGraceIsAnError(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		outages["at its start"](w)
		time.Sleep(nsmgrproxy.DefaultMonitorGrace + time.Second)
		s.down()
		_, err := w.request(again(conn))
		require.Equal(w, codes.Unavailable, status.Code(err), "%v", err)
		s.nothing("a failed refresh is no event")
	})
}

func TestContract_AnsweredRefreshDoesNotPutOffTheDown(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		outages["at its start"](w)
		time.Sleep(20 * time.Second)
		_, err := w.request(again(conn))
		require.NoError(w, err)
		s.up()
		time.Sleep(5 * time.Second)
		s.nothing("inside the grace")
		time.Sleep(5*time.Second + time.Millisecond)
		s.down()
		time.Sleep(time.Minute)
		s.nothing("once")
	})
}

func TestContract_WhatIsNewIsNotAnsweredFromMemory(t *testing.T) {
	for name, change := range map[string]func(r *networkservice.NetworkServiceRequest){
		"another context": func(r *networkservice.NetworkServiceRequest) { r.Connection.Context.MTU = 1400 },
		"another mechanism": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Mechanism = &networkservice.Mechanism{Type: "X"}
		},
		"other labels": func(r *networkservice.NetworkServiceRequest) { r.Connection.Labels = map[string]string{"a": "b"} },
		"other preferences": func(r *networkservice.NetworkServiceRequest) {
			r.MechanismPreferences = []*networkservice.Mechanism{{Type: "X"}}
		},
		"a new path": func(r *networkservice.NetworkServiceRequest) { r.Connection.Path.PathSegments[4].Id = "x" },
		"another selection": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.State = networkservice.State_RESELECT_REQUESTED
		},
		"a shorter path too": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Path.PathSegments = r.Connection.Path.PathSegments[:5]
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				conn := w.establish(1)
				outages["at its start"](w)
				r := again(conn)
				change(r)
				_, err := w.request(r)
				require.Equal(w, codes.Unavailable, status.Code(err), "%v", err)
			})
		})
	}
}

// A caller refreshes with what it was answered last, whatever a re-request in place
// has brought since.
func TestContract_RefreshAfterAReRequestIsAnsweredFromMemoryToo(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.far.Say(func(conn *networkservice.Connection) { conn.Context.MTU = 1400 })
		s.up()
		w.far.Forget()
		w.wire.Cut(farAddr)
		time.Sleep(20 * time.Second)
		require.Len(w, w.far.Requests(), 2, "requested in place")
		s.nothing("as before")
		outages["at its start"](w)
		refreshed, err := w.request(again(conn))
		require.NoError(w, err)
		require.EqualValues(w, 1400, refreshed.GetContext().GetMTU())
		s.up()
	})
}

func TestContract_NearTheFarExpiriesARefreshIsNotAnsweredFromMemory(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		time.Sleep(tokenTime - callTime - 20*time.Second)
		outages["at its start"](w)
		_, err := w.request(again(conn))
		require.Equal(w, codes.Unavailable, status.Code(err), "%v", err)
	})
}

// The delivery comes in what is left of the grace, or not at all: that is how long the
// far side's tokens have to last.
func TestContract_NearTheEndOfTheGraceTheFarExpiriesMayBeNearer(t *testing.T) {
	const needed = 60 * time.Second // a far side's own margin, and as much again as a Request may be late
	for lost, margin := range map[time.Duration]time.Duration{
		25 * time.Second: nsmgrproxy.DefaultMonitorGrace - 20*time.Second,
		0:                nsmgrproxy.DefaultMonitorGrace + 5*time.Second,
	} {
		for _, answered := range []bool{true, false} {
			inBubble(t, func(w *world) {
				s, conn := w.watched(1)
				defer s.end()
				left := needed + margin
				if !answered {
					left -= 6 * time.Second
				}
				time.Sleep(tokenTime - left - lost)
				outages["at its start"](w)
				time.Sleep(lost)
				_, err := w.request(again(conn))
				require.Equal(w, answered, err == nil, "lost %s, %s left: %v", lost, left, err)
				if answered {
					s.up()
				}
			})
		}
	}
}

func TestContract_RefreshThatWasAskedForInAnOutageIsAnsweredToo(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.far.Say(setState(networkservice.State_REFRESH_REQUESTED))
		s.one(networkservice.ConnectionEventType_UPDATE, networkservice.State_REFRESH_REQUESTED)
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		_, err := w.request(again(conn))
		require.NoError(w, err)
		s.up()
		w.wire.Refuse(farAddr, false)
		time.Sleep(10 * time.Second)
		require.Len(w, w.far.Requests(), 2, "delivered")
		s.nothing("and not told again")
	})
}

// A forwarder sends its preferences with each refresh, with the addresses that the
// proxy translates.
func TestContract_RefreshWithItsPreferencesInAnOutageIsAnsweredToo(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		refresh := again(conn)
		refresh.MechanismPreferences = newRequest(1).GetMechanismPreferences()
		require.NotEmpty(w, refresh.GetMechanismPreferences()[0].GetParameters())
		_, err := w.request(refresh)
		require.NoError(w, err)
		s.up()
		w.wire.Refuse(farAddr, false)
		time.Sleep(10 * time.Second)
		require.Len(w, w.far.Requests(), 2, "delivered")
		delivered := w.far.Requests()[1].GetMechanismPreferences()[0].GetParameters()
		require.Equal(w, w.far.Requests()[0].GetMechanismPreferences()[0].GetParameters(), delivered, "translated once, not twice")
	})
}
