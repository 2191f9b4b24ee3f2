package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	slotNotes
	slots
)

// repoCount is the number of repositories of the test.
const repoCount = 3

// refsOfAll is what the refs of all repositories are at.
type refsOfAll [repoCount][slots]object.ID

var slotNames = [slots]string{"main", "a", "b", "spike", "v1", "commits"}

// notesRef is the full name of the ref of slotNotes.
const notesRef = "refs/notes/commits"

// namespaceOf is where the ref of a slot lives.
func namespaceOf(slot int) refs.Namespace {
	if slot == slotSpike {
		return refs.Ephemeral
	}
	return refs.Main
}

// slotOf is the slot of a stored name.
func slotOf(stored string) int {
	if stored == notesRef {
		return slotNotes
	}
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
	writePush        // of a branch, by force where it is no fast-forward
	writeMerge       // of a commit that the client knows
	writeNote        // appends to the note of the first commit
	writeTransaction // of some of the other writes, at most one in each repository
	readBranches
	readEveryRepo // is readBranches of each, one after the other in any order: as many calls
)

// kinds is how often each is called.
var kinds = []writeKind{
	writeCommit, writeCommit, writeCommit, writeRestore, writeCreate, writeCreate, writeCreate, writeDelete, readBranches,
	writePush, writePush, writeMerge, writeMerge, writeNote, writeTransaction, writeTransaction, readEveryRepo,
}

// partKinds are the writes of which a transaction consists.
var partKinds = []writeKind{writeCommit, writeCommit, writeCommit, writeCreate, writeDelete}

// write is one call.
type write struct {
	kind     writeKind
	repo     int
	slot     int
	base     int        // of a new branch; -1 for none
	expected *object.ID // of a commit; a push has one always, zero for a ref that is to be new
	source   object.ID  // of a merge
	parts    []write    // of a transaction
}

// outcome is the result of a call.
type outcome struct {
	err      error
	actual   object.ID // of a refusal for its expectation
	old, new object.ID
	parent   object.ID        // of a commit
	sequence uint64           // of a change
	tips     [slots]object.ID // of a listing: the branches of the main namespace
	text     string           // that was appended to the note
	parts    []outcome        // of a transaction that was not refused
}

// repositoriesModel is the specification of the calls, over plain arrays of refs. A transaction is
// all of its writes at one instant, or none of them.
func repositoriesModel(first [repoCount]object.ID) porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			var now refsOfAll
			for repo := range now {
				now[repo][slotMain] = first[repo]
			}
			return now
		},
		Step: func(state, input, output any) (bool, any) {
			now, asked, got := state.(refsOfAll), input.(write), output.(outcome)
			if asked.kind != writeTransaction {
				return stepOne(&now[asked.repo], asked, got), now
			}
			if failed, ok := errors.AsType[*engine.StepError](got.err); ok {
				part := asked.parts[failed.Step]
				return refusalFits(now[part.repo], part, outcome{err: failed.Err, actual: got.actual}), now
			}
			if got.err != nil {
				return errors.Is(got.err, refs.ErrBusy), now
			}
			for i, part := range asked.parts {
				if !stepOne(&now[part.repo], part, got.parts[i]) {
					return false, state
				}
			}
			return true, now
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// stepOne makes a write to one repository, or a read, and reports whether its outcome fits.
func stepOne(now *[slots]object.ID, asked write, got outcome) bool {
	if got.err != nil {
		return refusalFits(*now, asked, got)
	}
	if asked.kind == readBranches {
		return now[slotMain] == got.tips[slotMain] && now[slotA] == got.tips[slotA] && now[slotB] == got.tips[slotB]
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
	case writePush:
		fits = now[asked.slot] == *asked.expected
	case writeMerge:
		fits = fits && !got.old.IsZero()
	case writeNote, readBranches, writeTransaction, readEveryRepo:
	}
	if got.sequence > 0 { // a merge may have nothing to do, or conflict
		now[asked.slot] = got.new
	}
	return fits
}

// refusalFits reports whether the current refs justify this refusal of a call.
func refusalFits(now [slots]object.ID, asked write, got outcome) bool {
	is := now[asked.slot]
	noBase := asked.base < 0 || now[asked.base].IsZero()
	switch {
	case errors.Is(got.err, refs.ErrBusy):
		return true // the other host was first too often; nothing was changed
	case asked.kind == writePush:
		return errors.Is(got.err, refs.ErrStale) && is != *asked.expected
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

// TestLinearizable lets clients of two hosts commit with and without an expectation, push, merge,
// restore, create, promote, delete, take notes and list, in three repositories, and make
// transactions over some of them. It searches for an order of the calls that explains all results:
// whoever lists all repositories meets no part of a transaction. The journals must show the same
// order, and the notes every text that was acknowledged.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	rounds, clients, calls := 6, 8, 60
	if testing.Short() {
		rounds, clients, calls = 2, 5, 25
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			linearizable(t, seed, newStorm(t, engine.Config{}, engine.Config{}), clients, calls)
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
			linearizable(t, seed, newStorm(t, sharing(time.Now), sharing(time.Now)), clients, calls)
		})
	}
}

