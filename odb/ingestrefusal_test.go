package odb_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the trailer of a packfile is a SHA-1
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

func TestIngestRefusals(t *testing.T) {
	t.Parallel()
	blob := []byte("blob\n")
	blobID := mustHash(t, object.TypeBlob, blob)
	missing := object.ID{1, 2, 3}
	treeOf := func(entries ...object.TreeEntry) []byte { return object.AppendTree(nil, entries) }
	commitOf := func(tree object.ID, parents ...object.ID) []byte {
		c := object.Commit{Tree: tree, Parents: parents, Message: "m\n"}
		c.Author = object.Signature{Name: "A", Email: "a@b", Seconds: 1, Zone: "+0000"}
		c.Committer = c.Author
		return c.Append(nil)
	}
	deltaTo := func(target string) []byte { return deltaOf(t, blob, []byte(target)) }
	pathOf := func(depth int, name string) []testEntry {
		entries := []testEntry{whole(object.TypeBlob, blob)}
		id, mode := blobID, object.ModeBlob
		for range depth {
			data := treeOf(object.TreeEntry{Mode: mode, Name: name, ID: id})
			entries = append(entries, whole(object.TypeTree, data))
			id, mode = mustHash(t, object.TypeTree, data), object.ModeTree
		}
		return entries
	}
	small := odb.Limits{
		ObjectBytes: 1000, PackBytes: 5000, PackCount: 60, InflatedBytes: 20_000, InflatedRatio: 2, DeltaDepth: 3,
		TreeDepth: 20,
	}
	tests := map[string]struct {
		entries []testEntry
		raw     func(packed []byte) []byte
		limits  odb.Limits
		check   func(error) bool
	}{
		"missing blob": {
			entries: []testEntry{
				whole(object.TypeTree, treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "a", ID: missing})),
			},
			check: func(err error) bool {
				var e *ingest.MissingError
				tree := treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "a", ID: missing})
				return errors.As(err, &e) && e.Object == missing && e.From == mustHash(t, object.TypeTree, tree)
			},
		},
		"tree is a blob": {
			entries: []testEntry{whole(object.TypeBlob, blob), whole(object.TypeCommit, commitOf(blobID))},
			check: func(err error) bool {
				var e *ingest.WrongTypeError
				return errors.As(err, &e) &&
					*e == ingest.WrongTypeError{Object: blobID, Type: object.TypeBlob, Want: object.TypeTree}
			},
		},
		"bad tree": {
			entries: []testEntry{whole(object.TypeBlob, blob), whole(object.TypeTree,
				treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "..", ID: blobID}))},
			check: func(err error) bool {
				var e *ingest.BadObjectError
				var check *object.CheckError
				return errors.As(err, &e) && e.Type == object.TypeTree && errors.As(err, &check) && check.Name == "hasDotdot"
			},
		},
		"deltas that are their own bases": {
			entries: []testEntry{
				{
					kind: pack.KindRefDelta, id: missing, data: deltaTo("a"),
				}, {kind: pack.KindRefDelta, id: missing, data: deltaTo("b")},
			},
			check: func(err error) bool {
				var e *ingest.UnresolvedError
				return errors.As(err, &e) && e.Count == 2 && e.Base == missing
			},
		},
		"base that is no entry": {
			entries: []testEntry{whole(object.TypeBlob, blob), {kind: pack.KindOFSDelta, data: deltaTo("a")}},
			raw: func(packed []byte) []byte {
				body := slices.Clone(packed[:len(packed)-pack.TrailerSize])
				i := bytes.LastIndex(body, []byte{0x78, 0x01})
				body[i-1]--
				return sealPack(body)
			},
			check: ingest.IsBadPack,
		},
		"delta for another base": {
			entries: []testEntry{whole(object.TypeBlob, []byte("shorter")), {kind: pack.KindOFSDelta, data: deltaTo("a")}},
			check: func(err error) bool {
				var e *ingest.BadEntryError
				return errors.As(err, &e) && errors.Is(err, delta.ErrCorrupt)
			},
		},
		"bytes behind the pack": {
			entries: []testEntry{whole(object.TypeBlob, blob)},
			raw:     func(packed []byte) []byte { return append(packed, 0) },
			check:   ingest.IsBadPack,
		},
		"cut off": {
			entries: []testEntry{whole(object.TypeBlob, blob)},
			raw:     func(packed []byte) []byte { return packed[:len(packed)-1] },
			check:   func(err error) bool { return ingest.IsBadPack(err) && errors.Is(err, io.ErrUnexpectedEOF) },
		},
		"object too large": {
			entries: []testEntry{whole(object.TypeBlob, make([]byte, 1001))}, limits: small, check: limitOf("object size"),
		},
		"result too large": {
			entries: []testEntry{whole(object.TypeBlob, make([]byte, 100)), {
				kind: pack.KindOFSDelta, data: deltaOf(t, make([]byte, 100), bytes.Repeat(make([]byte, 100), 11)),
			}},
			limits: small, check: limitOf("object size"),
		},
		"pack too large": {
			entries: slices.Repeat([]testEntry{whole(object.TypeBlob, oracleNoise(900))}, 7), limits: small,
			check: limitOf("pack size"),
		},
		"too many objects": {
			entries: slices.Repeat([]testEntry{whole(object.TypeBlob, blob)}, 61), limits: small, check: limitOf("object count"),
		},
		"inflates too much": {
			entries: slices.Repeat([]testEntry{whole(object.TypeBlob, make([]byte, 900))}, 30), limits: small,
			check: limitOf("inflated size"),
		},
		"chain too long": {
			entries: []testEntry{
				whole(object.TypeBlob, blob),
				{kind: pack.KindOFSDelta, base: 0, data: deltaOf(t, blob, blob)},
				{kind: pack.KindOFSDelta, base: 1, data: deltaOf(t, blob, blob)},
				{kind: pack.KindOFSDelta, base: 2, data: deltaOf(t, blob, blob)},
				{kind: pack.KindOFSDelta, base: 3, data: deltaOf(t, blob, blob)},
			},
			limits: small, check: limitOf("delta depth"),
		},
		"trees too deep": {entries: pathOf(21, "d"), limits: small, check: limitOf("tree depth")},
		"path too long":  {entries: pathOf(18, strings.Repeat("n", 250)), check: limitOf("path length")},
		"name too long": {entries: pathOf(1, strings.Repeat("n", 256)), check: func(err error) bool {
			return errors.Is(err, object.ErrNameTooLong)
		}},
		"bad .gitmodules": {
			entries: []testEntry{
				whole(object.TypeBlob, []byte("[submodule \"../x\"]\n\turl = a\n")),
				whole(object.TypeTree, treeOf(object.TreeEntry{
					Mode: object.ModeBlob, Name: ".gitmodules", ID: mustHash(t, object.TypeBlob,
						[]byte("[submodule \"../x\"]\n\turl = a\n")),
				})),
			},
			check: ingest.IsBadPack,
		},
		"gitlink called .gitmodules": {
			entries: []testEntry{
				whole(object.TypeTree, treeOf(object.TreeEntry{Mode: object.ModeGitlink, Name: ".gitmodules", ID: missing})),
			},
			check: checkOf("gitmodulesMissing"),
		},
		"folder called .gitattributes": {
			entries: []testEntry{whole(object.TypeTree, nil), whole(object.TypeTree, treeOf(object.TreeEntry{
				Mode: object.ModeTree, Name: "GITATT~1", ID: object.EmptyTreeID,
			}))},
			check: checkOf("gitattributesBlob"),
		},
		"delta that makes nothing": {
			entries: []testEntry{whole(object.TypeBlob, blob), {kind: pack.KindOFSDelta, data: []byte{5, 0}}},
			check: func(err error) bool {
				var e *ingest.BadEntryError
				return errors.As(err, &e) && errors.Is(err, delta.ErrCorrupt) && ingest.IsBadPack(err)
			},
		},
		"delta of three bytes against an ID": {
			entries: []testEntry{whole(object.TypeBlob, make([]byte, 300)), {
				kind: pack.KindRefDelta, id: mustHash(t, object.TypeBlob, make([]byte, 300)), data: []byte{0xac, 2, 0},
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
				h := newIngestHost(t, odb.Options{Limits: limits})
				packed := encodePack(test.entries...)
				if test.raw != nil {
					packed = test.raw(packed)
				}
				_, err := h.push(packed, ingest.Options{})
				if !test.check(err) {
					t.Errorf("unexpected error: %v", err)
				}
				if left := h.leftovers(); len(left) > 0 {
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

// oracleNoise returns bytes that do not compress.
func oracleNoise(size int) []byte {
	noise := make([]byte, 0, size+20)
	for i := uint32(0); len(noise) < size; i++ {
		sum := sha1.Sum(binary.BigEndian.AppendUint32(nil, i)) //nolint:gosec // any spread will do
		noise = append(noise, sum[:]...)
	}
	return noise[:size]
}

// brokenReader fails behind some bytes.
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
	packed := packAll(git)
	gone := errors.New("the client is gone")
	for _, size := range []int{0, 5, 12, 500, len(packed) / 2, len(packed) - 1} {
		h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
		_, err := ingest.Read(t.Context(), h.view(), &brokenReader{Reader: bytes.NewReader(packed[:size]), err: gone},
			ingest.Options{})
		if !errors.Is(err, gone) || ingest.IsBadPack(err) {
			t.Errorf("cut at %d: %v", size, err)
		}
		if left := h.leftovers(); len(left) > 0 {
			t.Errorf("cut at %d: left behind %q", size, left)
		}
	}
}

func TestIngestCancelled(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 6, Commits: 50})
	packed := packAll(git)
	why := errors.New("enough")
	h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := ingest.Read(ctx, h.view(), bytes.NewReader(packed), ingest.Options{}); !errors.Is(err, why) {
		t.Errorf("ingest: %v", err)
	}
	in, err := ingest.Read(t.Context(), h.view(), bytes.NewReader(packed), ingest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := in.Resolve(ctx, nil); !errors.Is(err, why) {
		t.Errorf("resolve: %v", err)
	}
	if _, _, err := in.Resolve(t.Context(), nil); !errors.Is(err, odb.ErrClosed) {
		t.Errorf("resolve again: %v", err)
	}
	if left := h.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
