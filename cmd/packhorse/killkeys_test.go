package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestKillKeyedWrites kills the server at a random point of 500 keyed writes of all kinds and sends
// the same keys again: each write has happened exactly once, and its answer has the same bytes as
// before the kill. PACKHORSE_KILL_ROUNDS sets the number of kills.
func TestKillKeyedWrites(t *testing.T) {
	t.Parallel()
	eachStore(t, testKillKeyedWrites)
}

// testKillKeyedWrites is the test over stores, with a server that is killed.
func testKillKeyedWrites(t *testing.T, stores *sharedStores) {
	t.Helper()
	rounds, writes := killRounds(t, 2), 500
	if testing.Short() || stores != nil {
		writes = 100
	}
	k := newKilling(t, stores, 2, uint64(rounds))
	k.start()
	s := newKeyedStorm(k, writes)
	for range rounds {
		s.round(k.kill, k.start)
	}
	k.look()
	k.stop()
}

// keyedStorm is rounds of keyed writes.
type keyedStorm struct {
	k      *killing
	seed   string // a commit
	writes int    // of a round
	rounds int    // that have passed
	last   int    // position in the journal
}

// newKeyedStorm makes the repository.
func newKeyedStorm(k *killing, writes int) *keyedStorm {
	k.t.Helper()
	k.api(http.MethodPost, "/api/v1/repos", "", nil).mustBe(k.t, http.StatusCreated)
	seed := k.commit("main", "seed", "seed")
	seed.mustBe(k.t, http.StatusCreated)
	var seeded struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		}
	}
	if err := json.Unmarshal(seed.body, &seeded); err != nil {
		k.t.Fatal(err)
	}
	return &keyedStorm{k: k, seed: seeded.Commit.SHA, writes: writes, last: 2} // the creation and the seed
}

// round sends writes, in the midst of which something breaks down.
func (s *keyedStorm) round(breakDown, mend func()) {
	s.k.t.Helper()
	r := &keyedRound{k: s.k, name: fmt.Sprint("r", s.rounds), seed: s.seed, told: make([]reply, s.writes)}
	r.run(breakDown, mend)
	s.last = r.check(s.last)
	s.rounds++
}

// keyedWorkers is how many clients share the writes of a round; each sends its own one after the
// other.
const keyedWorkers = 4

// keyedRound is the writes between two kills, by number.
type keyedRound struct {
	k    *killing
	name string
	seed string
	told []reply // the first answer to each write; each worker has its own elements
}

// run sends writes until breakDown is called, mends what that broke, and sends them all twice more.
func (r *keyedRound) run(breakDown, mend func()) {
	r.k.t.Helper()
	kill := 1 + r.k.random.Int64N(int64(len(r.told))-1)
	reached := make(chan struct{})
	var acknowledged atomic.Int64
	done := r.each(func(number int) bool {
		r.told[number] = r.send(number)
		if r.told[number].err != nil {
			return false
		}
		if acknowledged.Add(1) == kill {
			close(reached)
		}
		return true
	})
	<-reached
	breakDown()
	done.Wait()
	r.k.t.Logf("%s: killed at %d of %d, %d acknowledged", r.name, kill, len(r.told), acknowledged.Load())
	mend()
	for range 2 {
		r.each(r.again).Wait()
	}
}

// each lets the workers go through their numbers until do says no.
func (r *keyedRound) each(do func(number int) bool) *sync.WaitGroup {
	var workers sync.WaitGroup
	for worker := range keyedWorkers {
		workers.Go(func() {
			for number := worker; number < len(r.told); number += keyedWorkers {
				if !do(number) {
					return
				}
			}
		})
	}
	return &workers
}

// again sends a write once more and compares.
func (r *keyedRound) again(number int) bool {
	answer, first := r.send(number), &r.told[number]
	for begun := time.Now(); errors.Is(answer.err, errAway) && time.Since(begun) < time.Minute; answer = r.send(number) {
		time.Sleep(10 * time.Millisecond) // the storage comes back
	}
	if answer.err != nil {
		r.k.t.Errorf("%s: write %d was sent again: %v", r.name, number, answer.err)
		return false
	}
	if first.status == 0 {
		*first = answer
	}
	if answer.status != first.status || string(answer.body) != string(first.body) || answer.sequence != first.sequence {
		r.k.t.Errorf("%s: write %d was told %d %s, then %d %s", r.name, number, first.status, first.body, answer.status,
			answer.body)
	}
	return true
}

// Every sixth write of a worker is of the same kind. The last deletes the tag that the second made;
// all notes are on one commit.
const (
	keyedCommit = iota
	keyedTag
	keyedBranch
	keyedRestore
	keyedNote
	keyedDelete
	keyedKinds
)

// branch is where the commits of a worker go.
func (r *keyedRound) branch(worker int) string { return fmt.Sprintf("%s-%d", r.name, worker) }

