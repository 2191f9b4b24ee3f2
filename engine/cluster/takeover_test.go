package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTakeover kills the server that does most duties, at any time between two beats: the others do
// all of them within 18 seconds.
func TestTakeover(t *testing.T) {
	for count := 2; count <= 4; count++ {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(count, " servers ", seed), func(t *testing.T) {
				run(t, func(w *world) { testTakeover(w, count, rand.New(rand.NewPCG(seed, uint64(count)))) })
			})
		}
	}
}

func testTakeover(w *world, count int, random *rand.Rand) {
	duties := []string{"x", "y", "z"}
	rest := func(most time.Duration) { time.Sleep(time.Duration(random.Int64N(int64(most)))) }
	var servers []*server
	for i := range count {
		servers = append(servers, w.join(fmt.Sprint("s", i), duties...))
		rest(3 * time.Second)
	}
	time.Sleep(time.Minute)
	rest(3 * time.Second)
	victim := 0
	for i, s := range servers {
		if len(s.Held()) > len(servers[victim].Held()) {
			victim = i
		}
	}
	name := fmt.Sprint("s", victim)
	servers[victim].link.set(true, false)
	killed := time.Now()
	others := func() bool {
		synctest.Wait()
		got := w.owners()
		return strings.Count(got, ":") == len(duties) && !strings.Contains(got, name)
	}
	for !others() {
		time.Sleep(50 * time.Millisecond)
		if time.Since(killed) > time.Minute {
			w.t.Fatal("never")
		}
	}
	if took := time.Since(killed); took > 18*time.Second+50*time.Millisecond {
		w.t.Errorf("taken over after %v", took)
	}
	servers[victim].link.set(false, false)
	w.leave(servers...)
}
