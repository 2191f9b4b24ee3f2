package odb_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// addRepository commits all objects of a repository as one segment, which git packs with some
// options.
func (w *world) addRepository(r *oracle.Repository, options ...string) {
	w.Helper()
	args := append([]string{"pack-objects", "--all", "--stdout", "--quiet"}, options...)
	packed := r.Input(nil, args...)
	d := w.Draft()
	d.AddPack(packed)
	d.Commit()
	reachable := r.Input(nil, "rev-list", "--objects", "--all", "--no-object-names")
	for batch := r.Input(reachable, "cat-file", "--batch"); len(batch) > 0; {
		line, rest, _ := bytes.Cut(batch, []byte("\n"))
		fields := strings.Fields(string(line))
		t, err := object.ParseType(fields[1])
		w.Must(err)
		size, err := strconv.Atoi(fields[2])
		w.Must(err)
		w.Objects[mustID(w, fields[0])] = odbtest.Content{Type: t, Data: rest[:size]}
		batch = rest[size+1:]
	}
}

func mustID(tb testing.TB, s string) object.ID {
	tb.Helper()
	id, err := object.ParseID(s)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

func TestSegmentOfGitPack(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"offset deltas": {"--depth=50", "--window=20", "--delta-base-offset"},
		"ref deltas":    {"--depth=50", "--window=20"},
		"deep chains":   {"--depth=4000", "--window=50", "--delta-base-offset"},
		"no deltas":     {"--depth=0", "--window=0"},
	}
	for name, options := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := oracle.New(t)
			r.Seed(oracle.History{Seed: 7, Commits: 60, Merges: true, Tags: true, Binary: true})
			w := newWorld(t, odb.Options{CacheBytes: 1 << 20})
			w.addRepository(r, options...)
			w.Reopen()
			w.CheckAll()
			w.With(func(v *odb.View) {
				checkRegions(t, v)
				checkEntries(t, w, v)
				checkLookups(t, w, v)
				checkGraph(t, w, v)
			})
			report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{})
			if err != nil || report.ProblemCount > 0 || report.ObjectCount != int64(len(w.Objects)) {
				t.Fatalf("fsck: %+v, %v; want %d objects without problems", report, err, len(w.Objects))
			}
		})
	}
}

// checkRegions asks git whether data regions are packs.
func checkRegions(t *testing.T, v *odb.View) {
	t.Helper()
	segments := v.Segments()
	if len(segments) == 0 {
		t.Fatal("there is no segment")
	}
	for _, l := range segments {
		g, err := l.Acquire(t.Context())
		odbtest.Must(t, err)
		data := make([]byte, g.DataSize)
		err = segment.ReadFull(t.Context(), g.Handle, data, 0)
		l.Release(g)
		odbtest.Must(t, err)
		oracle.New(t).Input(data, "index-pack", "--strict", "--stdin")
	}
}

// checkEntries inflates every stored entry as a client does that gets it verbatim.
func checkEntries(t *testing.T, w *world, v *odb.View) {
	t.Helper()
	for id, want := range w.Objects {
		e, err := v.Entry(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		read, err := payload(t.Context(), v, &e)
		if err != nil || int64(len(read)) != e.PayloadSize {
			t.Fatalf("payload of %s: %d bytes, %v, want %d", id, len(read), err, e.PayloadSize)
		}
		if e.Type != want.Type || e.Size != int64(len(want.Data)) {
			t.Fatalf("entry of %s is a %s of %d bytes", id, e.Type, e.Size)
		}
		if e.Encoding != odb.EncodingZlib {
			continue
		}
		content, _, err := pack.Inflate(nil, read, e.ContentSize)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := w.Objects[e.Base]; e.Delta() != ok || (!e.Delta() && !bytes.Equal(content, want.Data)) {
			t.Fatalf("entry of %s, base %s, does not hold it", id, e.Base)
		}
	}
}

// payload returns the compressed bytes of an entry.
func payload(ctx context.Context, v *odb.View, e *odb.StoredEntry) ([]byte, error) {
	var b bytes.Buffer
	err := v.CopyPacked(ctx, &b, e)
	return b.Bytes(), err
}

// checkLookups compares batch lookups with single ones, and abbreviations with a scan over all IDs.
func checkLookups(t *testing.T, w *world, v *odb.View) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	var known, asked []object.ID
	for id := range w.Objects {
		known = append(known, id)
		absent := id
		absent[19] ^= 1
		asked = append(asked, id, absent, object.ID(odbtest.Noise(random, 20)))
	}
	slices.SortFunc(known, object.ID.Compare)
	slices.SortFunc(asked, object.ID.Compare)
	together, single, err := lookupMany(t.Context(), v, asked)
	if err != nil || !slices.Equal(together, known) || !slices.Equal(single, known) {
		t.Fatalf("%d asked: %d found together, %d one by one, %v; want %d", len(asked), len(together), len(single), err,
			len(known))
	}
	for _, id := range asked {
		ok, err := v.Has(t.Context(), id)
		if _, want := w.Objects[id]; err != nil || ok != want {
			t.Fatalf("Has(%s) = %v, %v", id, ok, err)
		}
		prefix := id.String()[:4+random.IntN(36)]
		var want []object.ID
		for _, k := range known {
			if strings.HasPrefix(k.String(), prefix) {
				want = append(want, k)
			}
		}
		if got, err := v.Resolve(t.Context(), prefix); err != nil || !slices.Equal(got, want) {
			t.Fatalf("Resolve(%s) = %v, %v, want %v", prefix, got, err, want)
		}
	}
}