// errAway means that the server could not reach its storage, so that the write has happened or
// not.
var errAway = errors.New("the storage is not available")

// send asks for the write of a number, under its key.
func (r *keyedRound) send(number int) reply {
	answer := r.ask(number)
	if answer.err == nil && answer.status == http.StatusServiceUnavailable {
		return reply{err: fmt.Errorf("%w: %s", errAway, answer.body)}
	}
	return answer
}

func (r *keyedRound) ask(number int) reply {
	key := fmt.Sprintf("%s-%d", r.name, number)
	post := func(path string, body any) reply { return r.json(http.MethodPost, path, key, body) }
	worker, step := number%keyedWorkers, number/keyedWorkers
	switch step % keyedKinds {
	case keyedCommit:
		return r.k.commit(r.branch(worker), key, key)
	case keyedTag:
		return post("tags", map[string]string{"name": key, "target": r.seed})
	case keyedBranch:
		return post("branches/create",
			map[string]any{"target_branch": key + "-branch", "base_ref": r.seed, "target_is_ephemeral": true})
	case keyedRestore:
		return post("restore-commit", map[string]any{"metadata": map[string]any{
			"target_branch": r.branch(worker), "target_commit_sha": r.seed, "commit_message": key,
			"author": map[string]string{"name": "K", "email": "k@example.com"},
		}})
	case keyedNote:
		return post("notes", map[string]string{"sha": r.seed, "action": "append", "note": key})
	default:
		tagged := number - (keyedDelete-keyedTag)*keyedWorkers
		return r.json(http.MethodDelete, "tags", key, map[string]string{"name": fmt.Sprintf("%s-%d", r.name, tagged)})
	}
}

func (r *keyedRound) json(method, path, key string, body any) reply {
	data, err := json.Marshal(body)
	if err != nil {
		return reply{err: err}
	}
	return r.k.api(method, "/api/v1/repos/"+path, key, data)
}

// check holds the round's writes against the journal, which ended at last before it, and against
// the branches. It returns where the journal ends now.
func (r *keyedRound) check(last int) int {
	t := r.k.t
	t.Helper()
	var positions []int
	for number, answer := range r.told {
		if answer.status != http.StatusCreated && answer.status != http.StatusOK {
			t.Errorf("%s: write %d was told %d %s", r.name, number, answer.status, answer.body)
		}
		position, err := strconv.Atoi(answer.sequence)
		if err != nil {
			t.Errorf("%s: write %d: %v", r.name, number, err)
		}
		positions = append(positions, position)
	}
	slices.Sort(positions)
	for i, position := range positions {
		if position != last+1+i {
			t.Errorf("%s: the writes have the positions %v, want each number from %d on once", r.name, positions, last+1)
			break
		}
	}
	for worker := range keyedWorkers {
		r.checkBranch(worker)
	}
	r.checkNotes()
	// The position after one more write is the sum of all, so no write happened without an answer.
	end := r.k.commit("main", r.name, r.name)
	end.mustBe(t, http.StatusCreated)
	if want := strconv.Itoa(last + len(r.told) + 1); end.sequence != want {
		t.Errorf("%s: the journal goes on at %s, want %s", r.name, end.sequence, want)
	}
	return last + len(r.told) + 1
}

// checkBranch holds a worker's branch against the commits that it asked for.
func (r *keyedRound) checkBranch(worker int) {
	t := r.k.t
	t.Helper()
	var want []string
	for number := worker; number < len(r.told); number += keyedWorkers {
		if kind := number / keyedWorkers % keyedKinds; kind == keyedCommit || kind == keyedRestore {
			want = append(want, fmt.Sprintf("%s-%d", r.name, number))
		}
	}
	slices.Reverse(want)
	var page struct{ Commits []struct{ Message string } }
	answer := r.k.api(http.MethodGet, fmt.Sprintf("/api/v1/repos/commits?limit=%d&branch=%s", len(want), r.branch(worker)),
		"", nil)
	answer.mustBe(t, http.StatusOK)
	if err := json.Unmarshal(answer.body, &page); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, commit := range page.Commits {
		got = append(got, commit.Message)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: the commits are %v, want %v", r.branch(worker), got, want)
	}
}

// checkNotes compares the note of the seed with the appended ones.
func (r *keyedRound) checkNotes() {
	t := r.k.t
	t.Helper()
	answer := r.k.api(http.MethodGet, "/api/v1/repos/notes?sha="+r.seed, "", nil)
	answer.mustBe(t, http.StatusOK)
	var read struct{ Note string }
	if err := json.Unmarshal(answer.body, &read); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.FieldsSeq(read.Note) {
		counts[line]++
	}
	for number := range r.told {
		key := fmt.Sprintf("%s-%d", r.name, number)
		if noted := number/keyedWorkers%keyedKinds == keyedNote; noted && counts[key] != 1 || !noted && counts[key] != 0 {
			t.Errorf("%s is in the note %d times", key, counts[key])
		}
	}
}
