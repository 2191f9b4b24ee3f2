package odb_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/pack"
	"packhorse/pack/object"
)

// addRepository commits all objects of a repository as one segment, packed by git with the given
// options.
func (w *world) addRepository(r *oracle.Repository, options ...string) {
	w.Helper()
	args := append([]string{"pack-objects", "--all", "--stdout", "--quiet"}, options...)
	packed := r.Input(nil, args...)
	d := w.draft()
	w.must(d.q.AddPack(w.Context(), packed))
	d.commit()
	reachable := r.Input(nil, "rev-list", "--objects", "--all", "--no-object-names")
	for batch := r.Input(reachable, "cat-file", "--batch"); len(batch) > 0; {
		line, rest, _ := bytes.Cut(batch, []byte("\n"))
		fields := strings.Fields(string(line))
		t, err := object.ParseType(fields[1])
		w.must(err)
		size, err := strconv.Atoi(fields[2])
		w.must(err)
		w.objects[mustID(w, fields[0])] = content{kind: t, data: rest[:size]}
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
			w.reopen()
			w.checkAll()
			w.with(func(v *odb.View) {
				checkRegions(t, v)
				checkEntries(t, w, v)
				checkLookups(t, w, v)
				checkGraph(t, w, v)
			})
			report, err := w.store.Fsck(t.Context(), w.pool, odb.FsckOptions{})
			if err != nil || report.ProblemCount > 0 || report.ObjectCount != int64(len(w.objects)) {
				t.Fatalf("fsck: %+v, %v; want %d objects without problems", report, err, len(w.objects))
			}
		})
	}
}

// checkRegions asks git whether data regions are packs.
func checkRegions(t *testing.T, v *odb.View) {
	t.Helper()
	stored, err := odb.DataRegions(t.Context(), v)
	if err != nil || len(stored) == 0 {
		t.Fatalf("%d data regions, %v", len(stored), err)
	}
	for i := range stored {
		r := oracle.New(t)
		r.Input(stored[i], "index-pack", "--strict", "--stdin")
	}
}

// checkEntries inflates every stored entry as a client does that gets it verbatim.
func checkEntries(t *testing.T, w *world, v *odb.View) {
	t.Helper()
	for id, want := range w.objects {
		e, err := v.Entry(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		read, err := odb.Payload(t.Context(), v, &e)
		if err != nil || int64(len(read)) != e.PayloadSize {
			t.Fatalf("payload of %s: %d bytes, %v, want %d", id, len(read), err, e.PayloadSize)
		}
		if e.Type != want.kind || e.Size != int64(len(want.data)) {
			t.Fatalf("entry of %s is a %s of %d bytes", id, e.Type, e.Size)
		}
		if e.Encoding != odb.EncodingZlib {
			continue
		}
		content, _, err := pack.Inflate(nil, read, e.ContentSize)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := w.objects[e.Base]; e.Delta() != ok || (!e.Delta() && !bytes.Equal(content, want.data)) {
			t.Fatalf("entry of %s, base %s, does not hold it", id, e.Base)
		}
	}
}

// checkLookups compares batch lookups with single ones, and abbreviations with a scan over all IDs.
func checkLookups(t *testing.T, w *world, v *odb.View) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	var known, asked []object.ID
	for id := range w.objects {
		known = append(known, id)
		absent := id
		absent[19] ^= 1
		asked = append(asked, id, absent, object.ID(noise(random, 20)))
	}
	slices.SortFunc(known, object.ID.Compare)
	slices.SortFunc(asked, object.ID.Compare)
	together, single, err := odb.LookupMany(t.Context(), v, asked)
	if err != nil || !slices.Equal(together, known) || !slices.Equal(single, known) {
		t.Fatalf("%d asked: %d found together, %d one by one, %v; want %d", len(asked), len(together), len(single), err,
			len(known))
	}
	for _, id := range asked {
		ok, err := v.Has(t.Context(), id)
		if _, want := w.objects[id]; err != nil || ok != want {
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

func checkGraph(t *testing.T, w *world, v *odb.View) {
	t.Helper()
	for id, c := range w.objects {
		row, err := v.Graph(t.Context(), id)
		if c.kind != object.TypeCommit {
			if err == nil {
				t.Fatalf("%s %s has a graph row", c.kind, id)
			}
			continue
		}
		want, parseErr := object.ParseCommit(c.data)
		if err != nil || parseErr != nil || row.Tree != want.Tree || !slices.Equal(row.Parents, want.Parents) {
			t.Fatalf("row of %s: %+v, %v, %v", id, row, err, parseErr)
		}
	}
}

// TestSegmentOfAPIWrites holds what a quarantine writes by itself against git.
func TestSegmentOfAPIWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(5, 6))
	d := w.draft()
	var entries []object.TreeEntry
	for i := range 30 {
		entries = append(entries,
			fileEntry("small"+strconv.Itoa(i), d.write(object.TypeBlob, text(random, random.IntN(1000)), object.ZeroID)))
	}
	entries = append(entries,
		fileEntry("text", d.writeFrom(text(random, 5<<20+17))),
		fileEntry("noise", d.writeFrom(noise(random, 3<<20))),
		fileEntry("medium", d.write(object.TypeBlob, noise(random, 300<<10), object.ZeroID)))
	object.SortTree(entries)
	tree := d.write(object.TypeTree, treeOf(entries...), object.ZeroID)
	d.write(object.TypeCommit, commitOf(tree, 1_700_000_000), object.ZeroID)
	if d.q.Count() != len(entries)+2 || d.q.PackedBytes() < 3<<20 {
		t.Fatalf("quarantine has %d objects in %d bytes", d.q.Count(), d.q.PackedBytes())
	}
	d.commit()
	w.checkAll()
	w.with(func(v *odb.View) {
		checkRegions(t, v)
		checkEntries(t, w, v)
		checkLookups(t, w, v)
	})
}