// lookupMany returns those of the sorted ids that the segments of a view hold, as the batch lookup
// and as single lookups find them.
func lookupMany(ctx context.Context, v *odb.View, ids []object.ID) (together, single []object.ID, err error) {
	for _, l := range v.Segments() {
		g, err := l.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer l.Release(g)
		err = g.LookupMany(ctx, ids, func(index int, ordinal uint32) error {
			id, err := g.ID(ctx, ordinal)
			if id != ids[index] {
				return fmt.Errorf("ordinal %d is %s, not %s", ordinal, id, ids[index])
			}
			together = append(together, id)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		for _, id := range ids {
			_, ok, err := g.Lookup(ctx, id)
			if err != nil {
				return nil, nil, err
			}
			if ok {
				single = append(single, id)
			}
		}
	}
	return together, single, nil
}

func checkGraph(t *testing.T, w *world, v *odb.View) {
	t.Helper()
	for id, c := range w.Objects {
		row, err := v.Graph(t.Context(), id)
		if c.Type != object.TypeCommit {
			if err == nil {
				t.Fatalf("%s %s has a graph row", c.Type, id)
			}
			continue
		}
		want, parseErr := object.ParseCommit(c.Data)
		if err != nil || parseErr != nil || row.Tree != want.Tree || !slices.Equal(row.Parents, want.Parents) {
			t.Fatalf("row of %s: %+v, %v, %v", id, row, err, parseErr)
		}
	}
}

// TestSegmentOfAPIWrites has git check the segments that a quarantine writes itself.
func TestSegmentOfAPIWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(5, 6))
	d := w.Draft()
	var entries []object.TreeEntry
	for i := range 30 {
		blob := d.Write(object.TypeBlob, odbtest.Text(random, random.IntN(1000)), object.ZeroID)
		entries = append(entries, odbtest.FileEntry("small"+strconv.Itoa(i), blob))
	}
	entries = append(entries,
		odbtest.FileEntry("text", d.WriteFrom(odbtest.Text(random, 5<<20+17))),
		odbtest.FileEntry("noise", d.WriteFrom(odbtest.Noise(random, 3<<20))),
		odbtest.FileEntry("medium", d.Write(object.TypeBlob, odbtest.Noise(random, 300<<10), object.ZeroID)))
	object.SortTree(entries)
	tree := d.Write(object.TypeTree, odbtest.TreeOf(entries...), object.ZeroID)
	d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1_700_000_000), object.ZeroID)
	if d.Quarantine.Count() != len(entries)+2 || d.Quarantine.PackedBytes() < 3<<20 {
		t.Fatalf("quarantine has %d objects in %d bytes", d.Quarantine.Count(), d.Quarantine.PackedBytes())
	}
	d.Commit()
	w.CheckAll()
	w.With(func(v *odb.View) {
		checkRegions(t, v)
		checkEntries(t, w, v)
		checkLookups(t, w, v)
	})
}
