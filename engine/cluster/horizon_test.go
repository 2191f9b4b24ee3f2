package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"packhorse/engine/cluster"
)

// views are the views of a server, which does what odb.Epochs does, and knows when each began.
type views struct {
	mu      sync.Mutex // guards the fields below
	epoch   uint64
	expired uint64
	until   time.Time
	open    []view
}

type view struct {
	epoch uint64
	began time.Time
}

func (v *views) Enter(epoch uint64, until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if epoch <= v.epoch {
		panic(fmt.Sprintf("epoch %d begins after %d", epoch, v.epoch))
	}
	v.expired, v.epoch, v.until = v.epoch, epoch, until
}

func (v *views) Advance(epoch uint64, until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.epoch, v.until = max(v.epoch, epoch), until
}

func (v *views) Lapse() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = time.Time{}
}

func (v *views) Oldest() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	oldest := v.epoch
	for _, view := range v.open {
		oldest = min(oldest, view.epoch)
	}
	return oldest
}

// step begins a view, or ends one.
func (v *views) step(random *rand.Rand) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := random.IntN(3); i < len(v.open) {
		v.open = append(v.open[:i], v.open[i+1:]...)
		return
	}
	v.open = append(v.open, view{v.epoch, time.Now()})
}

// end ends all views.
func (v *views) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = nil
}

// betrayed returns a view that began before an instant, and that its server believes others wait
// for.
func (v *views) betrayed(instant time.Time) (view, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, view := range v.open {
		if !view.began.After(instant) && view.epoch > v.expired && time.Now().Before(v.until) {
			return view, true
		}
	}
	return view{}, false
}

// TestHorizon opens and closes views on servers that are cut off at random, leave and join: when an
// instant has passed for one of them, each view of another one began later, or its server knows
// that nobody waits for it. With all well and the views closed, an instant passes.
func TestHorizon(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, func(w *world) { testHorizon(w, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func testHorizon(w *world, random *rand.Rand) {
	t := w.t
	t.Helper()
	var servers []*server
	all := make(map[*server]*views)
	add := func() {
		v := new(views)
		s := w.joinWith(fmt.Sprint("s", len(servers), random.Uint32()), v)
		servers, all[s] = append(servers, s), v
	}
	for range 3 {
		add()
	}
	type waiting struct {
		server  *server
		horizon *cluster.Horizon
		instant time.Time
	}
	var horizons []waiting
	passed := 0
	ask := func() {
		t.Helper()
		for i := 0; i < len(horizons); i++ {
			h := horizons[i]
			done, err := h.horizon.Passed(t.Context())
			if err != nil || !done {
				continue // it is cut off, or must wait
			}
			passed++
			for s, v := range all {
				if view, bad := v.betrayed(h.instant); bad && s != h.server {
					t.Errorf("passed for %v: a view of epoch %d began %v", h.instant, view.epoch, view.began)
				}
			}
			horizons = append(horizons[:i], horizons[i+1:]...)
			i--
		}
	}
	for range 400 {
		i := random.IntN(len(servers))
		s := servers[i]
		switch random.IntN(12) {
		case 0:
			s.link.set(random.IntN(2) == 0, random.IntN(2) == 0)
		case 1, 2:
			s.link.set(false, false)
		case 3:
			if h, err := s.Horizon(t.Context()); err == nil {
				horizons = append(horizons, waiting{s, h, time.Now()})
			}
		case 4:
			if random.IntN(8) == 0 {
				s.link.set(false, false)
				w.leave(s)
				all[s].end()
				servers = append(servers[:i], servers[i+1:]...)
				add()
			}
		default:
			all[s].step(random)
		}
		time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
		ask()
	}
	for _, s := range servers {
		s.link.set(false, false)
		all[s].end()
	}
	time.Sleep(patience + 10*time.Second)
	ask()
	time.Sleep(10 * time.Second)
	ask()
	if len(horizons) > 0 || passed == 0 {
		t.Errorf("%d instants have passed, %d never do", passed, len(horizons))
	}
	w.leave(servers...)
}
