package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/refs"
)

// The refs that clients of the test write to, and main, which is never deleted.
const (
	slotMain = iota
	slotA
	slotB
	slotSpike
	slotTag
	slots
)

var slotNames = [slots]string{"main", "a", "b", "spike", "v1"}

// namespaceOf is where the ref of a slot lives.
func namespaceOf(slot int) refs.Namespace {
	if slot == slotSpike {
		return refs.Ephemeral
	}
	return refs.Main
}

// slotOf is the slot of a stored name.
func slotOf(stored string) int {
	for slot, name := range slotNames {
		for _, prefix := range []string{namespaceOf(slot).BranchPrefix(), namespaceOf(slot).TagPrefix()} {
			if stored == prefix+name {
				return slot
			}
		}
	}
	return -1
}

type writeKind uint8

const (
	writeCommit writeKind = iota
	writeRestore
	writeCreate // of a branch or a tag
	writeDelete
	readBranches
)

// kinds is how often each is called.
var kinds = []writeKind{
	writeCommit, writeCommit, writeCommit, writeRestore, writeCreate, writeCreate, writeCreate, writeDelete, readBranches,
}

// write is one call.
type write struct {
	kind     writeKind
	slot     int
	base     int        // of a new branch; -1 for none
	expected *object.ID // of a commit
}

// outcome is the result of a call.
type outcome struct {
	err      error
	actual   object.ID // of a refusal for its expectation
	old, new object.ID
	parent   object.ID        // of a commit
	sequence uint64           // of a change
	tips     [slots]object.ID // of a listing: the branches of the main namespace
}

// repositoryModel is the specification of the calls, over a plain array of refs.
func repositoryModel(first object.ID) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return [slots]object.ID{slotMain: first} },
		Step: func(state, input, output any) (bool, any) {
			now, asked, got := state.([slots]object.ID), input.(write), output.(outcome)
			if got.err != nil {
				return refusalFits(now, asked, got), now
			}
			if asked.kind == readBranches {
				return now[slotMain] == got.tips[slotMain] && now[slotA] == got.tips[slotA] && now[slotB] == got.tips[slotB], now
			}
			fits := got.old == now[asked.slot]
			from := now[asked.slot]
			if from.IsZero() && asked.base >= 0 {
				from = now[asked.base]
			}
			switch asked.kind {
			case writeCommit, writeRestore:
				fits = fits && got.parent == from && !from.IsZero() && (asked.expected == nil || *asked.expected == from)
			case writeCreate:
				fits = fits && got.old.IsZero() && (asked.base < 0 || got.new == now[asked.base])
			case writeDelete:
				fits = !now[asked.slot].IsZero()
			case readBranches:
			}
			now[asked.slot] = got.new
			return fits, now
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// refusalFits reports whether the current refs justify this refusal of a call.
func refusalFits(now [slots]object.ID, asked write, got outcome) bool {
	is := now[asked.slot]
	noBase := asked.base < 0 || now[asked.base].IsZero()
	switch {
	case errors.Is(got.err, refs.ErrBusy):
		return true // the other host was first too often; nothing was changed
	case errors.Is(got.err, engine.ErrExists):
		return asked.kind == writeCreate && !is.IsZero()
	case errors.Is(got.err, engine.ErrStale):
		if is.IsZero() && !noBase {
			is = now[asked.base]
		}
		return asked.expected != nil && got.actual == is && *asked.expected != is
	case errors.Is(got.err, engine.ErrNotFound) && asked.kind == writeCreate:
		return asked.base >= 0 && now[asked.base].IsZero()
	case errors.Is(got.err, engine.ErrNotFound):
		return is.IsZero() && noBase
	}
	return false
}

// TestLinearizable lets clients of two hosts commit with and without an expectation, restore,
// create, promote, delete and list, and searches for an order of the calls that explains all
// results. The journal must show the same order.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	rounds, clients, calls := 6, 8, 60
	if testing.Short() {
		rounds, clients, calls = 2, 5, 25
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			linearizable(t, seed, newStorm(t, 2, engine.Config{}), clients, calls)
		})
	}
}

