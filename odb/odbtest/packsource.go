package odbtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// PackSource makes packs of the newer part of a history that may be wrong, for a pool or a
// repository that has the older part.
type PackSource struct {
	testing.TB
	Random *rand.Rand
	// Objects are those of the newer part.
	Objects []PackObject
	// OldPack is a pack of the older part, whose newest commit is Old. Tip is that of the newer part.
	OldPack  []byte
	Old, Tip string
	// Odd are the objects of the last pack that the history does not have, as far as that is known.
	Odd []object.ID

	older []PackObject
}

// PackObject is an object of a history.
type PackObject struct {
	ID   object.ID
	Type object.Type
	Data []byte
}

// NewPackSource has git make a history of more than 8 commits.
func NewPackSource(tb testing.TB, history oracle.History, random *rand.Rand) *PackSource {
	tb.Helper()
	git := oracle.New(tb)
	git.Seed(history)
	s := &PackSource{TB: tb, Random: random, Old: git.Git("rev-parse", "main~8"), Tip: git.Git("rev-parse", "main")}
	s.OldPack = git.Input([]byte(s.Old+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	s.Objects, s.older = readObjects(tb, git, s.Tip, "^"+s.Old), readObjects(tb, git, s.Old)
	return s
}

func readObjects(tb testing.TB, git *oracle.Repository, revisions ...string) []PackObject {
	tb.Helper()
	ids := git.Input(nil, append([]string{"rev-list", "--objects", "--no-object-names"}, revisions...)...)
	out := git.Input(ids, "cat-file", "--batch")
	var objects []PackObject
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte{'\n'})
		var hex, typeName string
		var size int
		if _, err := fmt.Sscan(string(line), &hex, &typeName, &size); err != nil {
			tb.Fatal(err)
		}
		id, err := object.ParseID(hex)
		if err != nil {
			tb.Fatal(err)
		}
		t, err := object.ParseType(typeName)
		if err != nil {
			tb.Fatal(err)
		}
		objects = append(objects, PackObject{ID: id, Type: t, Data: rest[:size]})
		out = rest[size+1:]
	}
	return objects
}

// entries returns the newer part, plus extra objects, as entries: whole, or as deltas against
// others.
func (s *PackSource) entries(extra ...PackObject) []packtest.Entry {
	s.Odd = s.Odd[:0]
	for i := range extra {
		s.Odd = append(s.Odd, extra[i].ID)
	}
	objects := slices.Concat(s.Objects, extra)
	s.Random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	entries := make([]packtest.Entry, 0, len(objects))
	for i := range objects {
		entries = append(entries, s.entry(objects[:i], &objects[i]))
	}
	return entries
}

// entry encodes an object against one of those before it, or a stored one.
func (s *PackSource) entry(before []PackObject, o *PackObject) packtest.Entry {
	choice := s.Random.IntN(4)
	pool := before
	if choice == 3 {
		pool = s.older
	}
	for range 4 {
		if choice == 0 || len(pool) == 0 {
			break
		}
		at := s.Random.IntN(len(pool))
		base := &pool[at]
		if base.Type != o.Type {
			continue
		}
		made, ok := delta.NewIndex(base.Data).Create(nil, o.Data, len(o.Data)+64)
		if !ok {
			continue
		}
		if choice == 1 {
			return packtest.Entry{Kind: pack.KindOFSDelta, Base: at, Data: made}
		}
		return packtest.Entry{Kind: pack.KindRefDelta, BaseID: base.ID, Data: made}
	}
	return packtest.Whole(o.Type, o.Data)
}

func (s *PackSource) pick(t object.Type) *PackObject {
	for {
		if o := &s.Objects[s.Random.IntN(len(s.Objects))]; o.Type == t {
			return o
		}
	}
}

func newObject(tb testing.TB, t object.Type, data []byte) PackObject {
	tb.Helper()
	return PackObject{ID: packtest.Hash(tb, t, data), Type: t, Data: data}
}