// TestLinearizableClocks is TestLinearizableServers with clocks that differ by two hours.
func TestLinearizableClocks(t *testing.T) {
	t.Parallel()
	s := newStorm(t,
		sharing(func() time.Time { return time.Now().Add(time.Hour) }),
		sharing(func() time.Time { return time.Now().Add(-time.Hour) }))
	linearizable(t, 1, s, 5, 25)
}

// sharing configures one of several servers.
func sharing(now func() time.Time) engine.Config {
	return engine.Config{
		Background: true, Now: now,
		Sharing: &engine.Sharing{URL: "http://server", Beat: 5 * time.Millisecond, Patience: time.Hour},
	}
}

// linearizable lets clients call, each on one of the hosts, and judges what they were told. The
// repository of s is the first of theirs.
func linearizable(t *testing.T, seed uint64, s *storm, clients, calls int) {
	t.Helper()
	all := [repoCount]*storm{s, s.beside(t, "s"), s.beside(t, "t")}
	var first [repoCount]object.ID
	for i, one := range all {
		first[i] = one.seed.New
	}
	var mu sync.Mutex
	var history []porcupine.Operation // guarded by mu
	begin := time.Now()
	newClient := func(number int) *stormClient {
		client := &stormClient{tb: t, seeds: first, number: number, random: rand.New(rand.NewPCG(seed, uint64(number)))}
		for i, one := range all {
			client.repos[i] = one.repo(number)
		}
		return client
	}
	call := func(client *stormClient, asked write) (outcome, error) {
		asking := porcupine.Operation{ClientId: client.number, Input: asked, Call: time.Since(begin).Nanoseconds()}
		got, err := client.do(t.Context(), asked)
		if err != nil {
			return got, fmt.Errorf("%+v: %w", asked, err)
		}
		asking.Output, asking.Return = got, time.Since(begin).Nanoseconds()
		mu.Lock()
		defer mu.Unlock()
		history = append(history, asking)
		return got, nil
	}
	// One transaction is made whatever becomes of those of the others.
	whole := write{kind: writeTransaction}
	for repo := range repoCount {
		whole.parts = append(whole.parts, write{kind: writeCommit, repo: repo, slot: slotMain, base: -1})
	}
	if got, err := call(newClient(clients), whole); err != nil || got.err != nil {
		t.Fatal("a transaction with nobody beside it: ", err, got.err)
	}
	var group sync.WaitGroup
	for number := range clients {
		group.Go(func() {
			client := newClient(number)
			for range calls {
				for _, asked := range client.next() {
					if _, err := call(client, asked); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	// Without a limit of time: few calls overlap, and a machine that stops for minutes says nothing
	// about the host.
	if !porcupine.CheckOperations(repositoriesModel(first), history) {
		t.Error("no order of the calls explains what the clients were told")
	}
	for i, one := range all {
		own := ofRepository(history, i)
		checkNote(t, one, own)
		checkJournal(t, one.entries(t), own)
	}
}

// ofRepository is what the clients did to a repository. A part of a transaction is a call.
func ofRepository(history []porcupine.Operation, repo int) (own []porcupine.Operation) {
	for _, o := range history {
		asked, got := o.Input.(write), o.Output.(outcome)
		if asked.kind != writeTransaction {
			if asked.repo == repo {
				own = append(own, o)
			}
			continue
		}
		for i, part := range asked.parts {
			if part.repo == repo && got.err == nil {
				o.Input, o.Output = part, got.parts[i]
				own = append(own, o)
			}
		}
	}
	return own
}

// checkNote holds the note that the clients append to against what they were told.
func checkNote(t *testing.T, s *storm, history []porcupine.Operation) {
	t.Helper()
	note := engine.Note{}
	for _, o := range history {
		if o.Input.(write).kind != writeNote || o.Output.(outcome).err != nil {
			continue
		}
		if note.Text == "" {
			var err error
			if note, err = s.repos[0].Note(t.Context(), noteOf(s.seed.New)); err != nil {
				t.Fatal(err)
			}
		}
		if text := o.Output.(outcome).text; strings.Count(note.Text, text) != 1 {
			t.Errorf("the note contains %q %d times, want once", text, strings.Count(note.Text, text))
		}
	}
}

// noteOf names the note of a commit.
func noteOf(id object.ID) engine.NoteTarget {
	return engine.NoteTarget{Ref: notesRef, Object: named(id)}
}

// checkJournal holds every acknowledged change against its entry, and their order against the
// clock of the test. The times of the entries never go back, whatever the clocks of the hosts say.
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
		if i > 0 && entry.Time.Before(entries[i-1].Time) {
			t.Errorf("%d is of %v, and the entry after it of %v", entries[i-1].Sequence, entries[i-1].Time, entry.Time)
		}
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
