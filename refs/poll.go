package refs

import (
	"context"
	"slices"
	"sync"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

// pollEvery is the interval at which a process looks for what others have written, while somebody
// waits for it.
const pollEvery = 200 * time.Millisecond

// question is what a waiter wants to know of the store.
type question struct {
	name string // questions of one name have one set
	set  kv.ReadSet
	met  func(rows kv.Rows) bool // called with what the set has found
}

// poller asks the questions of all who wait together. It works while there are any.
type poller struct {
	keys kv.Store

	mu    sync.Mutex        // guards the fields below
	asked map[string]*asked // by the name of the question
	work  *pollWork         // nil while nobody waits
}

// asked is a question with those who wait for it.
type asked struct {
	set     kv.ReadSet
	waiters []*pollWaiter
}

type pollWaiter struct {
	met   func(rows kv.Rows) bool
	woken chan struct{}
	awake bool // woken is closed; guarded by mu of the poller
}

// wake wakes a waiter once. The caller holds mu.
func (w *pollWaiter) wake() {
	if !w.awake {
		w.awake = true
		close(w.woken)
	}
}

// pollWork is the goroutine of a poller.
type pollWork struct {
	ended   chan struct{} // closed when it is to end
	running sync.WaitGroup
}

// ask returns a channel that is closed when a question is met, or cannot be asked. The caller
// leaves once; the last one who does waits for the end of the work.
func (p *poller) ask(q question) (woken <-chan struct{}, leave func()) {
	w := &pollWaiter{met: q.met, woken: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.asked[q.name]
	if a == nil {
		if p.asked == nil {
			p.asked = make(map[string]*asked)
		}
		a = &asked{set: q.set}
		p.asked[q.name] = a
	}
	a.waiters = append(a.waiters, w)
	if p.work == nil {
		p.start()
	}
	return w.woken, func() { p.leave(q.name, a, w) }
}

func (p *poller) leave(name string, a *asked, w *pollWaiter) {
	p.mu.Lock()
	a.waiters = slices.DeleteFunc(a.waiters, func(other *pollWaiter) bool { return other == w })
	if len(a.waiters) == 0 && p.asked[name] == a {
		delete(p.asked, name)
	}
	var work *pollWork
	if len(p.asked) == 0 {
		work, p.work = p.work, nil
	}
	p.mu.Unlock()
	if work != nil {
		close(work.ended)
		work.running.Wait()
	}
}

// start begins the work. The caller holds mu.
func (p *poller) start() {
	work := &pollWork{ended: make(chan struct{})}
	p.work = work
	rescue.Go(&work.running, func() error {
		ticker := time.NewTicker(pollEvery)
		defer ticker.Stop()
		for {
			select {
			case <-work.ended:
				return nil
			case <-ticker.C:
				p.look()
			}
		}
	}, func(error) { // a panic
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.work == work {
			p.work = nil
		}
		p.wakeAll()
	})
}

// look asks all questions once, as many as possible in one read.
func (p *poller) look() {
	var set kv.ReadSet
	var together []*asked
	flush := func() {
		if len(together) > 0 {
			// No request owns the read. The deadline of the store bounds it.
			rows, err := p.keys.Read(context.Background(), set)
			p.answer(together, rows, err)
		}
		set, together = kv.ReadSet{}, nil
	}
	for _, a := range p.questions() {
		if len(set.Keys)+len(set.Ranges)+len(a.set.Keys)+len(a.set.Ranges) > kv.ReadCountMax {
			flush()
		}
		set.Keys, set.Ranges = append(set.Keys, a.set.Keys...), append(set.Ranges, a.set.Ranges...)
		together = append(together, a)
	}
	flush()
}

func (p *poller) questions() []*asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*asked, 0, len(p.asked))
	for _, a := range p.asked {
		all = append(all, a)
	}
	return all
}

// answer wakes those whose question is met. After an error it wakes all: each of them meets the
// error itself, or goes on.
func (p *poller) answer(together []*asked, rows kv.Rows, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range together {
		var mine kv.Rows
		if err == nil {
			keys, ranges := len(a.set.Keys), len(a.set.Ranges)
			mine = kv.Rows{Values: rows.Values[:keys], Pages: rows.Pages[:ranges]}
			rows.Values, rows.Pages = rows.Values[keys:], rows.Pages[ranges:]
		}
		a.waiters = slices.DeleteFunc(a.waiters, func(w *pollWaiter) bool {
			done := err != nil || w.met(mine)
			if done {
				w.wake()
			}
			return done
		})
	}
}

// wakeAll wakes everybody, to look and ask again. The caller holds mu.
func (p *poller) wakeAll() {
	for _, a := range p.asked {
		for _, w := range a.waiters {
			w.wake()
		}
		a.waiters = nil
	}
}
