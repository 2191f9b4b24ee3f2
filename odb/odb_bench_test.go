package odb_test

import (
	"math/rand/v2"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// benchWorld returns some thousand objects in a segment, and their IDs by type in random order.
func benchWorld(b *testing.B) (*world, map[object.Type][]object.ID) {
	b.Helper()
	r := oracle.New(b)
	r.Seed(oracle.History{Seed: 1, Commits: 800, Files: 200})
	w := newWorld(b, odb.Options{})
	w.addRepository(r, "--delta-base-offset")
	byType := make(map[object.Type][]object.ID)
	for id, c := range w.Objects {
		byType[c.Type] = append(byType[c.Type], id)
	}
	return w, byType
}

func BenchmarkLookup(b *testing.B) {
	w, byType := benchWorld(b)
	ids := byType[object.TypeBlob]
	v := w.View()
	defer v.Close()
	absent := object.ID{1, 2, 3}
	b.Run("found", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if ok, err := v.Has(b.Context(), ids[i%len(ids)]); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("absent", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			absent[0], absent[1] = byte(i), byte(i>>8)
			if ok, err := v.Has(b.Context(), absent); ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("graph", func(b *testing.B) {
		ids := byType[object.TypeCommit]
		for i := 0; b.Loop(); i++ {
			if _, err := v.Graph(b.Context(), ids[i%len(ids)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	w, byType := benchWorld(b)
	for name, t := range map[string]object.Type{"tree": object.TypeTree, "blob": object.TypeBlob} {
		b.Run(name, func(b *testing.B) {
			v := w.View()
			defer v.Close()
			ids := byType[t]
			bytes := 0
			for i := 0; b.Loop(); i++ {
				_, data, err := v.Read(b.Context(), ids[i%len(ids)])
				if err != nil {
					b.Fatal(err)
				}
				bytes += len(data)
			}
			b.SetBytes(int64(bytes / b.N))
		})
	}
}

// BenchmarkWriteHot commits one file: a blob, a tree of 500 entries, a commit.
func BenchmarkWriteHot(b *testing.B) {
	w := newWorld(b, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	var entries []object.TreeEntry
	for i := range 500 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		entries = append(entries, odbtest.FileEntry(name, object.ID(odbtest.Noise(random, 20))))
	}
	object.SortTree(entries)
	data := odbtest.Text(random, 4000)
	var blob, tree, tip object.ID
	var folder []byte
	for i := 0; b.Loop(); i++ {
		d := w.Draft()
		data = odbtest.Edited(random, data)
		blob = write(d, object.TypeBlob, data, blob)
		entries[i%len(entries)].ID = blob
		folder = object.AppendTree(folder[:0], entries)
		tree = write(d, object.TypeTree, folder, tree)
		var parents []object.ID
		if !tip.IsZero() {
			parents = []object.ID{tip}
		}
		tip = write(d, object.TypeCommit, odbtest.CommitOf(tree, i, parents...), object.ZeroID)
		w.Must(d.Quarantine.Refresh(b.Context()))
		batch := kv.NewBatch()
		w.Must(d.Quarantine.Stage(b.Context(), batch))
		_, err := w.Keys.Apply(b.Context(), batch)
		w.Must(err)
		d.Quarantine.Settled(b.Context())
		w.Must(d.Quarantine.Close())
	}
}

func write(d *odbtest.Draft, t object.Type, data []byte, predecessor object.ID) object.ID {
	id, err := d.Quarantine.Write(d.Context(), t, data, predecessor)
	d.Must(err)
	return id
}

func BenchmarkWriteBlobFrom(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	const size = 64 << 20
	for name, data := range map[string][]byte{"text": odbtest.Text(random, size), "noise": odbtest.Noise(random, size)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for i := 0; b.Loop(); i++ {
				w := newWorld(b, odb.Options{})
				d := w.Draft()
				data[0] = byte(i)
				d.WriteFrom(data)
				w.Must(d.Quarantine.Seal(b.Context()))
				d.Discard()
			}
		})
	}
}
