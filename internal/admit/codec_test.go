package admit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

func TestCodec_BringsMessagesOfAnySizeThrough(t *testing.T) {
	c := NewCodec()
	for _, size := range []int{0, 10, 1 << 10, large - 100, large + 100, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			sent := &networkservice.Connection{Id: strings.Repeat("x", size), State: networkservice.State_DOWN}
			// A buffer from gRPC's pool is used again: what was in it must not show.
			for range 3 {
				block, err := c.Marshal(sent)
				require.NoError(t, err)
				received := new(networkservice.Connection)
				require.NoError(t, c.Unmarshal(block, received))
				require.True(t, proto.Equal(sent, received))
				block.Free()
			}
		})
	}
}

func TestCodec_SaysWhatItCannotSend(t *testing.T) {
	c := NewCodec()
	for _, size := range []int{10, 2 << 10, large + 100} {
		_, err := c.Marshal(&networkservice.Connection{Id: "\xff" + strings.Repeat("x", size)})
		require.ErrorContains(t, err, "UTF-8")
	}
	_, err := c.Marshal("not a message")
	require.Error(t, err)
}
