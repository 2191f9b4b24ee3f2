package postgrestest

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"
)

// Action is what a [Proxy] does with the exchange of a request and its answer.
type Action int

// The actions.
const (
	// CutRequest cuts the connection before the request reaches the database.
	CutRequest Action = iota + 1
	// CutAnswer cuts the connection when the answer comes: the database has done what was asked.
	CutAnswer
	// CutAnswerAndDown is CutAnswer, and [Proxy.Down] at the same instant.
	CutAnswerAndDown
	// DelayRequest cuts the connection of the client at once, and passes the request on to the
	// database when the event is released.
	DelayRequest
	// HoldAnswer passes the answer on when the event is released.
	HoldAnswer
)

// Event is an action that waits for its request.
type Event struct {
	marker []byte
	action Action
	// Reached is closed when the request has come, or the answer for an action on answers.
	Reached chan struct{}
	// Answered is closed when the database has answered a delayed request.
	Answered chan struct{}
	released chan struct{}
}

// Release lets go what the event holds.
func (e *Event) Release() { close(e.released) }

// Proxy passes connections on to a server. Its methods may be called concurrently.
type Proxy struct {
	target   string // a socket
	listener net.Listener
	running  sync.WaitGroup
	ended    chan struct{}

	mu      sync.Mutex // guards everything below
	pairs   map[*pair]struct{}
	delay   time.Duration
	event   *Event
	chance  *rand.Rand    // nil without random cuts
	thawed  chan struct{} // nil unless frozen
	down    bool
	cuts    int
	trips   int
	stopped bool
}

// pair is a connection and its continuation.
type pair struct {
	client, server net.Conn
	left           int    // pieces of data until it is cut; negative for never
	asked          bool   // the last piece was a request
	event          *Event // whose request has passed
	dead           chan struct{}
}

// NewProxy returns a proxy in front of a cluster. It ends with the test.
func NewProxy(tb testing.TB, c *Cluster) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{target: c.Socket(), listener: listener, ended: make(chan struct{}), pairs: make(map[*pair]struct{})}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Proxied returns the URL of a new database that leads through a new proxy in front of the cluster
// of this binary. The test is skipped where there is no cluster of its own.
func Proxied(tb testing.TB) (*Proxy, string) {
	tb.Helper()
	if os.Getenv(environment) != "" {
		tb.Skip("a proxy stands before clusters of the tests only")
	}
	database := Database(tb)
	p := NewProxy(tb, sharedCluster(tb))
	parsed, err := url.Parse(database)
	if err != nil {
		tb.Fatal(err)
	}
	return p, p.URL(parsed.Path[1:])
}

// URL returns the address of a database of the cluster that leads through the proxy.
func (p *Proxy) URL(database string) string {
	return "postgres://postgres@" + p.listener.Addr().String() + "/" + database + "?sslmode=disable"
}

// Delay keeps each piece of data for that long.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// At prepares an action on the next request whose bytes have marker in them, such as a key.
func (p *Proxy) At(marker string, action Action) *Event {
	e := &Event{
		marker: []byte(marker), action: action,
		Reached: make(chan struct{}), Answered: make(chan struct{}), released: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.event = e
	return e
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
	p.cutAll()
}

// cutAll cuts all connections. The caller holds mu.
func (p *Proxy) cutAll() {
	for c := range p.pairs {
		p.kill(c)
	}
}

// Freeze keeps everything that comes: connections stay open, new ones are accepted, and nobody says
// anything, until Thaw.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thawed = make(chan struct{})
}

// Thaw ends Freeze.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.thawed)
	p.thawed = nil
}

// Down cuts all connections and those that come, until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	p.cutAll()
}

// Up ends Down.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// Cuts returns how many connections were cut at random.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Trips returns how many times a connection turned from answers to a request: the round trips.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// kill closes both ends. The caller holds mu.
func (p *Proxy) kill(c *pair) {
	if _, open := p.pairs[c]; open {
		delete(p.pairs, c)
		close(c.dead)
		_ = c.client.Close()
		_ = c.server.Close()
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.stopped = true
	close(p.ended)
	p.cutAll()
	p.mu.Unlock()
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
		c := &pair{client: client, server: server, left: -1, dead: make(chan struct{})}
		if p.chance != nil {
			c.left = 10 + p.chance.IntN(300)
		}
		p.pairs[c] = struct{}{}
		if p.down || p.stopped {
			p.kill(c)
		}
		p.mu.Unlock()
		p.running.Go(func() { p.pass(c, client, server, true) })
		p.running.Go(func() { p.pass(c, server, client, false) })
	}
}

// pass passes on what one side says, until the connection ends.
func (p *Proxy) pass(c *pair, from, to net.Conn, isRequest bool) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kill(c)
	}()
	buffer := make([]byte, 256<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.admit(c, buffer[:n], isRequest) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if e := p.delayed(c); isRequest && e != nil {
			select { // the client has gone, and the database is at work
			case <-e.Answered:
			case <-p.ended:
			}
			return
		}
	}
}

// delayed returns the event of a connection whose request was delayed.
func (p *Proxy) delayed(c *pair) *Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.event != nil && c.event.action == DelayRequest {
		return c.event
	}
	return nil
}

// admit waits as long as a piece of data has to, and does what is prepared for it. It returns false
// when the connection ends instead.
func (p *Proxy) admit(c *pair, data []byte, isRequest bool) bool {
	p.mu.Lock()
	delay, thawed := p.delay, p.thawed
	p.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	if thawed != nil && !p.wait(c, thawed) {
		return false
	}
	p.mu.Lock()
	if isRequest && !c.asked {
		p.trips++
	}
	c.asked = isRequest
	if c.left > 0 {
		c.left--
	}
	if c.left == 0 {
		p.cuts++
		p.mu.Unlock()
		return false
	}
	e := c.event
	if isRequest && e == nil && p.event != nil && bytes.Contains(data, p.event.marker) {
		e, p.event = p.event, nil
		c.event = e
	} else if isRequest {
		e = nil
	}
	p.mu.Unlock()
	return e == nil || p.act(c, e, isRequest)
}

// wait waits for a channel. It returns false when the connection ends before.
func (p *Proxy) wait(c *pair, event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-c.dead:
		return false
	}
}

// act does the part of an action that concerns a request, or an answer to it.
func (p *Proxy) act(c *pair, e *Event, isRequest bool) bool {
	switch {
	case isRequest && e.action == CutRequest:
		close(e.Reached)
		return false
	case isRequest && e.action == DelayRequest:
		close(e.Reached)
		_ = c.client.Close()
		return p.wait(c, e.released)
	case isRequest:
		return true
	case e.action == DelayRequest:
		close(e.Answered)
		return false
	case e.action == CutAnswerAndDown:
		p.Down()
		close(e.Reached)
		return false
	case e.action == CutAnswer:
		close(e.Reached)
		return false
	case e.action == HoldAnswer:
		close(e.Reached)
		p.mu.Lock()
		c.event = nil
		p.mu.Unlock()
		return p.wait(c, e.released)
	}
	return true
}
