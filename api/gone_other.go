//go:build !linux && unix

package api

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerGone reports whether the peer of a connection has closed it or its sending half. It consumes
// nothing and does not wait; unread data hides the end.
func peerGone(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = err == nil && n == 0 || err == unix.ECONNRESET
	})
	return gone || err != nil
}