// PackMutations make packs that may be wrong.
var PackMutations = map[string]func(s *PackSource) []byte{
	"none": func(s *PackSource) []byte { return s.encode(s.entries()) },
	"an object is left out": func(s *PackSource) []byte {
		entries := s.entries()
		for i := range entries { // nothing may count on places then
			if entries[i].Kind == pack.KindOFSDelta {
				return s.encode(entries)
			}
		}
		at := s.Random.IntN(len(entries))
		return s.encode(slices.Delete(entries, at, at+1))
	},
	"an object is left out, all whole": func(s *PackSource) []byte {
		var entries []packtest.Entry
		left := s.Random.IntN(len(s.Objects))
		for i, o := range s.Objects {
			if i != left {
				entries = append(entries, packtest.Whole(o.Type, o.Data))
			}
		}
		return s.encode(entries)
	},
	"an object has another type": func(s *PackSource) []byte {
		entries := s.entries()
		at := s.Random.IntN(len(entries))
		entries[at] = packtest.Whole(object.Type(1+s.Random.IntN(4)), s.Objects[s.Random.IntN(len(s.Objects))].Data)
		return s.encode(entries)
	},
	"a byte of an object": func(s *PackSource) []byte {
		o := s.pick(object.Type(1 + s.Random.IntN(3)))
		data := slices.Clone(o.Data)
		if len(data) > 0 {
			data[s.Random.IntN(len(data))] ^= 1 << s.Random.IntN(8)
		}
		return s.encode(s.entries(newObject(s.TB, o.Type, data)))
	},
	"a byte of a content": func(s *PackSource) []byte {
		entries := s.entries()
		e := &entries[s.Random.IntN(len(entries))]
		e.Data = slices.Clone(e.Data)
		if len(e.Data) > 0 {
			e.Data[s.Random.IntN(len(e.Data))] ^= 1 << s.Random.IntN(8)
		}
		return s.encode(entries)
	},
	"a size that lies": func(s *PackSource) []byte {
		entries := s.entries()
		e := &entries[s.Random.IntN(len(entries))]
		e.Size = max(1, int64(len(e.Data)+s.Random.IntN(9)-4))
		return s.encode(entries)
	},
	"a count that lies": func(s *PackSource) []byte {
		packed := s.encode(s.entries())
		body := packed[:len(packed)-pack.TrailerSize]
		binary.BigEndian.PutUint32(body[8:], binary.BigEndian.Uint32(body[8:])+uint32(s.Random.IntN(5))-2)
		return packtest.Seal(body)
	},
	"a wrong trailer": func(s *PackSource) []byte {
		packed := s.encode(s.entries())
		packed[len(packed)-1-s.Random.IntN(pack.TrailerSize)]++
		return packed
	},
	"cut off": func(s *PackSource) []byte {
		packed := s.encode(s.entries())
		return packed[:s.Random.IntN(len(packed))]
	},
	"a bit anywhere": func(s *PackSource) []byte {
		packed := s.encode(s.entries())
		packed[s.Random.IntN(len(packed))] ^= 1 << s.Random.IntN(8)
		return packed
	},
	"a bit of the body, the trailer being right": func(s *PackSource) []byte {
		packed := s.encode(s.entries())
		body := packed[:len(packed)-pack.TrailerSize]
		body[s.Random.IntN(len(body))] ^= 1 << s.Random.IntN(8)
		return packtest.Seal(body)
	},
	"deltas that are their own bases": func(s *PackSource) []byte {
		blob := s.pick(object.TypeBlob)
		a, b := append(slices.Clone(blob.Data), 'a'), append(slices.Clone(blob.Data), 'b')
		aID, bID := packtest.Hash(s.TB, object.TypeBlob, a), packtest.Hash(s.TB, object.TypeBlob, b)
		return s.encode(append(s.entries(),
			packtest.Entry{Kind: pack.KindRefDelta, BaseID: bID, Data: packtest.DeltaOf(s.TB, b, a)},
			packtest.Entry{Kind: pack.KindRefDelta, BaseID: aID, Data: packtest.DeltaOf(s.TB, a, b)}))
	},
	"a delta against something else": func(s *PackSource) []byte {
		entries := s.entries()
		entries[s.Random.IntN(len(entries))] = packtest.Entry{
			Kind: pack.KindRefDelta, BaseID: s.older[s.Random.IntN(len(s.older))].ID, Data: packtest.DeltaOf(s.TB,
				s.pick(object.TypeTree).Data, []byte("x")),
		}
		return s.encode(entries)
	},
	"an odd tree": func(s *PackSource) []byte {
		o := s.pick(object.TypeTree)
		var entries []object.TreeEntry
		for it := object.IterTree(o.Data); it.Next(); {
			entries = append(entries, object.TreeEntry{Mode: it.Mode, Padding: it.Padding, Name: string(it.Name), ID: it.ID})
		}
		names := []string{
			".git", "a/b", "", ".", "..", ".gitmodules", "git~1", "zz", "zz", "long" + strings.Repeat("g", 200),
			".gitattributes",
		}
		modes := []object.Mode{
			object.ModeBlob, object.ModeTree, object.ModeExec, object.ModeSymlink, object.ModeGitlink, 0o100664, 0, 0o10000,
		}
		ids := []object.ID{
			s.pick(object.TypeBlob).ID, s.pick(object.TypeTree).ID, s.pick(object.TypeCommit).ID, s.older[0].ID, {}, {1},
		}
		entries = append(entries, object.TreeEntry{
			Mode: modes[s.Random.IntN(len(modes))], Name: names[s.Random.IntN(len(names))], ID: ids[s.Random.IntN(len(ids))],
		})
		if s.Random.IntN(4) > 0 {
			object.SortTree(entries)
		}
		return s.encode(s.entries(newObject(s.TB, object.TypeTree, object.AppendTree(nil, entries))))
	},
	"an odd commit": func(s *PackSource) []byte {
		o := s.pick(object.TypeCommit)
		tree := string(o.Data[len("tree ") : len("tree ")+object.HexSize])
		others := []string{
			s.pick(object.TypeTree).ID.String(), s.pick(object.TypeBlob).ID.String(), s.pick(object.TypeCommit).ID.String(),
			s.older[s.Random.IntN(len(s.older))].ID.String(), object.ZeroID.String(), object.EmptyTreeID.String(),
			strings.Repeat("1", 40),
		}
		other := others[s.Random.IntN(len(others))]
		data := strings.Replace(string(o.Data), tree, other, 1)
		switch s.Random.IntN(3) {
		case 0:
			data = strings.Replace(string(o.Data), "\nauthor", "\nparent "+other+"\nauthor", 1)
		case 1:
			drop := []string{"tree ", "author ", "committer "}[s.Random.IntN(3)]
			at := strings.Index(string(o.Data), drop)
			end := at + strings.IndexByte(string(o.Data[at:]), '\n') + 1
			data = string(o.Data[:at]) + string(o.Data[end:])
		}
		return s.encode(s.entries(newObject(s.TB, object.TypeCommit, []byte(data))))
	},
	"an odd tag": func(s *PackSource) []byte {
		targets := []PackObject{
			*s.pick(object.TypeTree), *s.pick(object.TypeBlob), *s.pick(object.TypeCommit), s.older[0], {ID: object.ID{9}},
		}
		target := targets[s.Random.IntN(len(targets))]
		names := []string{"commit", "tree", "blob", "tag", "horse"}
		data := fmt.Sprintf("object %s\ntype %s\ntag v1\ntagger A <a@b> 1 +0000\n\nm\n", target.ID,
			names[s.Random.IntN(len(names))])
		return s.encode(s.entries(newObject(s.TB, object.TypeTag, []byte(data))))
	},
	"an odd delta": func(s *PackSource) []byte {
		entries := s.entries()
		base := s.Random.IntN(len(entries))
		for entries[base].Kind.IsDelta() {
			base = s.Random.IntN(len(entries))
		}
		return s.encode(append(entries,
			packtest.Entry{Kind: pack.KindOFSDelta, Base: base, Data: oddDelta(s.Random, entries[base].Data)}))
	},
	"repeated objects": func(s *PackSource) []byte {
		entries := s.entries()
		for range 1 + s.Random.IntN(3) {
			o := s.Objects[s.Random.IntN(len(s.Objects))]
			entries = append(entries, packtest.Whole(o.Type, o.Data))
		}
		return s.encode(entries)
	},
	"odd .gitmodules": func(s *PackSource) []byte {
		contents := []string{
			"[submodule \"a\"]\n\tpath = a\n\turl = https://example.com/a\n", "[submodule \"..\"]\n",
			"[submodule \"a\"]\n\turl = -u\n", "nonsense",
		}
		blob := newObject(s.TB, object.TypeBlob, []byte(contents[s.Random.IntN(len(contents))]))
		name := []string{".gitmodules", ".GITMODULES", "GITMOD~1", "modules"}[s.Random.IntN(4)]
		tree := object.AppendTree(nil, []object.TreeEntry{{Mode: object.ModeBlob, Name: name, ID: blob.ID}})
		return s.encode(s.entries(blob, newObject(s.TB, object.TypeTree, tree)))
	},
}

