package api

import (
	"bytes"
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/api/exchange"
	"packhorse/odb/fair"
	"packhorse/odb/rescue"
)

// phase is the state of a connection: the event that it waits for.
type phase uint32

const (
	handshake  phase = iota // the end of a TLS handshake
	idle                    // the first byte of a request
	header                  // the end of its header
	headerDone              // its handler: fasthttp reads the first byte of a body before it calls the handler
	inBody                  // its body
	ending                  // nothing: it will be closed
)

// conn is a connection as fasthttp sees it. Deadlines roll with the phases of a request; fasthttp's
// own stay off, because they would cover a whole body or answer (docs/invariants.md 26).
type conn struct {
	net.Conn // TLS over sock, or sock itself
	sock     *socket
	server   *Server
	peer     netip.Addr
	known    atomic.Bool   // has shown a good token
	stranger *list.Element // guarded by the server's mu; nil when it is known, or gone
	phase    atomic.Uint32
	current  atomic.Pointer[transfer] // the request that is being served

	// Used by the serving goroutine.
	served   bool          // a request, since the connection has buffers
	parking  bool          // instead of closing
	idleBy   time.Time     // when the next request must begin
	headerBy time.Time     // when the header, or the handshake, must be there
	tail     [3]byte       // the last bytes of an unfinished header
	bare     bool          // a header line ends without a carriage return
	silence  time.Duration // that the body may keep
	pace     pace          // of the body
	received int64         // bytes since the body began
	bound    int64         // for received: limit for the framing of a body; 0 for none
	ended    bool          // the client has sent its last byte
	stalled  bool          // the client let a deadline pass
	turn     *fair.Account // in which the request is served; nil for none
	counted  bool          // the request has been counted for the rate of its organization, before "100 Continue"

	cut    atomic.Bool // the answer is incomplete, and must not look complete
	closed atomic.Bool
}

func (s *Server) newConn(raw net.Conn) *conn {
	sock := newSocket(raw, &s.limits)
	c := &conn{Conn: sock, sock: sock, server: s, peer: addressOf(raw.RemoteAddr())}
	c.pace.rate = s.limits.FloorRate
	c.idleBy = time.Now().Add(c.idleWait())
	c.phase.Store(uint32(idle))
	if s.tls != nil {
		c.Conn = tls.Server(sock, s.tls)
		c.phase.Store(uint32(handshake))
		c.headerBy = time.Now().Add(s.limits.HeaderWait)
	}
	return c
}

// tlsConn is a conn over TLS: fasthttp looks for the two methods.
type tlsConn struct{ *conn }

// Handshake completes the TLS handshake.
func (c tlsConn) Handshake() error {
	if err := c.sock.readBy(c.headerBy); err != nil {
		return err
	}
	if err := c.Conn.(*tls.Conn).Handshake(); err != nil { // made so in newConn
		c.cut.Store(true)
		return err
	}
	c.phase.CompareAndSwap(uint32(handshake), uint32(idle))
	return nil
}

// ConnectionState returns the result of the handshake.
func (c tlsConn) ConnectionState() tls.ConnectionState {
	return c.Conn.(*tls.Conn).ConnectionState() // made so in newConn
}

// connOf returns the conn behind a connection of fasthttp.
func connOf(c net.Conn) *conn {
	if secure, ok := c.(tlsConn); ok {
		return secure.conn
	}
	return c.(*conn) // the listener returns no other type
}

// Read waits for the client as long as the phase allows.
func (c *conn) Read(p []byte) (int, error) {
	start := time.Now()
	now := phase(c.phase.Load())
	var deadline time.Time
	switch now {
	case idle:
		c.endTurn()
		deadline = c.idleBy
		if park := start.Add(c.server.limits.ParkAfter); c.served && park.Before(deadline) {
			deadline = park
		}
	case header:
		if c.bare {
			return 0, errBareLine // it could wait long for the empty line
		}
		deadline = c.headerBy
	case headerDone:
		deadline = start.Add(c.server.limits.BodySilence)
	case inBody:
		if c.bound > 0 && c.received > c.bound {
			return 0, exchange.ErrBadBody
		}
		deadline = start.Add(c.silence)
	default:
		return 0, io.EOF
	}
	if err := c.sock.readBy(deadline); err != nil {
		return 0, err
	}
	n, err := c.read(now, p)
	if n > 0 && err != nil {
		err = nil // TLS returns the end together with the last bytes; it will again
	}
	if n == 0 {
		c.ended = errors.Is(err, io.EOF)
		c.stalled = errors.Is(err, os.ErrDeadlineExceeded)
		if c.stalled && now == idle && deadline.Before(c.idleBy) {
			c.parking = true
			return 0, io.EOF
		}
		return 0, err
	}
	return n, c.took(now, p[:n], time.Since(start))
}

// read reads; during the wait for a body others may have the request's turn at the processors.
func (c *conn) read(now phase, p []byte) (n int, err error) {
	x := c.current.Load()
	if now != inBody || x == nil {
		return c.Conn.Read(p)
	}
	err = fair.Rest(x.ctx, func() (err error) {
		n, err = c.Conn.Read(p)
		return err
	})
	return n, err
}

// endTurn ends the turn of a request whose answer has been written.
func (c *conn) endTurn() {
	if c.turn != nil {
		c.turn.End()
		c.turn = nil
	}
}

