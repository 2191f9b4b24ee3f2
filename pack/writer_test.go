package pack_test

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// versions returns count contents, each an edited copy of the one before.
func versions(count int) [][]byte {
	list := make([][]byte, count)
	text := strings.Repeat("a line of the file\nand another one\n", 300)
	for i := range list {
		at := (i * 977) % len(text)
		text = text[:at] + strings.Repeat("inserted in version ", i%5+1) + text[at:]
		list[i] = []byte(text)
	}
	return list
}

func TestWriterPacksAreGits(t *testing.T) {
	t.Parallel()
	contents := versions(12)
	ids := make([]object.ID, len(contents))
	for i, content := range contents {
		id, err := object.Hash(object.TypeBlob, content)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = id
	}
	deltaTo := func(i, base int) []byte {
		program, ok := delta.NewIndex(contents[base]).Create(nil, contents[i], len(contents[i]))
		if !ok {
			t.Fatalf("no delta of %d against %d", i, base)
		}
		return program
	}

	var out bytes.Buffer
	w := packtest.NewWriter(&out, uint32(len(contents)), 0)
	var entries []pack.Entry
	add := func(entry pack.Entry, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if w.Offset() != entry.Offset+entry.PackedSize {
			t.Errorf("entry %d: %d bytes at %d, the writer is at %d", len(entries), entry.PackedSize, entry.Offset, w.Offset())
		}
		entries = append(entries, entry)
	}
	if w.Offset() != pack.HeaderSize {
		t.Errorf("the first entry at %d", w.Offset())
	}
	add(w.WriteWhole(object.TypeBlob, contents[0]))
	for i := 1; i < 4; i++ {
		add(w.WriteOFSDelta(entries[i-1].Offset, deltaTo(i, i-1)))
	}
	add(w.WriteRefDelta(ids[0], deltaTo(4, 0)))
	add(w.WriteRefDelta(ids[6], deltaTo(5, 6))) // the base comes later
	for _, content := range contents[6:] {
		packed := pack.Deflate(nil, content, 9)
		h := pack.EntryHeader{Kind: pack.KindBlob, Size: int64(len(content))}
		add(w.WriteDeflatedFrom(h, bytes.NewReader(packed), int64(len(packed))))
	}
	trailer, err := w.Close()
	if err != nil || !bytes.HasSuffix(out.Bytes(), trailer[:]) {
		t.Fatalf("trailer %x, %v", trailer, err)
	}

	for i, entry := range entries {
		if got := crc32.ChecksumIEEE(out.Bytes()[entry.Offset : entry.Offset+entry.PackedSize]); got != entry.CRC32 {
			t.Errorf("entry %d: CRC %08x, want %08x", i, entry.CRC32, got)
		}
	}
	read, err := readAll(bytes.NewReader(out.Bytes()), pack.ReaderOptions{}, "whole")
	if err != nil {
		t.Fatal(err)
	}
	for i, entry := range entries {
		if read[i].Entry != entry {
			t.Errorf("entry %d: written %+v, read %+v", i, entry, read[i].Entry)
		}
	}
	for _, command := range []string{"index-pack --stdin --strict", "unpack-objects -q --strict"} {
		r := oracle.New(t)
		r.Input(out.Bytes(), strings.Fields(command)...)
		for i, id := range ids {
			if got := r.Read("blob", id.String()); !bytes.Equal(got, contents[i]) {
				t.Errorf("%s: version %d differs", command, i)
			}
		}
	}
}

// TestCreatedDeltasAreGits rewrites every blob of a history as a delta of ours against the one
// before and lets git judge.
func TestCreatedDeltasAreGits(t *testing.T) {
	t.Parallel()
	source := oracle.New(t)
	source.Seed(oracle.History{Seed: 9, Commits: 80, Binary: true})
	var blobs [][]byte
	for _, line := range source.Objects() {
		if id, rest, _ := strings.Cut(line, " "); strings.HasPrefix(rest, "blob") {
			blobs = append(blobs, source.Read("blob", id))
		}
	}
	var out bytes.Buffer
	w := packtest.NewWriter(&out, uint32(len(blobs)), pack.LevelFast)
	var before int64
	index := &delta.Index{}
	for i, blob := range blobs {
		var entry pack.Entry
		var err error
		if i%20 == 0 {
			entry, err = w.WriteWhole(object.TypeBlob, blob)
		} else {
			program, ok := index.Create(nil, blob, 1<<20)
			if !ok {
				t.Fatalf("blob %d: no delta", i)
			}
			entry, err = w.WriteOFSDelta(before, program)
		}
		if err != nil {
			t.Fatal(err)
		}
		before = entry.Offset
		index.Reset(blob)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := oracle.New(t)
	r.Input(out.Bytes(), "index-pack", "--stdin")
	want := source.Git("cat-file", "--batch-all-objects", "--batch-check")
	for _, line := range r.Objects() {
		if !strings.Contains(want, line) {
			t.Errorf("git unpacked %s, which the history does not have", line)
		}
	}
	if len(r.Objects()) != len(blobs) {
		t.Errorf("%d blobs, want %d", len(r.Objects()), len(blobs))
	}
}

func TestWriterCount(t *testing.T) {
	t.Parallel()
	w := packtest.NewWriter(io.Discard, 1, 0)
	if _, err := w.Close(); !errors.Is(err, pack.ErrCount) {
		t.Errorf("too few: error %v", err)
	}
	w = packtest.NewWriter(io.Discard, 1, 0)
	for i, want := range []error{nil, pack.ErrCount} {
		if _, err := w.WriteWhole(object.TypeBlob, nil); !errors.Is(err, want) {
			t.Errorf("entry %d: error %v", i, err)
		}
	}
	if _, err := w.Close(); !errors.Is(err, pack.ErrCount) {
		t.Errorf("too many: error %v", err)
	}
}

func TestWriterEmptyPack(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if _, err := pack.NewWriter(&out, 0).Close(); err != nil {
		t.Fatal(err)
	}
	if want := oracle.New(t).Input(nil, "pack-objects", "--stdout", "--quiet"); !bytes.Equal(out.Bytes(), want) {
		t.Errorf("got %x, git writes %x", out.Bytes(), want)
	}
}

func TestWriterErrorsStay(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	w := packtest.NewWriter(failingWriter{full}, 2, 0)
	for range 2 {
		if _, err := w.WriteWhole(object.TypeBlob, []byte("x")); !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := w.Close(); !errors.Is(err, full) {
		t.Errorf("Close: error %v", err)
	}
	w = packtest.NewWriter(io.Discard, 2, 0)
	if _, err := w.WriteDeflatedFrom(pack.EntryHeader{Kind: pack.KindBlob}, strings.NewReader("short"), 6); !errors.Is(err,
		io.ErrUnexpectedEOF) {
		t.Errorf("a short stream: error %v", err)
	}
	if _, err := w.WriteWhole(object.TypeBlob, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after a short stream: error %v", err)
	}
}
