package cluster_test

import (
	"strings"
	"testing"
	"time"

	"packhorse/odb/odbtest"
)

// TestPanics makes each call of the store panic in turn below the beats of a server: while it
// removes one that was killed and takes its duty, and while it comes back after the others have
// removed it. The panic is logged, and the server is a member with its duties all the same.
func TestPanics(t *testing.T) {
	t.Parallel()
	for n := int64(1); n <= 40; n += 1 + n/4 {
		bubble(t, func(w *world) {
			b := w.join("b", "x")
			time.Sleep(time.Second)
			a := w.join("a", "x", "y")
			id := a.ID()
			b.link.set(true, false)
			time.Sleep(14 * time.Second)
			a.trap.Set(n)
			time.Sleep(time.Minute)
			w.trapped(a, n)
			if got := w.owners(); got != "x:a y:a" || a.ID() != id || a.Silent() || w.departed["a"] != 1 {
				w.t.Errorf("after a panic in call %d: %q, a was renewed %v ago", n, got, a.Age())
			}
			b.link.set(false, false)
			time.Sleep(time.Minute)

			a.link.set(true, false)
			time.Sleep(30 * time.Second)
			a.trap.Set(n)
			a.link.set(false, false)
			time.Sleep(time.Minute)
			w.trapped(a, n)
			if got := w.owners(); got != "x:b y:a" || a.ID() == id || a.Silent() || b.Silent() {
				w.t.Errorf("after a panic in call %d of the return: %q, a was renewed %v ago", n, got, a.Age())
			}
			w.leave(a, b)
		})
	}
}

// trapped checks that the panic of a server has happened and is logged.
func (w *world) trapped(s *server, n int64) {
	w.t.Helper()
	if !s.trap.Take() || !strings.Contains(s.log.Take(), "panic: "+odbtest.Trapped) {
		w.t.Errorf("a panic in call %d is not logged", n)
	}
}
