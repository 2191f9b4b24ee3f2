package pack_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/fuzz/oracle"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// readEntry is an entry with its content.
type readEntry struct {
	pack.Entry
	content []byte
}

// readAll reads a pack entry by entry, in the way that how names.
func readAll(src io.Reader, options pack.ReaderOptions, how string) (entries []readEntry, err error) {
	r := pack.NewReader(src, options)
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return entries, nil
		} else if err != nil {
			return entries, err
		}
		var content []byte
		switch how {
		case "whole":
			content, err = r.ReadContent(nil)
		case "pieces":
			content, err = io.ReadAll(smallReader{r})
		case "large pieces":
			content, err = io.ReadAll(r)
		case "half":
			content = make([]byte, r.Entry().Size/2)
			_, err = io.ReadFull(r, content)
			content = nil
		case "skip":
		default:
			panic(how)
		}
		if err == nil {
			err = r.Skip()
		}
		if err != nil {
			return entries, err
		}
		entries = append(entries, readEntry{r.Entry(), content})
	}
}

// smallReader reads little at a time.
type smallReader struct{ r io.Reader }

func (r smallReader) Read(p []byte) (int, error) { return r.r.Read(p[:min(len(p), 1000)]) }

// TestReaderAgreesWithGit reads packs of git in every way and compares entries with git's
// description of them.
func TestReaderAgreesWithGit(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	r.Seed(oracle.History{Seed: 2, Commits: 30, Merges: true, Tags: true, Binary: true})
	for _, size := range []int{250 << 10, 256 << 10, 300 << 10, 600 << 10} {
		r.Git("update-ref", "refs/tags/large-"+strconv.Itoa(size), r.Write("blob", incompressible(size)))
	}
	r.Git("update-ref", "refs/tags/zeros", r.Write("blob", make([]byte, 600<<10)))
	for _, args := range [][]string{
		{}, {"--delta-base-offset"}, {"--no-reuse-object", "--window=0"}, {"--compression=0"},
	} {
		data := packAll(r, args...)
		want := verifyPack(r, data)
		for _, how := range []string{"whole", "pieces", "large pieces", "half", "skip"} {
			var raw bytes.Buffer
			entries, err := readAll(bytes.NewReader(data), pack.ReaderOptions{Raw: &raw}, how)
			if err != nil {
				t.Fatalf("%v, %s: %v", args, how, err)
			}
			if !bytes.Equal(raw.Bytes(), data) {
				t.Errorf("%v, %s: the raw copy differs", args, how)
			}
			if len(entries) != len(want) {
				t.Fatalf("%v, %s: %d entries, want %d", args, how, len(entries), len(want))
			}
			for i, entry := range entries {
				packed := data[entry.Offset : entry.Offset+entry.PackedSize]
				if entry.CRC32 != crc32.ChecksumIEEE(packed) {
					t.Errorf("%v, %s, entry %d: wrong CRC", args, how, i)
				}
				if w := want[entry.Offset]; w.packedSize != entry.PackedSize || w.size != entry.Size && !entry.Kind.IsDelta() {
					t.Errorf("%v, %s, entry %d: %d bytes packed, %d inflated, git has %+v", args, how, i, entry.PackedSize, entry.Size,
						w)
				}
			}
			if how == "whole" || how == "pieces" || how == "large pieces" {
				compareObjects(t, resolve(t, r, entries), want)
			}
		}
	}
}

func incompressible(size int) []byte {
	sum := sha1.Sum([]byte(strconv.Itoa(size)))
	data := make([]byte, 0, size+20)
	for len(data) < size {
		data = append(data, sum[:]...)
		sum = sha1.Sum(sum[:])
	}
	return data[:size]
}

// packedObject is a line of git verify-pack.
type packedObject struct {
	id, kind         string
	size, packedSize int64
}

// verifyPack returns the objects that git finds in a pack, by offset.
func verifyPack(r *oracle.Repository, data []byte) map[int64]packedObject {
	id := strings.TrimPrefix(strings.TrimSpace(string(r.Input(data, "index-pack", "--stdin", "--fix-thin"))), "pack\t")
	objects := map[int64]packedObject{}
	for line := range strings.Lines(r.Git("verify-pack", "-v", r.Dir+"/objects/pack/pack-"+id+".idx")) {
		var o packedObject
		var offset int64
		if n, _ := fmt.Sscan(line, &o.id, &o.kind, &o.size, &o.packedSize, &offset); n == 5 && len(o.id) == object.HexSize {
			objects[offset] = o
		}
	}
	return objects
}

// resolve returns the ID and content of each entry's object, by offset. Bases that are not in the
// pack come from r.
func resolve(tb testing.TB, r *oracle.Repository, entries []readEntry) map[int64]resolved {
	tb.Helper()
	byOffset, byID := map[int64]resolved{}, map[object.ID]resolved{}
	for progress := true; progress && len(byOffset) < len(entries); {
		progress = false
		for _, entry := range entries {
			if _, done := byOffset[entry.Offset]; done {
				continue
			}
			o, ok := resolveEntry(tb, r, entry, byOffset, byID)
			if !ok {
				continue
			}
			byOffset[entry.Offset], byID[o.id], progress = o, o, true
		}
	}
	return byOffset
}

