package fair_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// asked is a request in a test.
type asked struct {
	tenant fair.Tenant
	amount int64
	cancel context.CancelFunc
	done   chan struct{} // closed when it was answered

	release func() // once admitted
	err     error
}

// ask acquires in the background.
func ask(t *testing.T, q *fair.Queue, tenant fair.Tenant, amount int64) *asked {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &asked{tenant: tenant, amount: amount, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.release, a.err = q.Acquire(ctx, tenant, 0, amount)
	}()
	synctest.Wait()
	return a
}

func (a *asked) answered() bool {
	synctest.Wait()
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (a *asked) admitted() bool { return a.answered() && a.err == nil }

func (a *asked) refused() bool { return a.answered() && errors.Is(a.err, fair.ErrBusy) }

func tenant(org, repo, token string) fair.Tenant {
	return fair.Tenant{Org: org, Repo: repo, Token: token}
}

// A queue filled by one organization refuses only that one: neither others that find room in their
// own share, nor others that have to wait.
func TestCrowdRefusesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fair.NewQueue(fair.Options{Capacity: 8, Waiting: 16, Wait: time.Hour})
		var crowd []*asked
		for i := range 1400 {
			crowd = append(crowd, ask(t, q, tenant("crowd", fmt.Sprint(i%2), fmt.Sprint(i)), 1))
		}
		if _, waiting := q.State(); waiting != 8 {
			t.Errorf("%d wait, want the 8 that one organization may have in a queue of 16", waiting)
		}
		var others []*asked
		for i := range 8 {
			others = append(others, ask(t, q, tenant(fmt.Sprint("other", i), "r", ""), 1))
		}
		for i, a := range others {
			if i < 4 && !a.admitted() || i >= 4 && a.answered() {
				t.Errorf("request %d of the others: admitted %t, answered %t", i, a.admitted(), a.answered())
			}
		}
		for i := range 10 { // the queue is full; the newest waiter of the crowd is refused
			if a := ask(t, q, tenant(fmt.Sprint("late", i), "r", ""), 1); a.answered() && i < 7 {
				t.Errorf("late organization %d was refused by a queue that a crowd has filled", i)
			}
		}
		served := 0
		for _, a := range crowd {
			if a.admitted() {
				served++
			}
		}
		if served != 4 {
			t.Errorf("%d of the crowd were served, want its share of 4", served)
		}
		if !crowd[0].admitted() || crowd[4].refused() || !crowd[1399].refused() {
			t.Error("not the newest of the crowd were refused")
		}
	})
}

// A released amount goes to the organization with the least, in it to the repository with the
// least, and in that to the token.
func TestLeastFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fair.NewQueue(fair.Options{Capacity: 4, Share: 4, Waiting: 100, Wait: time.Hour})
		var held []*asked
		for range 4 {
			held = append(held, ask(t, q, tenant("a", "x", "1"), 1))
		}
		var crowd []*asked
		for range 5 {
			crowd = append(crowd, ask(t, q, tenant("a", "x", "1"), 1))
		}
		token, repo, org := ask(t, q, tenant("a", "x", "2"), 1), ask(t, q, tenant("a", "y", "1"), 1), ask(t, q,
			tenant("b", "x", "1"), 1)
		held[0].release()
		if !org.admitted() || repo.answered() {
			t.Fatal("the other organization does not come first")
		}
		held[1].release()
		if !repo.admitted() || token.answered() {
			t.Fatal("the other repository does not come second")
		}
		held[2].release()
		if !token.admitted() || crowd[0].answered() {
			t.Fatal("the other token does not come third")
		}
		held[3].release()
		if !crowd[0].admitted() || crowd[1].answered() {
			t.Fatal("the crowd is not served in order")
		}
	})
}

// A repository leaves a quarter of its organization's share to the others, where the queue says so.
func TestRepoShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fair.NewQueue(fair.Options{Capacity: 16, RepoShare: 3, Waiting: 100, Wait: time.Hour})
		if q.Max(0) != 6 || q.Max(4) != 3 || q.Max(1) != 1 {
			t.Errorf("one request may take %d, %d, %d", q.Max(0), q.Max(4), q.Max(1))
		}
		if a := ask(t, q, tenant("a", "x", "1"), 100); !a.admitted() {
			t.Error("more than the share does not count as the share")
		}
		if a := ask(t, q, tenant("a", "x", "2"), 1); a.answered() {
			t.Error("a repository got more than its share")
		}
		if a := ask(t, q, tenant("a", "y", "1"), 2); !a.admitted() {
			t.Error("another repository did not get the rest")
		}
	})
}

