package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

func TestIngestRefusals(t *testing.T) {
	t.Parallel()
	blob := []byte("blob\n")
	blobID := packtest.Hash(t, object.TypeBlob, blob)
	missing := object.ID{1, 2, 3}
	deltaTo := func(target string) []byte { return packtest.DeltaOf(t, blob, []byte(target)) }
	pathOf := func(depth int, name string) []packtest.Entry {
		entries := []packtest.Entry{packtest.Whole(object.TypeBlob, blob)}
		id, mode := blobID, object.ModeBlob
		for range depth {
			data := odbtest.TreeOf(object.TreeEntry{Mode: mode, Name: name, ID: id})
			entries = append(entries, packtest.Whole(object.TypeTree, data))
			id, mode = packtest.Hash(t, object.TypeTree, data), object.ModeTree
		}
		return entries
	}
	small := odb.Limits{
		ObjectBytes: 1000, PackBytes: 5000, PackCount: 60, InflatedBytes: 20_000, InflatedRatio: 2, DeltaDepth: 3,
		TreeDepth: 20,
	}
	tests := map[string]struct {
		entries []packtest.Entry
		raw     func(packed []byte) []byte
		limits  odb.Limits
		check   func(error) bool
	}{
		"missing blob": {
			entries: []packtest.Entry{
				packtest.Whole(object.TypeTree, odbtest.TreeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "a", ID: missing})),
			},
			check: func(err error) bool {
				var e *ingest.MissingError
				tree := odbtest.TreeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "a", ID: missing})
				return errors.As(err, &e) && e.Object == missing && e.From == packtest.Hash(t, object.TypeTree, tree)
			},
		},
		"tree is a blob": {
			entries: []packtest.Entry{
				packtest.Whole(object.TypeBlob, blob), packtest.Whole(object.TypeCommit, odbtest.CommitOf(blobID, 1)),
			},
			check: func(err error) bool {
				var e *ingest.WrongTypeError
				return errors.As(err, &e) &&
					*e == ingest.WrongTypeError{Object: blobID, Type: object.TypeBlob, Want: object.TypeTree}
			},
		},
		"bad tree": {
			entries: []packtest.Entry{packtest.Whole(object.TypeBlob, blob), packtest.Whole(object.TypeTree,
				odbtest.TreeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "..", ID: blobID}))},
			check: func(err error) bool {
				var e *ingest.BadObjectError
				var check *object.CheckError
				return errors.As(err, &e) && e.Type == object.TypeTree && errors.As(err, &check) && check.Name == "hasDotdot"
			},
		},
		"deltas that are their own bases": {
			entries: []packtest.Entry{
				{Kind: pack.KindRefDelta, BaseID: missing, Data: deltaTo("a")},
				{Kind: pack.KindRefDelta, BaseID: missing, Data: deltaTo("b")},
			},
			check: func(err error) bool {
				var e *ingest.UnresolvedError
				return errors.As(err, &e) && e.Count == 2 && e.Base == missing
			},
		},
		"base that is no entry": {
			entries: []packtest.Entry{packtest.Whole(object.TypeBlob, blob), {Kind: pack.KindOFSDelta, Data: deltaTo("a")}},
			raw: func(packed []byte) []byte {
				body := slices.Clone(packed[:len(packed)-pack.TrailerSize])
				i := bytes.LastIndex(body, []byte{0x78, 0x01})
				body[i-1]--
				return packtest.Seal(body)
			},
			check: ingest.IsBadPack,
		},
		"delta for another base": {
			entries: []packtest.Entry{
				packtest.Whole(object.TypeBlob, []byte("shorter")), {Kind: pack.KindOFSDelta, Data: deltaTo("a")},
			},
			check: func(err error) bool {
				var e *ingest.BadEntryError
				return errors.As(err, &e) && errors.Is(err, delta.ErrCorrupt)
			},
		},
		"bytes behind the pack": {
			entries: []packtest.Entry{packtest.Whole(object.TypeBlob, blob)},
			raw:     func(packed []byte) []byte { return append(packed, 0) },
			check:   ingest.IsBadPack,
		},
		"cut off": {
			entries: []packtest.Entry{packtest.Whole(object.TypeBlob, blob)},
			raw:     func(packed []byte) []byte { return packed[:len(packed)-1] },
			check:   func(err error) bool { return ingest.IsBadPack(err) && errors.Is(err, io.ErrUnexpectedEOF) },
		},
		"object too large": {
			entries: []packtest.Entry{packtest.Whole(object.TypeBlob, make([]byte, 1001))}, limits: small,
			check: limitOf("object size"),
		},
		"result too large": {
			entries: []packtest.Entry{packtest.Whole(object.TypeBlob, make([]byte, 100)), {
				Kind: pack.KindOFSDelta, Data: packtest.DeltaOf(t, make([]byte, 100), bytes.Repeat(make([]byte, 100), 11)),
			}},
			limits: small, check: limitOf("object size"),
		},
		"pack too large": {
			entries: slices.Repeat([]packtest.Entry{
				packtest.Whole(object.TypeBlob, odbtest.Noise(rand.New(rand.NewPCG(1, 2)), 900)),
			}, 7),
			limits: small, check: limitOf("pack size"),
		},
		"too many objects": {
			entries: slices.Repeat([]packtest.Entry{packtest.Whole(object.TypeBlob, blob)}, 61), limits: small,
			check: limitOf("object count"),
		},
		"inflates too much": {
			entries: slices.Repeat([]packtest.Entry{packtest.Whole(object.TypeBlob, make([]byte, 900))}, 30), limits: small,
			check: limitOf("inflated size"),
		},
		"chain too long": {
			entries: []packtest.Entry{
				packtest.Whole(object.TypeBlob, blob),
				{Kind: pack.KindOFSDelta, Base: 0, Data: packtest.DeltaOf(t, blob, blob)},
				{Kind: pack.KindOFSDelta, Base: 1, Data: packtest.DeltaOf(t, blob, blob)},
				{Kind: pack.KindOFSDelta, Base: 2, Data: packtest.DeltaOf(t, blob, blob)},
				{Kind: pack.KindOFSDelta, Base: 3, Data: packtest.DeltaOf(t, blob, blob)},
			},
			limits: small, check: limitOf("delta depth"),
		},
		"trees too deep": {entries: pathOf(21, "d"), limits: small, check: limitOf("tree depth")},
		"path too long":  {entries: pathOf(18, strings.Repeat("n", 250)), check: limitOf("path length")},
		"name too long": {entries: pathOf(1, strings.Repeat("n", 256)), check: func(err error) bool {
			return errors.Is(err, object.ErrNameTooLong)
		}},
		"bad .gitmodules": {
			entries: []packtest.Entry{
				packtest.Whole(object.TypeBlob, []byte("[submodule \"../x\"]\n\turl = a\n")),
				packtest.Whole(object.TypeTree, odbtest.TreeOf(object.TreeEntry{
					Mode: object.ModeBlob, Name: ".gitmodules", ID: packtest.Hash(t, object.TypeBlob,
						[]byte("[submodule \"../x\"]\n\turl = a\n")),
				})),
			},
			check: ingest.IsBadPack,
		},
		"gitlink called .gitmodules": {
			entries: []packtest.Entry{
				packtest.Whole(object.TypeTree,
					odbtest.TreeOf(object.TreeEntry{Mode: object.ModeGitlink, Name: ".gitmodules", ID: missing})),
			},
			check: checkOf("gitmodulesMissing"),
		},
		"folder called .gitattributes": {
			entries: []packtest.Entry{
				packtest.Whole(object.TypeTree, nil),
				packtest.Whole(object.TypeTree,
					odbtest.TreeOf(object.TreeEntry{Mode: object.ModeTree, Name: "GITATT~1", ID: object.EmptyTreeID})),
			},
			check: checkOf("gitattributesBlob"),
		},
		"delta that makes nothing": {
			entries: []packtest.Entry{packtest.Whole(object.TypeBlob, blob), {Kind: pack.KindOFSDelta, Data: []byte{5, 0}}},
			check: func(err error) bool {
				var e *ingest.BadEntryError
				return errors.As(err, &e) && errors.Is(err, delta.ErrCorrupt) && ingest.IsBadPack(err)
			},
		},
		"delta of three bytes against an ID": {
			entries: []packtest.Entry{packtest.Whole(object.TypeBlob, make([]byte, 300)), {
				Kind: pack.KindRefDelta, BaseID: packtest.Hash(t, object.TypeBlob, make([]byte, 300)), Data: []byte{0xac, 2, 0},
			}},
			check: func(err error) bool { return errors.Is(err, delta.ErrCorrupt) && ingest.IsBadPack(err) },
		},
	}
	for name, test := range tests {
		for tier, count := range map[string]int{"hot": 0, "segment": 1} {
			t.Run(name+", "+tier, func(t *testing.T) {
				t.Parallel()
				limits := test.limits
				if count == 1 {
					limits.HotValueBytes = 1
				}
				h := odbtest.NewPool(t, odb.Options{Limits: limits})
				packed := packtest.Encode(test.entries...)
				if test.raw != nil {
					packed = test.raw(packed)
				}
				_, err := h.Push(packed, ingest.Options{})
				if !test.check(err) {
					t.Errorf("unexpected error: %v", err)
				}
				if left := leftovers(h); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		}
	}
}

func checkOf(name string) func(error) bool {
	return func(err error) bool {
		var check *object.CheckError
		return errors.As(err, &check) && check.Name == name && ingest.IsBadPack(err)
	}
}

func limitOf(limit string) func(error) bool {
	return func(err error) bool {
		var e *pack.LimitError
		return errors.As(err, &e) && e.Limit == limit && e.Value > e.Max && !ingest.IsBadPack(err)
	}
}

// brokenReader fails at the end of its bytes.
type brokenReader struct {
	io.Reader
	err error
}

func (b *brokenReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

func TestIngestReadErrorLeavesNothing(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 5, Commits: 50})
	packed := odbtest.PackAll(git)
	gone := errors.New("the client is gone")
	for _, size := range []int{0, 5, 12, 500, len(packed) / 2, len(packed) - 1} {
		h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
		_, err := ingest.Read(t.Context(), h.View(), &brokenReader{Reader: bytes.NewReader(packed[:size]), err: gone},
			ingest.Options{})
		if !errors.Is(err, gone) || ingest.IsBadPack(err) {
			t.Errorf("cut at %d: %v", size, err)
		}
		if left := leftovers(h); len(left) > 0 {
			t.Errorf("cut at %d: left behind %q", size, left)
		}
	}
}