type resolved struct {
	id   object.ID
	kind object.Type
	data []byte
}

func resolveEntry(
	tb testing.TB, r *oracle.Repository, entry readEntry, byOffset map[int64]resolved, byID map[object.ID]resolved,
) (resolved, bool) {
	tb.Helper()
	o := resolved{kind: entry.Kind.Type(), data: entry.content}
	if entry.Kind.IsDelta() {
		base, ok := byOffset[entry.BaseOffset]
		if entry.Kind == pack.KindRefDelta {
			if base, ok = byID[entry.BaseID]; !ok && r != nil {
				if kind, err := r.Try(nil, "cat-file", "-t", entry.BaseID.String()); err == nil {
					base.kind, _ = object.ParseType(strings.TrimSpace(string(kind)))
					base.data, ok = r.Read(base.kind.String(), entry.BaseID.String()), true
				}
			}
		}
		if !ok {
			return resolved{}, false
		}
		data, err := delta.Apply(nil, base.data, entry.content, 1<<30)
		if err != nil {
			tb.Fatal(err)
		}
		o.kind, o.data = base.kind, data
	}
	id, err := object.Hash(o.kind, o.data)
	if err != nil {
		tb.Fatal(err)
	}
	o.id = id
	return o, true
}

func compareObjects(tb testing.TB, got map[int64]resolved, want map[int64]packedObject) {
	tb.Helper()
	if len(got) != len(want) {
		tb.Errorf("%d objects, git has %d", len(got), len(want))
	}
	for offset, o := range got {
		if w := want[offset]; o.id.String() != w.id || o.kind.String() != w.kind {
			tb.Errorf("at %d: %s %s, git has %s %s", offset, o.kind, o.id, w.kind, w.id)
		}
	}
}

func TestReaderThinPack(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	tip := r.Seed(oracle.History{Seed: 3, Commits: 30})
	thin := r.Input([]byte(tip+"\n^"+tip+"~3\n"), "pack-objects", "--revs", "--thin", "--stdout", "--quiet")
	entries, err := readAll(bytes.NewReader(thin), pack.ReaderOptions{}, "whole")
	if err != nil {
		t.Fatal(err)
	}
	outside := 0
	inside := resolve(t, nil, entries)
	for _, entry := range entries {
		if _, ok := inside[entry.Offset]; !ok {
			outside++
		}
	}
	if outside == 0 {
		t.Error("the pack is not thin: the test shows nothing")
	}
	for _, o := range resolve(t, r, entries) {
		if got := r.Git("cat-file", "-t", o.id.String()); got != o.kind.String() {
			t.Errorf("%s: %s, git has %s", o.id, o.kind, got)
		}
	}
}

func TestReaderSources(t *testing.T) {
	t.Parallel()
	data := seededPack(t, 20)
	want, err := readAll(bytes.NewReader(data), pack.ReaderOptions{}, "whole")
	if err != nil {
		t.Fatal(err)
	}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "data with EOF": iotest.DataErrReader,
	} {
		got, err := readAll(wrap(bytes.NewReader(data)), pack.ReaderOptions{}, "whole")
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: other entries, %v", name, err)
		}
	}
	if _, err := readAll(stuckReader{}, pack.ReaderOptions{}, "whole"); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a source that gives nothing: error %v", err)
	}
}

type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

func TestReaderHeaderRest(t *testing.T) {
	t.Parallel()
	data := seededPack(t, 5)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader,
	} {
		var raw bytes.Buffer
		r := pack.NewReader(wrap(io.MultiReader(bytes.NewReader(data), strings.NewReader("behind"))),
			pack.ReaderOptions{Raw: &raw})
		header, err := r.Header()
		if err != nil || header.Count != binary.BigEndian.Uint32(data[8:]) {
			t.Fatalf("%s: header %+v, %v", name, header, err)
		}
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: Next behind the end: %v", name, err)
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: Read behind the end: %v", name, err)
		}
		if r.Offset() != int64(len(data)) {
			t.Errorf("%s: the pack ends at %d, want %d", name, r.Offset(), len(data))
		}
		if rest, err := io.ReadAll(r.Rest()); err != nil || string(rest) != "behind" {
			t.Errorf("%s: rest %q, %v", name, rest, err)
		}
		if !bytes.Equal(raw.Bytes(), data) {
			t.Errorf("%s: raw has %d bytes, the pack %d", name, raw.Len(), len(data))
		}
	}
}

func TestReaderContentOnce(t *testing.T) {
	t.Parallel()
	r := pack.NewReader(bytes.NewReader(seededPack(t, 5)), pack.ReaderOptions{})
	if _, err := r.ReadContent(nil); !errors.Is(err, io.EOF) {
		t.Errorf("before the first entry: %v", err)
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadContent(nil); err != nil {
		t.Fatal(err)
	}
	if content, err := r.ReadContent([]byte("x")); !errors.Is(err, io.EOF) || string(content) != "x" {
		t.Errorf("a second time: %q, %v", content, err)
	}
}
