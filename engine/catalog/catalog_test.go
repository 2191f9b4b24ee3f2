package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/catalog"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// counted counts the trips to a store: calls that read, and pages of scans.
type counted struct {
	kv.Store
	trips  int
	before func() // is called once, before the next trip
}

func (c *counted) trip() {
	c.trips++
	if before := c.before; before != nil {
		c.before = nil
		before()
	}
}

func (c *counted) Get(ctx context.Context, key []byte) ([]byte, error) {
	c.trip()
	return c.Store.Get(ctx, key)
}

func (c *counted) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	c.trip()
	return c.Store.Read(ctx, set)
}

func (c *counted) Scan(ctx context.Context, o kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	c.trip()
	return c.Store.Scan(ctx, o)
}

// world is a catalog, and another one over the same store, as of another server.
type world struct {
	t     *testing.T
	keys  *counted
	one   *catalog.Catalog[record]
	other *catalog.Catalog[record]
}

const org = "acme"

// record is the id of a repository, as it is stored, and where it was found.
type record struct{ stored, id refs.RepoID }

func decode(id refs.RepoID, stored []byte) (record, error) {
	if len(stored) != len(id) {
		return record{}, errors.New("a record of another organization")
	}
	return record{refs.RepoID(stored), id}, nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	keys, _, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	count := &counted{Store: keys}
	return &world{t: t, keys: count, one: catalog.New(count, decode), other: catalog.New(keys, decode)}
}

func (w *world) apply(b *kv.Batch) {
	w.t.Helper()
	if _, err := w.keys.Apply(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}
}

// draw looks and draws.
func (w *world) draw(c *catalog.Catalog[record], b *kv.Batch, name string) (number uint64, free bool, err error) {
	w.t.Helper()
	vacancy, _, err := c.Look(w.t.Context(), org, name)
	if err != nil {
		return 0, false, err
	}
	return c.Draw(b, vacancy)
}

// create creates a repository whose record is its id.
func (w *world) create(name string) (id refs.RepoID, number uint64) {
	w.t.Helper()
	b := kv.NewBatch()
	number, free, err := w.draw(w.other, b, name)
	if err != nil || !free {
		w.t.Fatalf("%q is free: %t, %v", name, free, err)
	}
	id = refs.NewRepoID()
	catalog.Add(b, org, name, number, id, id[:])
	w.apply(b)
	return id, number
}

func (w *world) remove(name string, id refs.RepoID, number uint64) {
	w.t.Helper()
	b := kv.NewBatch()
	catalog.Remove(b, org, name, number, id)
	w.apply(b)
}

func (w *world) rename(from, to string, id refs.RepoID) {
	w.t.Helper()
	b := kv.NewBatch()
	if free, err := w.other.Free(w.t.Context(), b, org, to); err != nil || !free {
		w.t.Fatalf("%q is free: %t, %v", to, free, err)
	}
	catalog.Rename(b, org, from, to, id)
	w.apply(b)
}

// opens opens a name that leads to an id, the zero one for none, with so many trips.
func (w *world) opens(name string, want refs.RepoID, trips int) {
	w.t.Helper()
	w.keys.trips = 0
	found, stored, err := w.one.Open(w.t.Context(), org, name)
	if want == (refs.RepoID{}) {
		if !errors.Is(err, refs.ErrRepositoryNotFound) {
			w.t.Errorf("%q: %v, %v", name, found, err)
		}
	} else if err != nil || found != (record{want, want}) || string(stored) != string(want[:]) {
		w.t.Errorf("%q: %v, %v; want %v", name, found, err, want)
	}
	if w.keys.trips != trips {
		w.t.Errorf("%q: %d trips, want %d", name, w.keys.trips, trips)
	}
}

// TestOpen opens a name again and again while another server changes what it means.
func TestOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.opens("a", refs.RepoID{}, 1)
	first, number := w.create("a")
	w.opens("a", first, 2)
	w.opens("a", first, 1)

	w.remove("a", first, number)
	w.opens("a", refs.RepoID{}, 1)
	second, number := w.create("a")
	w.opens("a", second, 2)
	w.opens("a", second, 1)

	w.rename("a", "b", second)
	w.opens("a", refs.RepoID{}, 1)
	w.opens("b", second, 2)
	third, _ := w.create("a")
	w.opens("a", third, 2)
	w.opens("a", third, 1)
	w.opens("b", second, 1)

	w.remove("b", second, number)
	w.rename("a", "b", third)
	w.opens("b", third, 2)
	w.opens("a", refs.RepoID{}, 1)
	w.rename("b", "a", third)
	w.opens("a", third, 1) // the name leads where it led before
}

