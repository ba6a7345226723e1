package hostile_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"
)

// Frames of HTTP/2 (RFC 9113), made by hand: no client lets itself be used for
// what is done with them here.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameReset        = 0x3
	frameSettings     = 0x4
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagEndHeaders = 0x4

	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	// maxFrame is the largest payload that a peer accepts unasked.
	maxFrame = 16 << 10
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := make([]byte, 9, 9+len(payload))
	binary.BigEndian.PutUint32(b, uint32(len(payload))<<8|uint32(kind))
	b[4] = flags
	binary.BigEndian.PutUint32(b[5:], stream)
	return append(b, payload...)
}

// block encodes headers, all of them literally (RFC 7541, 6.2.2).
func block(fields ...string) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		b = append(b, 0)
		for _, s := range fields[i : i+2] {
			b = append(length(b, len(s)), s...)
		}
	}
	return b
}

// length encodes an integer with a prefix of 7 bits (RFC 7541, 5.1).
func length(b []byte, n int) []byte {
	if n < 127 {
		return append(b, byte(n))
	}
	return binary.AppendUvarint(append(b, 127), uint64(n-127))
}

func callHeaders(method string, more ...string) []byte {
	return block(append([]string{
		":method", "POST", ":scheme", "https", ":path", method, ":authority", "proxy",
		"content-type", "application/grpc", "te", "trailers",
	}, more...)...)
}

// message is the length-prefixed form of a message in DATA frames.
func message(wire []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(wire))), wire...)
}

const (
	// ended is what comes of a connection that the server ends without a word.
	ended = "end of the connection"
	// nothing is what comes of what is not answered.
	nothing = "nothing"
)

// rawConn is a connection of a client that keeps to nothing.
type rawConn struct{ net.Conn }

// dialTLS connects and does the TLS handshake.
func (n *neighbours) dialTLS(t *testing.T, hostPort string) rawConn {
	config := tlsconfig.MTLSClientConfig(n.source, n.source, tlsconfig.AuthorizeAny())
	config.NextProtos = []string{"h2"}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: startTime}, "tcp", hostPort, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return rawConn{conn}
}

// dialHTTP does the handshake of HTTP/2 as well.
func (n *neighbours) dialHTTP(t *testing.T, hostPort string) rawConn {
	c, err := n.tryHTTP(hostPort)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// tryHTTP does the same where it may be refused.
func (n *neighbours) tryHTTP(hostPort string) (rawConn, error) {
	config := tlsconfig.MTLSClientConfig(n.source, n.source, tlsconfig.AuthorizeAny())
	config.NextProtos = []string{"h2"}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: startTime}, "tcp", hostPort, config)
	if err != nil {
		return rawConn{}, err
	}
	c := rawConn{conn}
	if _, err = c.Write(append([]byte(preface), frame(frameSettings, 0, 0, nil)...)); err == nil {
		_, _, err = c.next()
	}
	if err != nil {
		_ = c.Close()
		return rawConn{}, err
	}
	return c, nil
}

// next reads one frame, which has to come within the time for an answer.
func (c rawConn) next() (kind byte, payload []byte, err error) {
	if err := c.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, nil, err
	}
	header := make([]byte, 9)
	if _, err := io.ReadFull(c, header); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, binary.BigEndian.Uint32(header)>>8)
	_, err = io.ReadFull(c, payload)
	return header[3], payload, err
}

// verdict says how the server answered what it cannot take: by ending the stream,
// the connection, or not at all.
func (c rawConn) verdict() string {
	for {
		kind, payload, err := c.next()
		switch {
		case err != nil:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nothing
			}
			return ended
		case kind == frameGoAway && len(payload) >= 8:
			return fmt.Sprintf("GOAWAY %d", binary.BigEndian.Uint32(payload[4:]))
		case kind == frameReset && len(payload) == 4:
			return fmt.Sprintf("RST_STREAM %d", binary.BigEndian.Uint32(payload))
		case kind == frameHeaders:
			return "a status"
		}
	}
}

// untilPong reads until the answer to a ping, or says what came instead.
func (c rawConn) untilPong() string {
	for {
		kind, payload, err := c.next()
		switch {
		case err != nil:
			return ended
		case kind == frameGoAway && len(payload) >= 8:
			return fmt.Sprintf("GOAWAY %d", binary.BigEndian.Uint32(payload[4:]))
		case kind == framePing:
			return "the connection goes on"
		}
	}
}

// messages reads until that many DATA frames have come. Each is a message where
// messages are short.
func (c rawConn) messages(count int) error {
	for count > 0 {
		kind, payload, err := c.next()
		switch {
		case err != nil:
			return fmt.Errorf("%d messages are missing: %w", count, err)
		case kind == frameGoAway || kind == frameReset:
			return fmt.Errorf("%d messages are missing: frame %d %x", count, kind, payload)
		case kind == frameData && len(payload) > 0:
			count--
		}
	}
	return nil
}

// write writes until the server does not take more, and says how much it took.
func (c rawConn) write(data []byte) (taken int) {
	_ = c.SetWriteDeadline(time.Now().Add(answerTime))
	taken, _ = c.Write(data)
	return taken
}
