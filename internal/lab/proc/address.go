package proc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
)

// FreeAddress returns an address for a process that is started later, or for one that
// takes another's place: 127.a.b.c:port of its own where the system has such (Linux).
// On 127.0.0.1 the port could be given to anybody's connection in between.
func FreeAddress() (string, error) {
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(255), 1+rand.N(254))
	}
	listener, err := net.Listen("tcp", host+":0")
	if err != nil {
		return "", fmt.Errorf("proc: %w", err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return "", fmt.Errorf("proc: %w", err)
	}
	return addr, nil
}
