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
	writePush  // of a branch, by force where it is no fast-forward
	writeMerge // of a commit that the client knows
	writeNote  // appends to the note of the first commit
	readBranches
)

// kinds is how often each is called.
var kinds = []writeKind{
	writeCommit, writeCommit, writeCommit, writeRestore, writeCreate, writeCreate, writeCreate, writeDelete, readBranches,
	writePush, writePush, writeMerge, writeMerge, writeNote,
}

// write is one call.
type write struct {
	kind     writeKind
	slot     int
	base     int        // of a new branch; -1 for none
	expected *object.ID // of a commit; a push has one always, zero for a ref that is to be new
	source   object.ID  // of a merge
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
			case writePush:
				fits = now[asked.slot] == *asked.expected
			case writeMerge:
				fits = fits && !got.old.IsZero()
			case writeNote, readBranches:
			}
			if got.sequence > 0 { // a merge may have nothing to do, or conflict
				now[asked.slot] = got.new
			}
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
// restore, create, promote, delete, take notes and list, and searches for an order of the calls
// that explains all results. The journal must show the same order, and the note every text that was
// acknowledged.
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
				tb: t, repo: s.repo(number), seed: s.seed.New, number: number, random: rand.New(rand.NewPCG(seed, uint64(number))),
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
	checkNote(t, s, history)
	checkJournal(t, s.entries(t), history)
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