// TestLinearizableServers is TestLinearizable with two servers that know of each other, and divide
// the work in the background.
func TestLinearizableServers(t *testing.T) {
	t.Parallel()
	rounds, clients, calls := 2, 6, 40
	if testing.Short() {
		rounds, clients, calls = 1, 5, 25
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			linearizable(t, seed, newStorm(t, 2, engine.Config{
				Background: true,
				Sharing:    &engine.Sharing{URL: "http://server", Beat: 5 * time.Millisecond, Patience: time.Hour},
			}), clients, calls)
		})
	}
}

// linearizable lets clients call, each on one of the hosts, and judges what they were told.
func linearizable(t *testing.T, seed uint64, s *storm, clients, calls int) {
	t.Helper()
	var mu sync.Mutex
	var history []porcupine.Operation // guarded by mu
	var group sync.WaitGroup
	begin := time.Now()
	for number := range clients {
		group.Go(func() {
			client := &stormClient{
				repo: s.repo(number), seed: s.seed.New, number: number, random: rand.New(rand.NewPCG(seed, uint64(number))),
			}
			for range calls {
				asked := client.next()
				start := time.Since(begin)
				got, err := client.do(t.Context(), asked)
				if err != nil {
					t.Errorf("%+v: %v", asked, err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{
					ClientId: number, Input: asked, Output: got, Call: start.Nanoseconds(), Return: time.Since(begin).Nanoseconds(),
				})
				mu.Unlock()
			}
		})
	}
	group.Wait()
	// Without a limit of time: few calls overlap, and a machine that stops for minutes says nothing
	// about the host.
	if !porcupine.CheckOperations(repositoryModel(s.seed.New), history) {
		t.Error("no order of the calls explains what the clients were told")
	}
	checkJournal(t, s.entries(t), history)
}

// checkJournal holds every acknowledged change against its entry, and their order against the
// clock.
func checkJournal(t *testing.T, entries []refs.Entry, history []porcupine.Operation) {
	t.Helper()
	changes := slices.DeleteFunc(history, func(o porcupine.Operation) bool { return o.Output.(outcome).sequence == 0 })
	slices.SortFunc(changes, func(a, b porcupine.Operation) int {
		return int(a.Output.(outcome).sequence) - int(b.Output.(outcome).sequence)
	})
	if len(changes) != len(entries) {
		t.Fatalf("the journal holds %d changes, %d were acknowledged", len(entries), len(changes))
	}
	var begun int64 // when the latest of the changes so far was asked for
	for i, entry := range entries {
		asked, got := changes[i].Input.(write), changes[i].Output.(outcome)
		if got.sequence != entry.Sequence || asked.slot != slotOf(entry.Ref) || got.new != entry.After {
			t.Errorf("the journal has %+v where %+v was told %+v", entry, asked, got)
		}
		if changes[i].Return < begun {
			t.Errorf("%d was acknowledged before an earlier change was asked for", entry.Sequence)
		}
		begun = max(begun, changes[i].Call)
	}
}

// stormClient is one client.
type stormClient struct {
	repo   *engine.Repository
	seed   object.ID
	number int
	random *rand.Rand
	count  int
	seen   [slots]object.ID // the last values it read, for expectations
}

// next decides what to ask for.
func (c *stormClient) next() write {
	w := write{kind: kinds[c.random.IntN(len(kinds))], slot: c.random.IntN(slotTag), base: -1}
	switch w.kind {
	case writeCommit:
		if w.slot != slotMain && c.random.IntN(2) == 0 {
			w.base = slotMain
		}
		if expected := c.seen[w.slot]; !expected.IsZero() && c.random.IntN(2) == 0 {
			w.expected = &expected
		}
	case writeCreate:
		if w.slot == slotMain {
			w.slot = slotTag
			break
		}
		w.base = c.random.IntN(slotTag)
	case writeDelete:
		w.slot = slotA + c.random.IntN(slots-slotA)
	case writeRestore, readBranches:
	}
	return w
}

// do asks for it. An error is one that no call may meet; refusals are outcomes.
func (c *stormClient) do(ctx context.Context, w write) (outcome, error) {
	var got outcome
	switch w.kind {
	case writeCommit, writeRestore:
		got = c.commit(ctx, w)
	case writeCreate:
		got = c.create(ctx, w)
	case writeDelete:
		remove := c.repo.DeleteBranch
		if w.slot == slotTag {
			remove = c.repo.DeleteTag
		}
		deleted, err := remove(ctx, acme, namespaceOf(w.slot), slotNames[w.slot])
		got = outcome{err: err, sequence: deleted.Sequence}
	case readBranches:
		got = c.list(ctx)
	}
	var stale *engine.StaleError
	switch {
	case errors.As(got.err, &stale):
		got.actual = stale.Actual
		c.seen[w.slot] = stale.Actual
	case got.err == nil && w.kind != readBranches:
		c.seen[w.slot] = got.new
	case got.err != nil && !errors.Is(got.err, engine.ErrExists) && !errors.Is(got.err, engine.ErrNotFound) &&
		!errors.Is(got.err, refs.ErrBusy):
		return got, got.err
	}
	return got, nil
}

func (c *stormClient) commit(ctx context.Context, w write) outcome {
	c.count++
	target := engine.CommitTarget{Branch: slotNames[w.slot], Namespace: namespaceOf(w.slot), Expected: w.expected}
	if w.base >= 0 {
		target.Base, target.BaseNamespace = slotNames[w.base], namespaceOf(w.base)
	}
	var result engine.CommitResult
	var err error
	if w.kind == writeRestore {
		details := engine.CommitDetails{Message: fmt.Sprintf("%d of client %d", c.count, c.number), Author: thor}
		request := engine.RestoreRequest{Target: target, Details: details, Commit: named(c.seed)}
		result, err = c.repo.RestoreCommit(ctx, acme, request)
	} else {
		result, err = upload(c.repo, acme, target, change{path: fmt.Sprint(c.number), content: fmt.Sprint(c.count)})
	}
	got := outcome{err: err, old: result.Old, new: result.New, sequence: result.Sequence}
	if err == nil {
		got.parent, got.err = c.parent(ctx, result.New)
	}
	return got
}

// parent reads the first parent of a commit.
func (c *stormClient) parent(ctx context.Context, id object.ID) (object.ID, error) {
	view, err := c.repo.Objects(ctx)
	if err != nil {
		return object.ZeroID, err
	}
	defer view.Close()
	row, err := view.Graph(ctx, id)
	if err != nil {
		return object.ZeroID, err
	}
	return row.Parents[0], nil
}

func (c *stormClient) create(ctx context.Context, w write) outcome {
	if w.slot == slotTag {
		created, err := c.repo.CreateTag(ctx, acme, refs.Main, slotNames[slotTag], named(c.seed))
		got := outcome{err: err, sequence: created.Sequence}
		if err == nil {
			got.new = c.seed
		}
		return got
	}
	created, err := c.repo.CreateBranch(ctx, acme, engine.CreateBranchRequest{
		Branch: slotNames[w.slot], Namespace: namespaceOf(w.slot),
		Base: engine.CommitName{Text: slotNames[w.base], Kind: engine.BranchName, Namespace: namespaceOf(w.base)},
	})
	return outcome{err: err, new: created.Tip, sequence: created.Sequence}
}

func (c *stormClient) list(ctx context.Context) outcome {
	page, err := c.repo.Branches(ctx, refs.Main, "", slots)
	got := outcome{err: err}
	for _, branch := range page.Items {
		if slot := slotOf(refs.Main.BranchPrefix() + branch.Name); slot >= 0 {
			got.tips[slot], c.seen[slot] = branch.Tip, branch.Tip
		}
	}
	return got
}
