package main_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// gate is a proxy that holds a connection after some bytes of its requests, or slows it down after
// some of its answers, until it is released.
type gate struct {
	listener          net.Listener
	requests, answers int64 // 0 for all
	held, release     chan struct{}
	once              sync.Once
}

// newGate returns a gate before a server. Its numbers are set before it is used.
func newGate(t *testing.T, url string) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: listener, held: make(chan struct{}), release: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			running.Go(func() { g.pass(server, client, g.requests, g.wait) })
			running.Go(func() { g.pass(client, server, g.answers, g.trickle) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		select {
		case <-g.release:
		default:
			close(g.release)
		}
	})
	return g
}

func (g *gate) address() string { return g.listener.Addr().String() }

// pass passes bytes on, and behind the first most of them what between lets through until the gate
// is released. It ends when the connection does.
func (g *gate) pass(to, from net.Conn, most int64, between func(to, from net.Conn) error) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	if most > 0 {
		if _, err := io.CopyN(to, from, most); err != nil {
			return
		}
		g.once.Do(func() { close(g.held) })
		if err := between(to, from); err != nil {
			return
		}
	}
	_, _ = io.Copy(to, from)
}

// wait lets nothing through.
func (g *gate) wait(_, _ net.Conn) error {
	<-g.release
	return nil
}

// trickle lets 10 KiB a second through.
func (g *gate) trickle(to, from net.Conn) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-g.release:
			return nil
		case <-tick.C:
		}
		if _, err := io.CopyN(to, from, 1<<10); err != nil {
			return err
		}
	}
}
