package mapip

import (
	"context"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/common"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

// tunnel is what a leg remembers of its addresses, so that a refresh is
// translated like the first Request, whatever the map says by then: those of the
// last good Request, and no others.
type tunnel struct {
	exchanged exchanged
}

// exchanged is what addresses were translated to. There is one, most often; nil is before
// anything was translated.
type exchanged []exchange

type exchange struct{ internal, external string }

func (e exchanged) of(internal string) (external string, ok bool) {
	for _, one := range e {
		if one.internal == internal {
			return one.external, true
		}
	}
	return "", false
}

// translation is one Request's use of the map.
type translation struct {
	addresses *Map
	last      exchanged // of the last good Request
	used      exchanged
}

func (t *translation) of(addr string) string {
	if external, ok := t.used.of(addr); ok {
		return external
	}
	external, ok := t.last.of(addr)
	if !ok {
		external = t.addresses.External(addr)
	}
	t.used = append(t.used, exchange{internal: addr, external: external})
	return external
}

type server struct{ addresses *Map }

// NewServer is the element that exchanges tunnel addresses, in both roles.
//
// On the client's side the source address goes out as the external one, with
// the internal one beside it as orig_src_ip; the answer gets it back. The
// presence of orig_src_ip is how the proxy of the other domain, stock ones
// included, tells that it stands on the endpoint's side: so it is set even
// where nothing is mapped. On the endpoint's side the destination of a request
// is cleared, since it is this domain's to choose, and the answer's goes out as
// the external one with the internal one beside it.
func NewServer(addresses *Map) networkservice.NetworkServiceServer {
	return &server{addresses: addresses}
}

func (s *server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	mechanisms := request.GetMechanismPreferences()
	if m := request.GetConnection().GetMechanism(); m != nil {
		mechanisms = append(mechanisms[:len(mechanisms):len(mechanisms)], m)
	}
	memory := leg.State[tunnel](ctx)
	translate := &translation{addresses: s.addresses, last: memory.exchanged, used: make(exchanged, 0, 1)}
	if memory.exchanged == nil {
		translate.last = adopted(request.GetConnection())
	}
	clientSide := false
	for _, m := range mechanisms {
		params := m.GetParameters()
		src := params[common.SrcIP]
		if src == "" {
			continue
		}
		if clientSide = params[common.SrcOriginalIP] == ""; clientSide {
			params[common.SrcIP] = translate.of(src)
			params[common.SrcOriginalIP] = src
		} else {
			params[common.DstIP] = ""
			params[common.DstOriginalIP] = ""
		}
	}

	conn, err := next.Server(ctx).Request(ctx, request)
	if err != nil {
		return nil, err
	}

	params := conn.GetMechanism().GetParameters()
	if clientSide {
		if original := params[common.SrcOriginalIP]; original != "" {
			params[common.SrcIP] = original
			params[common.SrcOriginalIP] = ""
		}
	} else if dst := params[common.DstIP]; dst != "" {
		params[common.DstIP] = translate.of(dst)
		params[common.DstOriginalIP] = dst
	}
	memory.exchanged = translate.used
	return conn, nil
}

// adopted is what an earlier process had answered on the endpoint's side, as the
// refresh of its leg brings it back. (On the client's side nothing tells it: the
// answer has had its own address put back.)
func adopted(conn *networkservice.Connection) exchanged {
	params := conn.GetMechanism().GetParameters()
	original, external := params[common.DstOriginalIP], params[common.DstIP]
	if conn.GetNextPathSegment() == nil || original == "" || external == "" {
		return nil
	}
	return exchanged{{internal: original, external: external}}
}

func (s *server) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	return next.Server(ctx).Close(ctx, conn)
}