func TestIngestCancelled(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 6, Commits: 50})
	packed := odbtest.PackAll(git)
	why := errors.New("enough")
	h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := ingest.Read(ctx, h.View(), bytes.NewReader(packed), ingest.Options{}); !errors.Is(err, why) {
		t.Errorf("ingest: %v", err)
	}
	in, err := ingest.Read(t.Context(), h.View(), bytes.NewReader(packed), ingest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := in.Resolve(ctx, nil); !errors.Is(err, why) {
		t.Errorf("resolve: %v", err)
	}
	if _, _, err := in.Resolve(t.Context(), nil); !errors.Is(err, odb.ErrClosed) {
		t.Errorf("resolve again: %v", err)
	}
	if left := leftovers(h); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// leftovers returns the names of the segments, their auxiliary files and the scratch files that the
// file store of a pool holds. A file that moves to its place meanwhile is among them.
func leftovers(h *odbtest.Pool) []string {
	h.Helper()
	names := make(map[string]bool)
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := h.FS.List(dir)
		if err != nil {
			return
		}
		for _, name := range entries {
			path := h.FS.PathJoin(dir, name)
			if info, err := h.FS.Stat(path); err == nil && info.IsDir() {
				walk(path)
			} else if strings.Contains(name, ".segment") || strings.Contains(name, ".graph") ||
				strings.Contains(path, "scratch") {
				names[name] = true
			}
		}
	}
	walk("files/incoming") // first, where files come from
	walk("files")
	return slices.Sorted(maps.Keys(names))
}
