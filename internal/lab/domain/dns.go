package domain

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// recordTTL is short so that nothing outlives a change of records.
const recordTTL = 1

// DNS answers for the domains of the lab, over UDP on loopback.
type DNS struct {
	server *dns.Server
	conn   net.PacketConn
	wg     sync.WaitGroup

	mu      sync.Mutex
	records map[string]*net.TCPAddr // by lower-case name with a final dot
}

// StartDNS starts an empty server. Close stops it.
func StartDNS() (*DNS, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	d := &DNS{conn: conn, records: make(map[string]*net.TCPAddr)}
	started := make(chan struct{})
	d.server = &dns.Server{
		PacketConn:        conn,
		Handler:           dns.HandlerFunc(d.answer),
		NotifyStartedFunc: func() { close(started) },
	}
	failed := make(chan error, 1)
	d.wg.Go(func() { failed <- d.server.ActivateAndServe() })
	select {
	case <-started:
		return d, nil
	case err := <-failed:
		_ = conn.Close()
		return nil, fmt.Errorf("dns: %w", err)
	}
}

// Close stops the server and waits for it.
func (d *DNS) Close() {
	_ = d.server.Shutdown()
	d.wg.Wait()
}

// Publish says that service (such as "registry") of a domain is at hostPort,
// with the names that the registry-proxy looks up.
func (d *DNS) Publish(service, domain, hostPort string) error {
	addr, err := net.ResolveTCPAddr("tcp", hostPort)
	if err != nil {
		return fmt.Errorf("dns: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records[strings.ToLower(service+".nsm-system."+domain+".")] = addr
	return nil
}

// Resolver asks this server and nobody else.
func (d *DNS) Resolver() *net.Resolver {
	at := d.conn.LocalAddr().String()
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", at)
		},
	}
}

func (d *DNS) answer(w dns.ResponseWriter, query *dns.Msg) {
	reply := new(dns.Msg)
	reply.SetReply(query)
	for _, question := range query.Question {
		d.mu.Lock()
		addr, ok := d.records[strings.ToLower(question.Name)]
		d.mu.Unlock()
		if !ok {
			reply.Rcode = dns.RcodeNameError
			continue
		}
		header := " " + strconv.Itoa(recordTTL) + " IN "
		var text string
		switch question.Qtype {
		case dns.TypeSRV:
			text = question.Name + header + "SRV 10 100 " + strconv.Itoa(addr.Port) + " " + question.Name
		case dns.TypeA:
			text = question.Name + header + "A " + addr.IP.String()
		default:
			continue // the name exists, this type does not
		}
		if rr, err := dns.NewRR(text); err == nil {
			reply.Answer = append(reply.Answer, rr)
		}
	}
	_ = w.WriteMsg(reply)
}
