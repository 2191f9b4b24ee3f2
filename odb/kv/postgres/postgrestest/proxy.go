package postgrestest

import (
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"
)

// Cut says where a connection of a [Proxy] ends.
type Cut int

// The cuts of one exchange between a store and the database.
const (
	// CutRequest loses the next request: it does not reach the database.
	CutRequest Cut = iota + 1
	// CutAnswer loses the next answer: the database has done what was asked.
	CutAnswer
)

// Proxy passes connections on to a server. Its methods may be called concurrently.
type Proxy struct {
	target   string // a socket
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex // guards everything below
	changed *sync.Cond // of frozen and closed
	pairs   map[*pair]struct{}
	delay   time.Duration
	cut     Cut
	chance  *rand.Rand
	frozen  bool
	closed  bool
	down    bool
	cuts    int
}

// pair is a connection and its continuation.
type pair struct {
	client, server net.Conn
	left           int // chunks until it is cut; negative for never
	dead           bool
}

// NewProxy returns a proxy in front of a cluster. It ends with the test.
func NewProxy(tb testing.TB, c *Cluster) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{target: c.Socket(), listener: listener, pairs: make(map[*pair]struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// SharedProxy returns a proxy in front of the cluster of this binary. The test is skipped where
// there is none of our own.
func SharedProxy(tb testing.TB) *Proxy {
	tb.Helper()
	if os.Getenv(environment) != "" {
		tb.Skip("a proxy stands before a cluster of the test's own")
	}
	return NewProxy(tb, sharedCluster(tb))
}

// Address returns host and port of the proxy.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// URL returns the address of a database of the cluster that leads through the proxy.
func (p *Proxy) URL(database string) string {
	return "postgres://postgres@" + p.Address() + "/" + database + "?sslmode=disable"
}

// Of returns the URL of a database of the cluster as one that leads through the proxy.
func (p *Proxy) Of(tb testing.TB, database string) string {
	tb.Helper()
	parsed, err := url.Parse(database)
	if err != nil {
		tb.Fatal(err)
	}
	return p.URL(parsed.Path[1:])
}

// Delay keeps each piece of data for that long.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// CutNext cuts the connection of the next exchange.
func (p *Proxy) CutNext(cut Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

// CutRandomly gives each connection from now on a number of pieces of data after which it is cut,
// drawn from a seed.
func (p *Proxy) CutRandomly(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chance = rand.New(rand.NewPCG(seed, 0))
}

// CutAll cuts all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		p.kill(c)
	}
}

// Freeze holds everything that comes: connections stay open, are accepted, and nothing is said.
// Unfreeze lets it go on.
func (p *Proxy) Freeze() { p.set(func() { p.frozen = true }) }

// Unfreeze ends Freeze.
func (p *Proxy) Unfreeze() { p.set(func() { p.frozen = false }) }

// Down cuts all connections and those that come, until Up.
func (p *Proxy) Down() {
	p.set(func() { p.down = true })
	p.CutAll()
}

// Up ends Down.
func (p *Proxy) Up() { p.set(func() { p.down = false }) }

// Cuts returns how many connections were cut by CutNext and CutRandomly.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

// kill closes both ends. The caller holds mu.
func (p *Proxy) kill(c *pair) {
	c.dead = true
	_ = c.client.Close()
	_ = c.server.Close()
	delete(p.pairs, c)
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.set(func() { p.closed = true })
	p.CutAll()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		c := &pair{client: client, server: server, left: -1}
		if p.chance != nil {
			c.left = 10 + p.chance.IntN(300)
		}
		p.pairs[c] = struct{}{}
		if p.down || p.closed {
			p.kill(c)
		}
		p.mu.Unlock()
		p.running.Go(func() { p.pass(c, client, server, true) })
		p.running.Go(func() { p.pass(c, server, client, false) })
	}
}

// pass passes on what one side says.
func (p *Proxy) pass(c *pair, from, to net.Conn, request bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.mayPass(c, request) {
			return
		}
		if n > 0 {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			if err != io.EOF { //nolint:errorlint // as io.Reader returns it
				_ = from.Close()
			}
			p.mu.Lock()
			p.kill(c)
			p.mu.Unlock()
			return
		}
	}
}

// mayPass waits as long as a piece of data has to, and cuts its connection instead if it is time.
func (p *Proxy) mayPass(c *pair, request bool) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen && !p.closed && !c.dead {
		p.changed.Wait()
	}
	if c.dead || p.closed {
		return false
	}
	if c.left > 0 {
		c.left--
	}
	if c.left == 0 || p.cut == CutRequest && request || p.cut == CutAnswer && !request {
		p.cut = 0
		p.cuts++
		p.kill(c)
		return false
	}
	return true
}
