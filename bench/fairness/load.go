package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"packhorse/bench/process"
)

// sample is the result of some clients in a window.
type sample struct {
	count   int // of operations that the server did
	refused int
	took    time.Duration
	cpu     time.Duration   // of the server, for all of its clients
	times   []time.Duration // of the operations
}

// join adds what was measured in another window.
func (s *sample) join(other sample) {
	s.count += other.count
	s.refused += other.refused
	s.took += other.took
	s.cpu += other.cpu
	s.times = append(s.times, other.times...)
}

func (s *sample) goodput() float64 { return float64(s.count) / s.took.Seconds() }
func (s *sample) cores() float64   { return s.cpu.Seconds() / s.took.Seconds() }

func (s *sample) p99() time.Duration {
	if len(s.times) == 0 {
		return 0
	}
	slices.Sort(s.times)
	return s.times[len(s.times)*99/100].Round(10 * time.Microsecond)
}

// tally sums up the results of several clients.
type tally struct {
	mu sync.Mutex // guards sample
	sample
}

func (t *tally) add(took time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok {
		t.refused++
		return
	}
	t.count++
	t.times = append(t.times, took)
}

// watch runs work for a time and returns the sums.
func (w *world) watch(window time.Duration, t *tally, work func() error) (sample, error) {
	before, err := process.CPU(w.server.PID())
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := work(); err != nil {
		return sample{}, err
	}
	after, err := process.CPU(w.server.PID())
	t.took, t.cpu = max(time.Since(began), window), after-before
	return t.sample, err
}

// closed measures clients each of which asks again as soon as it has its answer.
func (w *world) closed(ctx context.Context, o order, window time.Duration) (sample, error) {
	var t tally
	return w.watch(window, &t, func() error {
		ctx, cancel := context.WithTimeout(ctx, window)
		defer cancel()
		return o.run(ctx, t.add)
	})
}

// atRate returns a measurement of requests that are sent at a rate, whether earlier ones are
// answered or not. Each is timed from when it was due.
func (w *world) atRate(rate float64) func(context.Context, order, time.Duration) (sample, error) {
	return func(ctx context.Context, o order, window time.Duration) (sample, error) {
		return w.open(ctx, o, rate, window)
	}
}

func (w *world) open(ctx context.Context, o order, rate float64, window time.Duration) (sample, error) {
	var t tally
	return w.watch(window, &t, func() error {
		due := make(chan time.Time, int(rate*window.Seconds())+1)
		var all sync.WaitGroup
		errs := make(chan error, 4*o.Clients)
		for i := range 4 * o.Clients {
			all.Go(func() {
				c := client{address: o.Address}
				defer c.close()
				for n := i; ; n += 4 * o.Clients {
					at, more := <-due
					if !more {
						return
					}
					ok, err := c.do(ctx, o.request(n))
					if err != nil {
						errs <- err
						return
					}
					t.add(time.Since(at), ok)
				}
			})
		}
		pause := time.Duration(float64(time.Second) / rate)
		began := time.Now()
		for next := began; next.Sub(began) < window; next = next.Add(pause) {
			time.Sleep(time.Until(next))
			due <- next
		}
		close(due)
		all.Wait()
		close(errs)
		return <-errs
	})
}

// run keeps o.Clients clients busy until ctx ends. It calls done for every request that was
// answered by then.
func (o *order) run(ctx context.Context, done func(took time.Duration, ok bool)) error {
	var all sync.WaitGroup
	errs := make(chan error, o.Clients)
	for i := range o.Clients {
		all.Go(func() {
			c := client{address: o.Address}
			defer c.close()
			for n := i; ; n += o.Clients + 1 { // each client comes by every kind of request
				began := time.Now()
				ok, err := c.do(ctx, o.request(n))
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					errs <- err
					return
				}
				done(time.Since(began), ok)
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// attack runs an order in a process of its own until the world is closed.
func (w *world) attack(ctx context.Context, o order) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	process := exec.CommandContext(ctx, self, "-attack")
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		return err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := behind(process.Start); err != nil {
		return err
	}
	w.attacker = process
	if err := json.NewEncoder(in).Encode(o); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

// niceness is that of the server and of the aggressor, which makes both weigh a tenth of the
// victim's clients.
const niceness = 10

// behind starts a process that this one goes before: the victim's clients do not wait for a
// processor, as if they had a machine of their own. Linux keeps a niceness for each thread, and a
// process begins with that of the thread that starts it.
func behind(start func() error) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness)
		if err == nil {
			err = start()
		}
		started <- err
	}()
	return <-started
}

// attackLead is for how long an aggressor has been at work before it says so.
const attackLead = time.Second

// attack carries out the order that stands on in until that ends.
func attack(ctx context.Context, in io.Reader, out io.Writer) error {
	var o order
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&o); err != nil {
		return err
	}
	o.prepare()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	})
	all.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(attackLead):
			_, _ = fmt.Fprintln(out, "at work")
		}
	})
	err := o.run(ctx, func(time.Duration, bool) {})
	cancel()
	if err == nil {
		all.Wait()
	}
	return err
}