// TestOpenMeanwhile has another server change a name between the reads of its name and of its
// record: a repository is opened under a name that it had, or not at all.
func TestOpenMeanwhile(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"known": true, "not known": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first, number := w.create("a")
			if known {
				w.opens("a", first, 2)
				w.remove("a", first, number)
				second, _ := w.create("a")
				w.keys.before = func() { w.keys.before = func() { w.rename("a", "b", second) } }
				w.opens("a", second, 2) // as of its record, which the caller compares
				w.opens("a", refs.RepoID{}, 1)
				return
			}
			w.keys.before = func() { w.keys.before = func() { w.remove("a", first, number) } }
			w.opens("a", refs.RepoID{}, 2)
		})
	}
}

// TestAll walks organizations of several sizes in several paces, with some repositories deleted.
func TestAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []refs.RepoID
	deleted := make(map[refs.RepoID]bool)
	for i := range 150 {
		id, number := w.create(fmt.Sprint("r", i))
		if ids = append(ids, id); i%7 == 3 {
			w.remove(fmt.Sprint("r", i), id, number)
			deleted[id] = true
		}
	}
	b := kv.NewBatch()
	catalog.Add(b, org+"x", "other", 1, refs.NewRepoID(), []byte("other"))
	w.apply(b)
	for _, after := range []int{0, 1, 149, 150} {
		var want []refs.RepoID
		for _, id := range ids[after:] {
			if !deleted[id] {
				want = append(want, id)
			}
		}
		for _, first := range []int{0, 1, 2, 10, len(want), len(want) + 1, 5000} {
			for _, ahead := range []bool{false, true} {
				var got []refs.RepoID
				for entry, err := range w.one.All(t.Context(), org, uint64(after), catalog.Pace{First: first, Ahead: ahead}) {
					if err != nil {
						t.Fatal(err)
					}
					if entry.stored != entry.id {
						t.Errorf("entry %v", entry)
					}
					got = append(got, entry.id)
				}
				if !slices.Equal(got, want) {
					t.Errorf("after %d, first %d, ahead %t: %d repositories, want %d", after, first, ahead, len(got), len(want))
				}
			}
		}
	}
	if count, err := w.one.Count(t.Context(), org, 1000); count != len(ids)-len(deleted) || err != nil {
		t.Errorf("counted %d, %v", count, err)
	}
	if count, err := w.one.Count(t.Context(), org, 5); count != 5 || err != nil {
		t.Errorf("counted %d of 5, %v", count, err)
	}
}

// TestAllMeanwhile deletes a repository during a walk, whose number has been read.
func TestAllMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, _ := w.create("a")
	second, number := w.create("b")
	third, _ := w.create("c")
	var got []refs.RepoID
	for entry, err := range w.one.All(t.Context(), org, 0, catalog.Pace{First: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, entry.id); len(got) == 1 {
			w.keys.before = func() { w.keys.before = func() { w.remove("b", second, number) } }
		}
	}
	if !slices.Equal(got, []refs.RepoID{first, third}) {
		t.Errorf("walked %v", got)
	}
}

