// Package loopback finds addresses of the loopback for servers that tests start and that choose no
// port themselves.
package loopback

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// tried is how many ports FreeAddress has tried.
var tried atomic.Int32

// FreeAddress returns an address of the loopback that nothing listens on, as HOST:PORT. Its port is
// none that the system gives to others, nor one that this process was given before.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	for {
		port := 20000 + os.Getpid()%10000 + int(tried.Add(1))
		if port >= 32000 {
			break
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if listener, err := net.Listen("tcp", address); err == nil {
			if err := listener.Close(); err != nil {
				tb.Fatal(err)
			}
			return address
		}
	}
	tb.Fatal("no port is free")
	return ""
}
