package cluster_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/engine/cluster"
)

// clockServer is a server whose clock is off by a number of nanoseconds.
type clockServer struct {
	*cluster.Member
	link *link
	off  atomic.Int64
	log  bytes.Buffer // of warnings; to be read while the servers rest
}

func (w *world) joinWithClock(name string) *clockServer {
	w.t.Helper()
	s := &clockServer{link: &link{Store: w.keys}}
	var err error
	s.Member, err = cluster.Join(w.t.Context(), cluster.Config{
		Keys: s.link, URL: "http://" + name,
		Now:    func() time.Time { return time.Now().Add(time.Duration(s.off.Load())) },
		Logger: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// isBelow reports whether got is want, or up to two seconds less: the row of another server is seen
// a second after it was made.
func isBelow(got, want time.Duration) bool { return got <= want && got > want-2*time.Second }

var clockLine = regexp.MustCompile(`level=WARN msg="the clock of another server differs: [^"]*" server=http://(.) ahead=(\S+)\n`)

// TestClocks sets the clock of one of three servers: it logs a line about each other one, and these
// one about it, and all tell the difference, until the clock is right again. Less than a minute is
// not logged.
func TestClocks(t *testing.T) {
	run(t, func(w *world) {
		a, b, c := w.joinWithClock("a"), w.joinWithClock("b"), w.joinWithClock("c")
		for _, step := range []struct {
			off    time.Duration // of the clock of b
			logged bool
		}{
			{0, false},
			{55 * time.Second, false},
			{10 * time.Minute, true},
			{45 * time.Second, false},
			{2 * time.Minute, false}, // it was not right in between
			{0, false},
			{-time.Hour, true},
		} {
			b.off.Store(int64(step.off))
			time.Sleep(time.Minute)
			synctest.Wait()
			for s, others := range map[*clockServer]string{a: "b", b: "ac", c: "b"} {
				if got := s.ClockDifference(); !isBelow(got, step.off.Abs()) {
					t.Errorf("the clock of b is %v off, and a server says %v", step.off, got)
				}
				want := step.off
				if s == b {
					want = -want
				}
				lines := clockLine.FindAllStringSubmatch(s.log.String(), -1)
				told := make(map[string]bool)
				for _, line := range lines {
					ahead, err := time.ParseDuration(line[2])
					if err != nil || !isBelow(ahead.Abs(), want.Abs()) || (ahead < 0) != (want < 0) {
						t.Errorf("the clock of b is %v off: %s", step.off, line[0])
					}
					told[line[1]] = true
				}
				count := 0
				if step.logged {
					count = len(others)
				}
				if len(lines) != count || len(told) != count || bytes.Count(s.log.Bytes(), []byte("\n")) != count {
					t.Errorf("the clock of b is %v off, to be told of %q: %s", step.off, others, &s.log)
				}
				s.log.Reset()
			}
		}
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		for _, s := range []*clockServer{a, c} {
			if got := s.ClockDifference(); got != 0 {
				t.Errorf("b has left, and a server says %v", got)
			}
			if err := s.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestClocksUnseen cuts a server off: rows of others that it sees late, and an own row that is made
// late, tell nothing of clocks.
func TestClocksUnseen(t *testing.T) {
	run(t, func(w *world) {
		a, b := w.joinWithClock("a"), w.joinWithClock("b")
		for _, silence := range []time.Duration{10 * time.Second, 20 * time.Minute} {
			a.link.set(true, false)
			time.Sleep(silence)
			b.link.set(true, false) // its last row is old when a sees it
			time.Sleep(silence)
			a.link.set(false, false)
			time.Sleep(4 * time.Second)
			b.link.set(false, false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			for _, s := range []*clockServer{a, b} {
				if lines := clockLine.FindString(s.log.String()); lines != "" || s.ClockDifference() > 2*time.Second {
					t.Errorf("after %v: %v, %s", silence, s.ClockDifference(), lines)
				}
			}
		}
		for _, s := range []*clockServer{a, b} {
			if err := s.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
