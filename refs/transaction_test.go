package refs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// setter returns a prepare function that points refs to IDs; zero deletes.
func setter(pairs ...any) func(context.Context, *refs.Tx) error {
	return func(ctx context.Context, tx *refs.Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			name, n := pairs[i].(string), pairs[i+1].(int)
			var err error
			if n == 0 {
				err = tx.Delete(ctx, name, nil)
			} else {
				err = tx.Set(ctx, name, nil, id(n), object.ZeroID)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func drop(_ context.Context, tx *refs.Tx) error {
	tx.Drop()
	return nil
}

func TestUpdateRefusals(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	set(t, store, repo, "refs/heads/main", 1, "refs/heads/deep/er/est", 2, "refs/namespaces/ephemeral/refs/heads/e/f", 3)
	tests := map[string]struct {
		prepare func(ctx context.Context, tx *refs.Tx) error
		want    error
	}{
		"expected another value": {
			func(ctx context.Context, tx *refs.Tx) error {
				return tx.Set(ctx, "refs/heads/main", new(id(9)), id(2), id(0))
			},
			&refs.StaleError{Name: "refs/heads/main", Expected: id(9), Actual: id(1)},
		},
		"expected absent": {
			func(ctx context.Context, tx *refs.Tx) error {
				return tx.Set(ctx, "refs/heads/main", new(id(0)), id(2), id(0))
			},
			&refs.StaleError{Name: "refs/heads/main", Expected: id(0), Actual: id(1)},
		},
		"expected present": {
			func(ctx context.Context, tx *refs.Tx) error {
				return tx.Set(ctx, "refs/heads/new", new(id(4)), id(2), id(0))
			},
			&refs.StaleError{Name: "refs/heads/new", Expected: id(4), Actual: id(0)},
		},
		"delete at another value": {
			func(ctx context.Context, tx *refs.Tx) error {
				return tx.Delete(ctx, "refs/heads/main", new(id(4)))
			},
			&refs.StaleError{Name: "refs/heads/main", Expected: id(4), Actual: id(1)},
		},
		"delete nothing": {setter("refs/heads/new", 0), refs.ErrNotFound},
		"below a ref": {
			setter("refs/heads/main/x", 1), &refs.NameConflictError{Name: "refs/heads/main/x", Existing: "refs/heads/main"},
		},
		"far below a ref": {setter("refs/heads/main/x/y/z", 1), &refs.NameConflictError{
			Name: "refs/heads/main/x/y/z", Existing: "refs/heads/main",
		}},
		"above a ref": {
			setter("refs/heads/deep", 1), &refs.NameConflictError{Name: "refs/heads/deep", Existing: "refs/heads/deep/er/est"},
		},
		"ephemeral above a ref": {setter("refs/namespaces/ephemeral/refs/heads/e", 1), refs.ErrNameConflict},
		"below a new ref": {setter("refs/heads/n", 1, "refs/heads/n/m", 1), &refs.NameConflictError{
			Name: "refs/heads/n/m", Existing: "refs/heads/n",
		}},
		"above a new ref": {setter("refs/heads/n/m", 1, "refs/heads/n", 1), &refs.NameConflictError{
			Name: "refs/heads/n", Existing: "refs/heads/n/",
		}},
		"invalid name":           {setter("refs/heads/a..b", 1), refs.ErrInvalidName},
		"invalid name to delete": {setter("HEAD", 0), refs.ErrInvalidName},
		"invalid name in namespace": {
			setter("refs/namespaces/ephemeral/refs/namespaces/x/refs/heads/y", 1), refs.ErrInvalidName,
		},
		"another namespace": {setter("refs/namespaces/other/refs/heads/y", 1), refs.ErrInvalidName},
		"zero ID": {
			func(ctx context.Context, tx *refs.Tx) error { return tx.Set(ctx, "refs/heads/z", nil, id(0), id(0)) },
			object.ErrInvalidID,
		},
		"its own error": {func(context.Context, *refs.Tx) error { return errors.ErrUnsupported }, errors.ErrUnsupported},
		"too large a batch": {
			func(_ context.Context, tx *refs.Tx) error {
				tx.Batch().Put([]byte("z"), make([]byte, kv.ValueBytesMax+1))
				return nil
			},
			kv.ErrTooLarge,
		},
	}
	before := state(t, openSnapshot(t, store, repo))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := store.Update(t.Context(), repo, refs.Change{}, test.prepare)
			if fmt.Sprint(err) != fmt.Sprint(test.want) && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if head, err := store.Head(t.Context(), repo); err != nil || head != 2 {
				t.Errorf("head %d, %v", head, err)
			}
			if after := state(t, openSnapshot(t, store, repo)); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("changed: %v", after)
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	result := set(t, store, repo, "refs/heads/b", 1, "refs/heads/a", 2, "refs/notes/commits", 3)
	if result.Sequence != 2 || len(result.Updates) != 3 || result.Updates[1].Ref != "refs/heads/a" ||
		result.Updates[1].Index != 1 {
		t.Fatalf("%+v", result)
	}
	tests := []struct {
		name    string
		prepare func(context.Context, *refs.Tx) error
		moves   bool
		want    map[string]int // the differences afterwards
	}{
		{"the same value", setter("refs/heads/a", 2), false, nil},
		{"nothing", setter(), false, nil},
		{"unchanged", func(ctx context.Context, tx *refs.Tx) error {
			if err := setter("refs/heads/a", 7)(ctx, tx); err != nil {
				return err
			}
			return refs.ErrUnchanged
		}, false, nil},
		{"there and back", setter("refs/heads/a", 7, "refs/heads/a", 2, "refs/heads/x", 1, "refs/heads/x", 0), false, nil},
		{
			"many at once", setter("refs/heads/a", 5, "refs/heads/b", 0, "refs/tags/v1", 6), true,
			map[string]int{"refs/heads/a": 5, "refs/heads/b": 0, "refs/tags/v1": 6},
		},
		{
			"a name makes room below", setter("refs/heads/a", 0, "refs/heads/a/b", 1), true,
			map[string]int{"refs/heads/a": 0, "refs/heads/a/b": 1},
		},
		{
			"a name makes room above", setter("refs/heads/a/b", 0, "refs/heads/a", 1), true,
			map[string]int{"refs/heads/a/b": 0, "refs/heads/a": 1},
		},
		{"a refused command leaves the rest", func(ctx context.Context, tx *refs.Tx) error {
			if err := tx.Set(ctx, "refs/heads/a/c", nil, id(1), id(0)); !errors.Is(err, refs.ErrNameConflict) {
				return fmt.Errorf("got %w", err)
			}
			return tx.Set(ctx, "refs/heads/c", new(id(0)), id(1), id(0))
		}, true, map[string]int{"refs/heads/c": 1}},
		{"a row and no ref", func(_ context.Context, tx *refs.Tx) error {
			tx.Batch().Put([]byte("zzz"), []byte("1"))
			return nil
		}, true, nil},
	}
	want, sequence := state(t, openSnapshot(t, store, repo)), result.Sequence
	for _, test := range tests {
		result, err := store.Update(t.Context(), repo, refs.Change{}, test.prepare)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if test.moves {
			sequence++
		}
		if result.Sequence != sequence || len(result.Updates) != len(test.want) {
			t.Errorf("%s: %+v, want sequence %d", test.name, result, sequence)
		}
		for name, n := range test.want {
			want[name] = id(n)
			if n == 0 {
				delete(want, name)
			}
		}
		snapshot := openSnapshot(t, store, repo)
		if got := state(t, snapshot); fmt.Sprint(got) != fmt.Sprint(want) || snapshot.Count() != len(want) {
			t.Errorf("%s: %v, count %d, want %v", test.name, got, snapshot.Count(), want)
		}
	}
}

func TestTxShowsItsChanges(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	set(t, store, repo, "refs/heads/a", 1, "refs/heads/c", 3)
	_, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		if err := setter("refs/heads/b", 2, "refs/heads/c", 0, "refs/tags/t", 4)(ctx, tx); err != nil {
			return err
		}
		var names []string
		for ref, err := range tx.All(ctx, "refs/heads/") {
			if err != nil {
				return err
			}
			names = append(names, ref.Name)
		}
		if want := []string{"refs/heads/a", "refs/heads/b"}; !slices.Equal(names, want) {
			t.Errorf("got %v, want %v", names, want)
		}
		if tx.Count() != 3 || tx.Sequence() != 2 {
			t.Errorf("count %d at %d", tx.Count(), tx.Sequence())
		}
		if ref, err := tx.Lookup(ctx, "refs/heads/b"); err != nil || ref.ID != id(2) {
			t.Errorf("%+v, %v", ref, err)
		}
		if _, err := tx.Lookup(ctx, "refs/heads/c"); !errors.Is(err, refs.ErrNotFound) {
			t.Errorf("deleted: %v", err)
		}
		return refs.ErrUnchanged
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{RefsMax: 3})
	repo := createRepo(t, keys, store)
	set(t, store, repo, "refs/heads/a", 1, "refs/heads/b", 1)
	for name, test := range map[string]struct {
		prepare func(context.Context, *refs.Tx) error
		want    error
	}{
		"one too many": {setter("refs/heads/c", 1, "refs/heads/d", 1), refs.ErrLimit},
		"one for another": {setter("refs/heads/a", 0, "refs/heads/c", 1, "refs/heads/d", 1, "refs/heads/c", 0,
			"refs/heads/d", 0, "refs/heads/a", 1), nil},
		"an update of many":     {setter("refs/heads/a", 2, "refs/heads/b", 2, "refs/heads/a", 1, "refs/heads/b", 1), nil},
		"deletion makes a room": {setter("refs/heads/c", 1, "refs/heads/c", 0, "refs/heads/d", 1, "refs/heads/d", 0), nil},
	} {
		if _, err := store.Update(t.Context(), repo, refs.Change{}, test.prepare); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
	for name, options := range map[string][]string{
		"too many options": make([]string, refs.OptionsMax+1),
		"too long":         {strings.Repeat("o", refs.OptionBytesMax+1)},
	} {
		if _, err := store.Update(t.Context(), repo, refs.Change{Options: options}, setter()); !errors.Is(err,
			refs.ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUpdatesMax(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	result, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		for i := range refs.UpdatesMax {
			if err := tx.Set(ctx, fmt.Sprintf("refs/heads/b%05d", i), nil, id(1), id(0)); err != nil {
				return err
			}
		}
		if err := tx.Set(ctx, "refs/heads/more", nil, id(1), id(0)); !errors.Is(err, refs.ErrLimit) {
			t.Errorf("one more: %v", err)
		}
		return nil
	})
	if err != nil || len(result.Updates) != refs.UpdatesMax {
		t.Fatalf("%d updates, %v", len(result.Updates), err)
	}
	snapshot := openSnapshot(t, store, repo)
	if got := state(t, snapshot); len(got) != refs.UpdatesMax || snapshot.Count() != refs.UpdatesMax {
		t.Errorf("%d refs, count %d", len(got), snapshot.Count())
	}
	// A deletion takes the most rows: the former states go beside the entries.
	if _, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		for i := range refs.UpdatesMax {
			if err := tx.Delete(ctx, result.Updates[i].Ref, nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	before, err := store.SnapshotAt(t.Context(), repo, result.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	if got := state(t, before); len(got) != refs.UpdatesMax || before.Count() != refs.UpdatesMax {
		t.Errorf("%d refs, count %d", len(got), before.Count())
	}
	if err := before.Close(); err != nil {
		t.Error(err)
	}
}

// Names of more bytes than a key holds: 1,024, and 26 of the ephemeral namespace.
func TestLongNames(t *testing.T) {
	t.Parallel()
	for _, ns := range []refs.Namespace{refs.Main, refs.Ephemeral} {
		keys := openKV(t)
		store, paged := refs.Open(keys, refs.Options{}), refs.Open(keys, refs.Options{CacheBytes: 1})
		repo := createRepo(t, keys, store)
		long := ns.Full("refs/heads/" + strings.Repeat("0123456789abcdef", 64)[:refs.NameBytesMax-len("refs/heads/")-2])
		names := []string{long[:900] + "+", long[:960] + "+", long[:990], long[:1000] + "!/y", long + "_a", long + "_b"}
		slices.Sort(names)
		for i, name := range slices.Backward(names) {
			set(t, store, repo, name, i+1)
		}
		for name, want := range map[string]error{
			long + "_cc":       refs.ErrInvalidName,
			long[:1000] + "!":  refs.ErrNameConflict,
			long[:990] + "/x":  refs.ErrNameConflict,
			long + "_b/":       refs.ErrInvalidName,
			long[:1000] + "!/": refs.ErrInvalidName,
		} {
			if _, err := store.Update(t.Context(), repo, refs.Change{}, setter(name, 1)); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name[900:], err, want)
			}
		}
		for _, reader := range []*refs.Store{store, paged} {
			snapshot := openSnapshot(t, reader, repo)
			for i, name := range names {
				if ref, err := snapshot.Lookup(t.Context(), name); err != nil || ref.ID != id(i+1) || ref.Name != name {
					t.Errorf("%s: %+v, %v", name[900:], ref, err)
				}
			}
			for _, size := range []int{0, 950, 980, 990, 1000, len(long)} {
				var got []string
				for ref, err := range snapshot.All(t.Context(), long[:size]) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, ref.Name)
				}
				want := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
					return !strings.HasPrefix(name, long[:size])
				})
				if !slices.Equal(got, want) {
					t.Errorf("prefix of %d bytes: got %d names, want %d", size, len(got), len(want))
				}
			}
		}
		set(t, store, repo, long+"_a", 0)
		if _, err := openSnapshot(t, paged, repo).Lookup(t.Context(), long+"_a"); !errors.Is(err, refs.ErrNotFound) {
			t.Errorf("deleted: %v", err)
		}
	}
}

// A reader puts the long names that share their first bytes in order at once, so their number is
// bounded.
func TestLongNamesMax(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	name := func(i int) string { return fmt.Sprintf("refs/heads/%s%04d", strings.Repeat("x", 980), i) }
	create := func(from, to int) error {
		_, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
			for i := from; i < to; i++ {
				if err := tx.Set(ctx, name(i), nil, id(1), id(0)); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}
	if err := create(0, 600); err != nil {
		t.Fatal(err)
	}
	if err := create(600, 1001); !errors.Is(err, refs.ErrLimit) {
		t.Errorf("1,001 names: %v", err)
	}
	if err := create(600, 1000); err != nil {
		t.Errorf("1,000 names: %v", err)
	}
	if err := create(1000, 1001); !errors.Is(err, refs.ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	if got := state(t, openSnapshot(t, store, repo)); len(got) != 1000 {
		t.Errorf("%d refs", len(got))
	}
}