// oddDelta makes a delta that may be short, cut off, too long, or have reserved instructions.
func oddDelta(random *rand.Rand, base []byte) []byte {
	appendSize := func(dst []byte, size int) []byte {
		for ; size >= 0x80; size >>= 7 {
			dst = append(dst, byte(size)|0x80)
		}
		if random.IntN(6) == 0 {
			return append(dst, byte(size)|0x80, 0) // longer than it needs to be
		}
		return append(dst, byte(size))
	}
	data := appendSize(nil, len(base)+random.IntN(8)/7)
	var program []byte
	size := 0
	for range random.IntN(3) {
		switch random.IntN(5) {
		case 0:
			program = append(program, 0) // reserved
		case 1:
			program, size = append(program, 0x80), size+1<<16
		case 2:
			n := min(random.IntN(9), len(base))
			program, size = append(program, 0x91, byte(random.IntN(4)), byte(n)), size+n
		default:
			n := 1 + random.IntN(5)
			program, size = append(append(program, byte(n)), Noise(random, n)...), size+n
		}
	}
	data = append(appendSize(data, max(0, size+random.IntN(12)/11)), program...)
	if random.IntN(8) == 0 {
		data = data[:random.IntN(len(data)+1)]
	}
	return data
}

func (s *PackSource) encode(entries []packtest.Entry) []byte {
	return packtest.Encode(entries...)
}