// Random requests against a plain model: never more than the capacity, than a share, or than a
// bound of the queue; no request waits while it fits; and when all is given back, every request
// that stayed has been served.
func TestQueueAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			for _, leavesRoom := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) { playQueue(t, rand.New(rand.NewPCG(seed, 1)), leavesRoom) })
			}
		})
	}
}

func playQueue(t *testing.T, random *rand.Rand, leavesRoom bool) {
	t.Helper()
	const capacity, waitingMax = 40, 24
	q := fair.NewQueue(fair.Options{
		Capacity: capacity, RepoShare: 3, LeavesRoom: leavesRoom, Waiting: waitingMax, Wait: time.Hour,
	})
	var held, waiting []*asked
	for range 600 {
		switch n := random.IntN(10); {
		case n < 6:
			org := fmt.Sprint(random.IntN(3))
			who := tenant(org, org+fmt.Sprint(random.IntN(3)), fmt.Sprint(random.IntN(3)))
			waiting = append(waiting, ask(t, q, who, 1+random.Int64N(9)))
		case n < 9 && len(held) > 0:
			i := random.IntN(len(held))
			held[i].release()
			held[i].release()
			held = append(held[:i], held[i+1:]...)
		case len(waiting) > 0:
			waiting[random.IntN(len(waiting))].cancel()
		}
		var stay []*asked
		for _, a := range waiting {
			switch {
			case !a.answered():
				stay = append(stay, a)
			case a.err == nil:
				held = append(held, a)
			}
		}
		waiting = stay
		checkQueue(t, q, held, waiting, leavesRoom)
	}
	for len(held) > 0 { // all that stayed are served finally
		held[0].release()
		held = held[1:]
		var stay []*asked
		for _, a := range waiting {
			if a.admitted() {
				held = append(held, a)
			} else {
				stay = append(stay, a)
			}
		}
		waiting = stay
	}
	if used, left := q.State(); used != 0 || left != 0 || len(waiting) != 0 {
		t.Errorf("at the end %d are used, %d wait (%d known)", used, left, len(waiting))
	}
}

func checkQueue(t *testing.T, q *fair.Queue, held, waiting []*asked, leavesRoom bool) {
	t.Helper()
	const capacity, share, repoShare, waitingMax = 40, 20, 15, 24
	var all int64
	orgs, repos, crowd := map[string]int64{}, map[string]int64{}, map[string]int{}
	for _, a := range held {
		all += a.amount
		orgs[a.tenant.Org] += a.amount
		repos[a.tenant.Repo] += a.amount
	}
	for _, a := range waiting {
		crowd[a.tenant.Org]++
		crowd[a.tenant.Repo]++
	}
	if used, n := q.State(); used != all || n != len(waiting) || all > capacity || n > waitingMax {
		t.Fatalf("%d used of %d, %d wait of %d: want %d and %d", used, capacity, n, waitingMax, all, len(waiting))
	}
	for _, a := range waiting {
		org, repo := a.tenant.Org, a.tenant.Repo
		if orgs[org] > share || repos[repo] > repoShare || crowd[org] > waitingMax/2 || crowd[repo] > waitingMax/4 {
			t.Fatalf("%v: %d and %d held, %d and %d wait", a.tenant, orgs[org], repos[repo], crowd[org], crowd[repo])
		}
	}
	// With room for the largest request of all, every waiter is held back by a share, or leaves room.
	if all+9 <= capacity {
		for _, a := range waiting {
			if leavesRoom && orgs[a.tenant.Org] > 0 {
				continue
			}
			if orgs[a.tenant.Org]+9 <= share && repos[a.tenant.Repo]+9 <= repoShare {
				t.Fatalf("%v waits for %d though %d of %d are used, %d by its organization", a.tenant, a.amount, all, capacity,
					orgs[a.tenant.Org])
			}
		}
	}
}

func BenchmarkQueue(b *testing.B) {
	q := fair.NewQueue(fair.Options{Capacity: 1 << 30, Waiting: 1024, Wait: time.Second})
	who := tenant("acme", "tools", "ci")
	b.ReportAllocs()
	for b.Loop() {
		release, err := q.Acquire(b.Context(), who, 0, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}
