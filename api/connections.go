package api

import (
	"container/list"
	"fmt"
	"io"
	"net/netip"
	"time"

	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/problem"
)

// connections are the open ones. Beyond the limit a stranger, a connection that has not shown a
// good token, is closed for a new one; connections that have shown one stay. Its user guards it.
type connections struct {
	all       map[*conn]struct{}
	strangers list.List            // of *conn, the oldest first
	places    map[netip.Prefix]int // number of connections of each counted address

	refusedAll, refusedPlace, evicted uint64

	toldAt time.Time // when refusals were last logged
}

// Reasons to refuse a connection.
var (
	errConnsMax = &exchange.Error{Status: 503, Code: code.Busy, Message: "too many connections"}
	errPlaceMax = &exchange.Error{Status: 503, Code: code.Busy, Message: "too many connections from this address"}
)

// victimsTried bounds the search for a connection to close among those without a good token: one
// whose request is being answered may not be closed.
const victimsTried = 64

// toldEvery is the interval of log lines about refused connections.
const toldEvery = time.Minute

// place returns the network that counts as one address: for IPv6 the network of one customer.
// Loopback and trusted proxies are not counted, since they act for many clients.
func (s *Server) place(address netip.Addr) (netip.Prefix, bool) {
	if !address.IsValid() || address.IsLoopback() || s.proxies.trusted(address) {
		return netip.Prefix{}, false
	}
	bits := 32
	if address.Is6() {
		bits = 64
	}
	place, err := address.Prefix(bits)
	return place, err == nil
}

// remember adds a connection. It fails when the server is stopping or has too many; the caller must
// close the victim, if any.
func (s *Server) remember(c *conn) (victim *conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, exchange.ErrDraining
	}
	place, counted := s.place(c.peer)
	if counted && s.conns.places[place] >= s.limits.ConnsPerAddress {
		s.conns.refusedPlace++
		s.tellRefusedLocked(errPlaceMax, c)
		return nil, errPlaceMax
	}
	if len(s.conns.all) >= s.limits.ConnsMax {
		if victim = s.evictLocked(); victim == nil {
			s.conns.refusedAll++
			s.tellRefusedLocked(errConnsMax, c)
			return nil, errConnsMax
		}
	}
	s.conns.all[c] = struct{}{}
	c.stranger = s.conns.strangers.PushBack(c)
	if counted {
		s.conns.places[place]++
	}
	return victim, nil
}

// evictLocked removes the oldest stranger that waits for its client from the connections, and
// returns it; nil when there is none.
func (s *Server) evictLocked() *conn {
	tried := 0
	for e := s.conns.strangers.Front(); e != nil && tried < victimsTried; e = e.Next() {
		c := e.Value.(*conn) // nothing else is put there
		if c.stopWaiting() {
			s.forgetLocked(c)
			s.conns.evicted++
			return c
		}
		tried++
	}
	return nil
}

func (s *Server) tellRefusedLocked(why error, c *conn) {
	if now := time.Now(); now.Sub(s.conns.toldAt) >= toldEvery {
		s.conns.toldAt = now
		s.logger.Warn("connections are refused", "error", why, "remote", c.peer.String(), "open", len(s.conns.all),
			"connections_max", s.limits.ConnsMax, "connections_per_address", s.limits.ConnsPerAddress)
	}
}

// acquaint is called when a connection has shown a good token.
func (s *Server) acquaint(c *conn) {
	if c.known.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noStrangerLocked(c)
}

func (s *Server) noStrangerLocked(c *conn) {
	if c.stranger != nil {
		s.conns.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

// forget removes a connection.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(c)
	if s.stopping && len(s.conns.all) == 0 && !s.isEmpty {
		s.isEmpty = true
		close(s.empty)
	}
}

func (s *Server) forgetLocked(c *conn) {
	if _, ok := s.conns.all[c]; !ok {
		return
	}
	delete(s.conns.all, c)
	s.noStrangerLocked(c)
	if place, counted := s.place(c.peer); counted {
		if s.conns.places[place]--; s.conns.places[place] == 0 {
			delete(s.conns.places, place)
		}
	}
}

// refuse closes a connection that has not been served. Without TLS it sends the reason; the client
// may lose that answer if it has already sent data.
func (c *conn) refuse(why error) {
	if c.server.tls == nil {
		body := problem.From(why).JSON()
		_ = c.sock.Conn.SetWriteDeadline(time.Now().Add(refusalWait))
		_, _ = io.WriteString(c.sock.Conn,
			fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Type: %s\r\nContent-Length: %d\r\n"+
				"Retry-After: 1\r\nConnection: close\r\n\r\n%s", problem.ContentType, len(body), body))
	}
	c.abort()
}

// refusalWait bounds the time for writing a refusal; the buffers of a new connection have room for
// it.
const refusalWait = time.Second
