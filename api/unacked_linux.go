package api

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unackedOf returns how many bytes the kernel holds that the peer of a connection has not
// acknowledged (tcp(7), SIOCOUTQ), 0 if it does not tell.
func unackedOf(c net.Conn) (count int) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		count, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		if err != nil {
			count = 0
		}
	})
	if err != nil {
		return 0 // it is closed, and the next write says so
	}
	return count
}
