package refs_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// model is the contract of refs, over a plain map.
type model map[string]modelRef

type modelRef struct {
	id      object.ID
	created int // a number for each creation
}

// set is [refs.Tx.Set] and, with the zero ID, [refs.Tx.Delete].
func (m model) set(name string, expected *object.ID, id object.ID, created int) error {
	_, short := refs.SplitNamespace(name)
	if refs.CheckName(short) != nil {
		return refs.ErrInvalidName
	}
	now, exists := m[name]
	if expected != nil && *expected != now.id {
		return refs.ErrStale
	}
	if id.IsZero() {
		if !exists {
			return refs.ErrNotFound
		}
		delete(m, name)
		return nil
	}
	if exists {
		created = now.created
	}
	for other := range m {
		if strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/") {
			return refs.ErrNameConflict
		}
	}
	m[name] = modelRef{id, created}
	return nil
}

// ids returns the targets of the refs.
func (m model) ids() map[string]object.ID {
	ids := make(map[string]object.ID, len(m))
	for name, ref := range m {
		ids[name] = ref.id
	}
	return ids
}

// Transactions of random commands, some of them given up, leave the state of the model, in every
// reader.
func TestModel(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{
		"refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/heads/a/d", "refs/heads/a0", "refs/heads/b",
		"refs/tags/a", "refs/tags/a/b",
		"refs/namespaces/ephemeral/refs/heads/a", "refs/namespaces/ephemeral/refs/heads/a/b", "refs/heads", "refs/heads/x..y",
		"refs/heads/" + strings.Repeat("x", 980), "refs/heads/" + strings.Repeat("x", 980) + "/y", "refs/heads/" +
			strings.Repeat("x", 980) + "z",
	})
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{})
	rapid.Check(t, func(rt *rapid.T) {
		repo := createRepo(t, keys, store)
		want, created := model{}, 0
		history := []model{{}}
		rt.Repeat(map[string]func(*rapid.T){
			"transaction": func(rt *rapid.T) {
				next := maps.Clone(want)
				giveUp := rapid.IntRange(0, 4).Draw(rt, "give up") == 0
				change := refs.Change{Names: rapid.SliceOfN(names, 0, 4).Draw(rt, "names")}
				_, err := store.Update(t.Context(), repo, change, func(ctx context.Context, tx *refs.Tx) error {
					for range rapid.IntRange(1, 6).Draw(rt, "commands") {
						name, to := names.Draw(rt, "name"), id(rapid.IntRange(0, 3).Draw(rt, "to"))
						var expected *object.ID
						if n := rapid.IntRange(-3, 3).Draw(rt, "expected"); n >= 0 {
							expected = new(id(n))
						}
						created++
						got, wanted := error(nil), next.set(name, expected, to, created)
						if to.IsZero() {
							got = tx.Delete(ctx, name, expected)
						} else {
							got = tx.Set(ctx, name, expected, to, object.ZeroID)
						}
						if !errors.Is(got, wanted) {
							rt.Fatalf("%.60s to %s: got %v, want %v", name, to, got, wanted)
						}
						if tx.Count() != len(next) {
							rt.Fatalf("count %d, want %d", tx.Count(), len(next))
						}
					}
					if giveUp {
						return refs.ErrUnchanged
					}
					return nil
				})
				if err != nil {
					rt.Fatal(err)
				}
				if !giveUp && !maps.Equal(want, next) {
					want = next
					history = append(history, maps.Clone(want))
				}
			},
			"": func(rt *rapid.T) {
				snapshot, err := store.Snapshot(t.Context(), repo)
				if err != nil {
					rt.Fatal(err)
				}
				defer func() { _ = snapshot.Close() }()
				if got := state(t, snapshot); !maps.Equal(got, want.ids()) || snapshot.Count() != len(want) {
					rt.Fatalf("got %v, count %d, want %v", got, snapshot.Count(), want)
				}
				if snapshot.Sequence() != uint64(len(history)) {
					rt.Fatalf("sequence %d, want %d", snapshot.Sequence(), len(history))
				}
			},
		})
		// The journal has every former state.
		page, err := store.Events(t.Context(), repo, 0, refs.EventsMax)
		if err != nil || page.More {
			rt.Fatal(page.More, err)
		}
		checkHistory(rt, page.Entries, history)
		checkTables(rt, keys, repo)
	})
}

// checkHistory replays the journal.
func checkHistory(t rapid.TB, entries []refs.Entry, history []model) {
	now := map[string]object.ID{}
	for i, entry := range entries {
		if now[entry.Ref] != entry.Before {
			t.Fatalf("%d.%d: %s was %s, not %s", entry.Sequence, entry.Index, entry.Ref, now[entry.Ref], entry.Before)
		}
		now[entry.Ref] = entry.After
		if entry.After.IsZero() {
			delete(now, entry.Ref)
		}
		last := i == len(entries)-1 || entries[i+1].Sequence != entry.Sequence
		if last && !maps.Equal(now, history[entry.Sequence-1].ids()) {
			t.Fatalf("at %d: got %v, want %v", entry.Sequence, now, history[entry.Sequence-1])
		}
	}
	if !maps.Equal(now, history[len(history)-1].ids()) {
		t.Fatalf("the journal ends at %v, not at %v", now, history[len(history)-1])
	}
}

// checkTables compares the tables of a repository with each other.
func checkTables(t rapid.TB, keys kv.Store, repo refs.RepoID) {
	store := refs.Open(keys, refs.Options{CacheBytes: 1})
	ctx := context.Background()
	snapshot, err := store.Snapshot(ctx, repo)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Close() }()
	count, branches := 0, map[refs.Namespace]int{}
	for ref, err := range snapshot.All(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		count++
		if ns, _ := refs.SplitNamespace(ref.Name); strings.HasPrefix(ref.Name, ns.BranchPrefix()) {
			branches[ns]++
		}
	}
	if count != snapshot.Count() {
		t.Fatalf("%d refs, the head says %d", count, snapshot.Count())
	}
	for _, ns := range []refs.Namespace{refs.Main, refs.Ephemeral} {
		created, err := snapshot.Branches(ctx, ns, refs.Creation{}, 1<<20)
		if err != nil || len(created) != branches[ns] {
			t.Fatalf("%d branches by creation, %d by name, %v", len(created), branches[ns], err)
		}
	}
}
