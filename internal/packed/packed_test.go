package packed_test

import (
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

func sample() *networkservice.Connection {
	return &networkservice.Connection{
		Id:        "id",
		Mechanism: &networkservice.Mechanism{Type: "VXLAN", Parameters: map[string]string{"a": "1"}},
		Path:      &networkservice.Path{PathSegments: []*networkservice.PathSegment{{Id: "id", Token: "token"}}},
	}
}

func TestUnpackedIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	conn := sample()
	kept := packed.Pack(conn)
	conn.Path.PathSegments[0].Token = "changed after it was packed"
	first := kept.Unpack()
	require.True(t, proto.Equal(sample(), first))
	first.Mechanism.Parameters["a"] = "changed after it was unpacked"
	require.True(t, proto.Equal(sample(), kept.Unpack()))
}

func TestNoneAndEmptyAreTwoThings(t *testing.T) {
	t.Parallel()
	var none packed.Message[*networkservice.Connection]
	require.False(t, none.Set())
	require.Nil(t, none.Unpack())
	empty := packed.Pack(new(networkservice.Connection))
	require.True(t, empty.Set())
	require.NotNil(t, empty.Unpack())
}

func TestWhatNobodyCouldHaveSentIsKeptAllTheSame(t *testing.T) {
	t.Parallel()
	conn := sample()
	conn.Id = "\xff"
	kept := packed.Pack(conn)
	conn.Path.PathSegments[0].Token = "changed"
	for range 2 {
		got := kept.Unpack()
		require.Equal(t, "\xff", got.GetId())
		require.Equal(t, "token", got.GetPath().GetPathSegments()[0].GetToken())
		got.Path = nil
	}
	into := new(networkservice.Connection)
	kept.Into(into)
	require.Equal(t, "\xff", into.GetId())
	require.False(t, kept.Equal(packed.Pack(kept.Unpack())), "that cannot be told")
	require.Positive(t, kept.Size())
}

// BenchmarkPack is what keeping a connection of eight segments costs, and using it
// again: to be held against the clone that it stands in for.
func BenchmarkPack(b *testing.B) {
	conn := lbtest.Established(1)
	kept := packed.Pack(conn)
	for name, do := range map[string]func(){
		"pack":   func() { _ = packed.Pack(conn) },
		"unpack": func() { _ = kept.Unpack() },
		"clone":  func() { _ = conn.Clone() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
		})
	}
	b.Logf("%d bytes packed", kept.Size())
}

func TestIntoLeavesNothingOfWhatWasThere(t *testing.T) {
	t.Parallel()
	kept := packed.Pack(sample())
	changed := sample()
	changed.Labels = map[string]string{"a": "b"}
	changed.Path.PathSegments = append(changed.Path.PathSegments, &networkservice.PathSegment{Id: "more"})
	kept.Into(changed)
	require.True(t, proto.Equal(sample(), changed))
}

func TestEqual(t *testing.T) {
	t.Parallel()
	conn := sample()
	conn.Labels = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
	kept := packed.Pack(conn)
	for range 20 { // maps have no order
		require.True(t, kept.Equal(packed.Pack(conn)))
	}
	conn.Path.PathSegments[0].Token = "another"
	require.False(t, kept.Equal(packed.Pack(conn)))
	require.False(t, packed.Message[*networkservice.Connection]{}.Equal(packed.Pack(new(networkservice.Connection))), "none and empty")
	require.Positive(t, kept.Size())
}