// took moves to the next phase after a read.
func (c *conn) took(now phase, p []byte, waited time.Duration) error {
	switch now {
	case idle:
		if !c.phase.CompareAndSwap(uint32(idle), uint32(header)) {
			return io.EOF // Shutdown was first
		}
		c.headerBy = time.Now().Add(c.server.limits.HeaderWait)
		return c.lookForEnd(p)
	case header:
		return c.lookForEnd(p)
	case inBody:
		c.received += int64(len(p))
		if !c.pace.add(waited, len(p)) {
			c.stalled = true
			return os.ErrDeadlineExceeded
		}
	default: // headerDone waits for the handler
	}
	return nil
}

// lookForEnd looks for the empty line after a header.
func (c *conn) lookForEnd(p []byte) error {
	const end = "\r\n\r\n"
	seam := append(append(make([]byte, 0, 6), c.tail[:]...), p[:min(len(p), 3)]...)
	if bytes.Contains(seam, []byte(end)) || bytes.Contains(p, []byte(end)) {
		if !c.phase.CompareAndSwap(uint32(header), uint32(headerDone)) {
			return io.EOF // it was closed for a new one: the request does not run
		}
		return nil
	}
	before := c.tail[2]
	for _, b := range p {
		c.bare = c.bare || b == '\n' && before != '\r'
		before = b
	}
	if len(p) >= 3 {
		copy(c.tail[:], p[len(p)-3:])
	} else {
		copy(c.tail[:], append(append([]byte(nil), c.tail[len(p):]...), p...))
	}
	return nil
}

// beginBody is called when the header has been parsed.
func (c *conn) beginBody(patient bool) {
	c.phase.Store(uint32(inBody))
	c.received, c.bound, c.stalled = 0, 0, false
	if patient {
		c.silence = c.server.limits.BodyPause
		c.pace.reset(c.server.limits.BodyPause)
	} else {
		c.flows()
	}
}

// flows ends the allowance for a pause in a body.
func (c *conn) flows() {
	c.silence = c.server.limits.BodySilence
	c.pace.reset(c.server.limits.FloorWindow)
}

// beginIdle is called when an answer has been written.
func (c *conn) beginIdle() {
	c.tail, c.bare = [3]byte{}, false
	c.served = true
	c.idleBy = time.Now().Add(c.idleWait())
	c.phase.CompareAndSwap(uint32(inBody), uint32(idle))
}

// idleWait is the time within which the next request must begin.
func (c *conn) idleWait() time.Duration {
	if c.known.Load() {
		return c.server.limits.IdleWait
	}
	return min(c.server.limits.IdleWait, c.server.limits.StrangerWait)
}

// stopIdle closes a connection that serves no request, and reports whether it did.
func (c *conn) stopIdle() bool {
	if !c.phase.CompareAndSwap(uint32(idle), uint32(ending)) &&
		!c.phase.CompareAndSwap(uint32(handshake), uint32(ending)) {
		return false
	}
	c.abort()
	return true
}

// stopWaiting is stopIdle for a connection that may also be in the midst of a header, or in a final
// read: no request of it is being served. The caller closes it.
func (c *conn) stopWaiting() bool {
	for _, waiting := range []phase{idle, handshake, header} {
		if c.phase.CompareAndSwap(uint32(waiting), uint32(ending)) {
			return true
		}
	}
	return phase(c.phase.Load()) == ending
}

// abort closes the transport in any state.
func (c *conn) abort() {
	c.cut.Store(true)
	_ = c.sock.Close()
}

// gone reports whether the client has left.
func (c *conn) gone() bool { return peerGone(c.sock.Conn) }

// Close is called by fasthttp when it is done with the connection, or when Read has made it give up
// an idle connection, for which it would keep 40 KiB of buffers (docs/invariants.md 24).
func (c *conn) Close() error {
	c.endTurn()
	if c.parking && phase(c.phase.Load()) == idle {
		c.parking, c.served = false, false
		rescue.Beside(func() error { // Shutdown counts connections
			err := rescue.Do(c.park)
			if err != nil {
				c.server.logger.Error("panic", "error", err)
				c.abort()
			}
			return err
		})
		return nil
	}
	return c.end()
}

// park waits for the next request without any buffer, and then has it served.
func (c *conn) park() error {
	if err := c.sock.await(c.idleBy); err != nil {
		_ = c.end()
		return nil
	}
	if c.server.tls != nil {
		_ = c.server.fast.ServeConn(tlsConn{c}) // it closes the connection itself
		return nil
	}
	_ = c.server.fast.ServeConn(c)
	return nil
}

// end closes the connection so that the client can read its last answer: a client that still sends
// would see a reset instead. So end closes the sending half first and discards input for a while;
// none of it is ever executed (docs/invariants.md 22).
func (c *conn) end() error {
	if c.closed.Swap(true) {
		return nil
	}
	defer c.server.forget(c)
	c.sock.closing.Store(true)
	before := phase(c.phase.Swap(uint32(ending)))
	if before != idle && before != ending && !c.ended && !c.cut.Load() {
		c.linger()
	}
	if c.cut.Load() {
		return c.sock.Close() // without the TLS message that would make an answer look complete
	}
	return c.Conn.Close()
}

func (c *conn) linger() {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		_ = secure.CloseWrite()
	}
	if c.sock.closeWrite() != nil {
		return
	}
	if c.sock.readBy(time.Now().Add(c.server.limits.LingerWait)) != nil {
		return
	}
	buffer := discardBuffers.Get().(*[]byte) // the pool makes nothing else
	defer discardBuffers.Put(buffer)
	for left := c.server.limits.LingerBytes; left > 0; {
		n, err := c.sock.Conn.Read(*buffer)
		left -= int64(n)
		if err != nil {
			return
		}
	}
}

var discardBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}
