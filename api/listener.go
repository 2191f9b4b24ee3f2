package api

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// listener returns conns. It survives a shortage of descriptors or memory, at which fasthttp would
// stop serving.
type listener struct {
	net.Listener
	server *Server
}

const (
	acceptPauseFirst = 5 * time.Millisecond
	acceptPauseLast  = time.Second
)

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	pause := acceptPauseFirst
	for {
		raw, err := l.Listener.Accept()
		if err == nil {
			c := l.server.newConn(raw)
			victim, err := l.server.remember(c)
			if err != nil {
				c.refuse(err)
				continue
			}
			if victim != nil {
				victim.abort()
			}
			if l.server.tls != nil {
				return tlsConn{c}, nil
			}
			return c, nil
		}
		if !passes(err) {
			return nil, err
		}
		l.server.logger.Error("failed to accept a connection", "error", err, "pause", pause)
		select {
		case <-l.server.serving.Done():
			return nil, net.ErrClosed
		case <-time.After(pause):
		}
		pause = min(2*pause, acceptPauseLast)
	}
}

// passes reports whether a failed accept may be tried again.
func passes(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
