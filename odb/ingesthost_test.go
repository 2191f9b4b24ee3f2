package odb_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the trailer of a packfile is a SHA-1
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// ingestHost is a store in memory with one pool.
type ingestHost struct {
	tb    testing.TB
	fs    *vfs.MemFS
	keys  kv.Store
	files file.Store
	store *odb.Store
	pool  odb.PoolID
}

func newIngestHost(tb testing.TB, options odb.Options) *ingestHost {
	tb.Helper()
	h := &ingestHost{tb: tb, fs: vfs.NewMem()}
	h.open(h.fs, "", options)
	return h
}

// open opens the stores below dir of fs, and makes the pool.
func (h *ingestHost) open(fs vfs.FS, dir string, options odb.Options) {
	h.tb.Helper()
	ctx := h.tb.Context()
	keys, err := kv.OpenPebble(fs.PathJoin(dir, "keys"), kv.PebbleOptions{FS: fs})
	h.must(err)
	files, err := file.OpenDir(fs.PathJoin(dir, "files"), file.DirOptions{FS: fs, ServerID: "test"})
	h.must(err)
	h.keys, h.files = keys, files
	h.store, err = odbtest.OpenOn(ctx, keys, files, options)
	h.must(err)
	batch := kv.NewBatch()
	h.pool = h.store.CreatePool(batch)
	_, err = keys.Apply(ctx, batch)
	h.must(err)
	h.tb.Cleanup(func() {
		ctx := context.Background() //nolint:usetesting // the test's own has ended
		if err := errors.Join(h.store.Close(ctx), files.Close(), keys.Close()); err != nil {
			h.tb.Errorf("close: %v", err)
		}
	})
}

func (h *ingestHost) must(err error) {
	h.tb.Helper()
	if err != nil {
		h.tb.Fatal(err)
	}
}

func (h *ingestHost) view() *odb.View {
	h.tb.Helper()
	v, err := h.store.View(h.tb.Context(), h.pool)
	h.must(err)
	h.tb.Cleanup(func() { h.must(v.Close()) })
	return v
}

// push ingests a pack and commits what it holds.
func (h *ingestHost) push(packed []byte, options ingest.Options) (ingest.Stats, error) {
	h.tb.Helper()
	ctx := h.tb.Context()
	v := h.view()
	in, err := ingest.Read(ctx, v, bytes.NewReader(packed), options)
	if err != nil {
		return ingest.Stats{}, err
	}
	defer in.Close()
	q, stats, err := in.Resolve(ctx, nil)
	if err != nil {
		return stats, err
	}
	defer func() { h.must(q.Close()) }()
	batch := kv.NewBatch()
	h.must(q.Stage(ctx, batch))
	_, err = h.keys.Apply(ctx, batch)
	h.must(err)
	q.Settled(ctx)
	h.store.AwaitSettled()
	return stats, nil
}

// fsck checks the whole pool.
func (h *ingestHost) fsck() {
	h.tb.Helper()
	report, err := h.store.Fsck(h.tb.Context(), h.pool, odb.FsckOptions{})
	h.must(err)
	for _, problem := range report.Problems {
		h.tb.Errorf("fsck: %s", problem)
	}
}

// leftovers returns the names of the files that the store of files holds.
func (h *ingestHost) leftovers() []string {
	h.tb.Helper()
	var names []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := h.fs.List(dir)
		if err != nil {
			return
		}
		for _, name := range entries {
			path := h.fs.PathJoin(dir, name)
			if info, err := h.fs.Stat(path); err == nil && info.IsDir() {
				walk(path)
			} else if strings.Contains(name, ".segment") || strings.Contains(name, ".graph") ||
				strings.Contains(path, "scratch") {
				names = append(names, name)
			}
		}
	}
	walk("files")
	return names
}

// testEntry is an entry of a pack that a test puts together. Fields of the header may lie.
type testEntry struct {
	kind pack.EntryKind
	data []byte    // of the object or of the delta
	base int       // of an ofs-delta: index of the entry
	id   object.ID // of the base of a ref-delta
	size int64     // stated, if not 0
}

func whole(t object.Type, data []byte) testEntry {
	return testEntry{kind: pack.EntryKind(t), data: data}
}

// deltaOf returns the delta that builds target from base.
func deltaOf(tb testing.TB, base, target []byte) []byte {
	tb.Helper()
	made, ok := delta.NewIndex(base).Create(nil, target, len(target)+64)
	if !ok {
		tb.Fatal("no delta")
	}
	return made
}

// encodePack returns a pack of entries.
func encodePack(entries ...testEntry) []byte {
	var offsets []int64
	packed := pack.Header{Version: 2, Count: uint32(len(entries))}.Append(nil)
	for _, e := range entries {
		offset := int64(len(packed))
		header := pack.EntryHeader{Kind: e.kind, Size: int64(len(e.data)), BaseID: e.id}
		if e.size != 0 {
			header.Size = e.size
		}
		if e.kind == pack.KindOFSDelta {
			header.BaseDistance = offset - offsets[e.base]
		}
		offsets = append(offsets, offset)
		packed = pack.Deflate(header.Append(packed), e.data, pack.LevelFast)
	}
	return sealPack(packed)
}

// sealPack appends the right trailer.
func sealPack(body []byte) []byte {
	sum := sha1.Sum(body) //nolint:gosec // as above
	return append(slices.Clone(body), sum[:]...)
}

func mustHash(tb testing.TB, t object.Type, data []byte) object.ID {
	tb.Helper()
	id, err := object.Hash(t, data)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// reachable returns the objects that the refs of a repository reach, each as "<id> <type> <size>".
func reachable(git *oracle.Repository) []string {
	ids := git.Input(nil, "rev-list", "--all", "--objects", "--no-object-names")
	return strings.Split(strings.TrimSpace(string(git.Input(ids, "cat-file", "--batch-check"))), "\n")
}

// compare checks that everything that git's refs reach reads back from v as git has it.
func compare(tb testing.TB, v *odb.View, git *oracle.Repository) {
	tb.Helper()
	ctx := tb.Context()
	for _, line := range reachable(git) {
		var hex, typeName string
		var size int64
		if _, err := fmt.Sscanf(line, "%s %s %d", &hex, &typeName, &size); err != nil {
			tb.Fatal(err)
		}
		id, err := object.ParseID(hex)
		if err != nil {
			tb.Fatal(err)
		}
		t, data, err := v.Read(ctx, id)
		if err != nil {
			tb.Fatalf("read %s %s: %v", typeName, hex, err)
		}
		if t.String() != typeName || int64(len(data)) != size || mustHash(tb, t, data) != id {
			tb.Fatalf("%s %s of %d bytes reads back as %s of %d", typeName, hex, size, t, len(data))
		}
		if info, err := v.Stat(ctx, id); err != nil || info.Type != t || info.Size != size {
			tb.Fatalf("stat %s: %+v, %v", hex, info, err)
		}
	}
}

// packAll returns a pack of everything that main and the tags reach.
func packAll(git *oracle.Repository, args ...string) []byte {
	return git.Input(nil, append([]string{"pack-objects", "--revs", "--all", "--stdout", "-q"}, args...)...)
}
