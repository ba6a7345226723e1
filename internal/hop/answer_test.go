package hop

import (
	"fmt"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A far side that says of those before us that they are good for centuries would have
// each Close of theirs taken for an old one, and the leg never end.
func TestAnswer_SaysNothingOfThoseBeforeUs(t *testing.T) {
	t.Parallel()
	segment := func(id string, expires int64) *networkservice.PathSegment {
		return &networkservice.PathSegment{Name: id, Id: id, Token: "token.of." + id, Expires: timestamppb.New(time.Unix(expires, 0))}
	}
	sent := &networkservice.Path{Index: 1, PathSegments: []*networkservice.PathSegment{segment("before", 1000), segment("us", 2000), segment("behind", 3000)}}

	answer := &networkservice.Connection{Id: "behind", Path: &networkservice.Path{Index: 2, PathSegments: []*networkservice.PathSegment{
		segment("before", 1e9), segment("us", 1500), segment("elsewhere", 4000), segment("further", 4000),
	}}}
	require.NoError(t, checkAnswer(answer, sent))
	require.Equal(t, "us", answer.GetId())
	require.EqualValues(t, 1, answer.GetPath().GetIndex())
	for i, want := range []*networkservice.PathSegment{segment("before", 1000), segment("us", 1500), segment("elsewhere", 4000), segment("further", 4000)} {
		require.True(t, proto.Equal(want, answer.GetPath().GetPathSegments()[i]), "place %d", i)
	}

	long := &networkservice.Path{PathSegments: []*networkservice.PathSegment{segment("before", 1000), segment("us", 2000)}}
	for i := range 200 {
		long.PathSegments = append(long.PathSegments, segment(fmt.Sprintf("behind-%d", i), 3000))
	}
	for name, path := range map[string]*networkservice.Path{
		"no path":              nil,
		"too short":            {PathSegments: []*networkservice.PathSegment{segment("before", 1000)}},
		"another before us":    {PathSegments: []*networkservice.PathSegment{segment("thief", 1000), segment("us", 2000)}},
		"another in our place": {PathSegments: []*networkservice.PathSegment{segment("before", 1000), segment("thief", 2000)}},
		"too long":             long,
		"no name behind us":    {PathSegments: []*networkservice.PathSegment{segment("before", 1000), segment("us", 2000), {Id: "behind"}}},
		"nil in our place":     {PathSegments: []*networkservice.PathSegment{segment("before", 1000), nil}},
	} {
		require.Equal(t, codes.Internal, status.Code(checkAnswer(&networkservice.Connection{Path: path}, sent)), name)
	}
}