// TestAllDeleted walks deleted repositories of several organizations in several paces, from the
// start and from behind each, while some of them come back.
func TestAllDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begin := time.UnixMilli(1_700_000_000_000)
	park := func(org string, at time.Time) catalog.Deleted {
		t.Helper()
		id, b := refs.NewRepoID(), kv.NewBatch()
		d := catalog.Deletion{Org: org, Record: []byte(`{}`), Time: at, Sequence: 3}
		if err := catalog.Park(b, "r", 1, id, &d); err != nil {
			t.Fatal(err)
		}
		w.apply(b)
		read, stored, err := w.one.Deletion(t.Context(), id)
		if err != nil || read.Sequence != 3 || !read.Time.Equal(at) {
			t.Fatalf("stored %+v, %v", read, err)
		}
		return catalog.Deleted{ID: id, Deletion: read, Stored: stored}
	}
	var all []catalog.Deleted
	for i := range 40 {
		all = append(all, park(org, begin.Add(time.Duration(i/3)*time.Second))) // ids order those of one time
	}
	park("a", begin)
	park(org+"x", begin)
	walk := func(after catalog.DeletedPosition, pace int) (ids []refs.RepoID) {
		t.Helper()
		for found, err := range w.one.AllDeleted(t.Context(), org, after, pace) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, found.ID)
		}
		return ids
	}
	check := func() {
		t.Helper()
		var want []refs.RepoID
		for _, d := range all {
			want = append(want, d.ID)
		}
		for _, pace := range []int{0, 1, 2, 39, 40, 41} {
			if got := walk(catalog.DeletedPosition{}, pace); !slices.Equal(got, want) {
				t.Errorf("in steps of %d: %v, want %v", pace, got, want)
			}
			for i := range all {
				at := catalog.ReadDeletedPosition(all[i].Position().Append(nil))
				if got := walk(at, pace); !slices.Equal(got, want[i+1:]) {
					t.Errorf("behind %d, in steps of %d: %v, want %v", i, pace, got, want[i+1:])
				}
			}
		}
	}
	check()
	for range 10 {
		b := kv.NewBatch()
		catalog.Forget(b, all[5].ID, &all[5].Deletion, all[5].Stored)
		w.apply(b)
		if _, err := w.keys.Apply(t.Context(), b); !errors.Is(err, kv.ErrConflict) {
			t.Errorf("twice: %v", err)
		}
		all = slices.Delete(all, 5, 6)
	}
	check()
	var orgs []string
	for found, err := range w.one.DeletingOrgs(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		orgs = append(orgs, found)
	}
	if !slices.Equal(orgs, []string{"a", org, org + "x"}) {
		t.Errorf("organizations %v", orgs)
	}
}

// TestDraw has two servers draw a number for one name, and for two.
func TestDraw(t *testing.T) {
	t.Parallel()
	for name, names := range map[string][2]string{"one name": {"a", "a"}, "two names": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			batches := [2]*kv.Batch{kv.NewBatch(), kv.NewBatch()}
			for i, b := range batches {
				id := refs.NewRepoID()
				number, free, err := w.draw(w.one, b, names[i])
				if number != 1 || !free || err != nil {
					t.Fatal(number, free, err)
				}
				catalog.Add(b, org, names[i], number, id, id[:])
			}
			w.apply(batches[0])
			if _, err := w.keys.Apply(t.Context(), batches[1]); !errors.Is(err, kv.ErrConflict) {
				t.Errorf("the second creation: %v", err)
			}
			if _, free, err := w.draw(w.one, kv.NewBatch(), "a"); free || err != nil {
				t.Errorf("a name that is taken is free: %t, %v", free, err)
			}
		})
	}
}

// TestDrawTogether has creations look together and draw one after the other, while another server
// creates a repository, and after a failover that has lost one.
func TestDrawTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	look := func(name string) catalog.Vacancy {
		t.Helper()
		vacancy, _, err := w.one.Look(t.Context(), org, name)
		if err != nil {
			t.Fatal(err)
		}
		return vacancy
	}
	draw := func(vacancy catalog.Vacancy, name string, want uint64, conflicts bool) {
		t.Helper()
		b := kv.NewBatch()
		number, free, err := w.one.Draw(b, vacancy)
		if number != want || !free || err != nil {
			t.Fatalf("%q draws %d, %t, %v, want %d", name, number, free, err, want)
		}
		id := refs.NewRepoID()
		catalog.Add(b, org, name, number, id, id[:])
		_, err = w.keys.Apply(t.Context(), b)
		if errors.Is(err, kv.ErrConflict) != conflicts {
			t.Fatalf("%q: %v", name, err)
		}
		if err != nil {
			w.one.Undrawn(org)
			return
		}
		w.one.Drawn(org, number)
	}
	a, b, c := look("a"), look("b"), look("c")
	draw(a, "a", 1, false)
	draw(b, "b", 2, false)
	w.create("elsewhere")
	draw(c, "c", 3, true)
	draw(look("c"), "c", 4, false)
	w.create("elsewhere too")
	draw(look("d"), "d", 6, false)

	lost := kv.NewBatch()
	lost.Put(catalog.CounterKey(org), []byte{0, 0, 0, 0, 0, 0, 0, 5})
	w.apply(lost)
	draw(look("e"), "e", 7, true)
	draw(look("e"), "e", 6, false)
}
