package ingest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
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

// strict is the option of git index-pack that the verdicts are compared with. The cases below leave
// out or allow these intended differences:
//
//   - faults that real histories are full of are tolerated: see [object.Check];
//   - repeated objects are tolerated, as they are without --strict;
//   - bytes behind the pack are refused, as git does for a file and cannot for a pipe;
//   - limits: names of 255 bytes, paths, tree and delta depth, sizes.
const strict = "--strict=badTimezone=ignore,missingSpaceBeforeDate=ignore,zeroPaddedFilemode=ignore"

// repeated matches git's verdicts on repeated objects.
var repeated = regexp.MustCompile("appears twice in the pack|duplicate base")

// missingGitmodules matches the ID of a .gitmodules that is not there.
var missingGitmodules = regexp.MustCompile(`(?m)^[0-9a-f]{40}$`)

// packSource makes packs of the newer half of a history, for a pool and a repository that have the
// older half.
type packSource struct {
	tb      testing.TB
	random  *rand.Rand
	objects []sourceObject // the newer half
	older   []sourceObject
}

type sourceObject struct {
	id   object.ID
	t    object.Type
	data []byte
}

func readObjects(tb testing.TB, git *oracle.Repository, revisions ...string) []sourceObject {
	tb.Helper()
	ids := git.Input(nil, append([]string{"rev-list", "--objects", "--no-object-names"}, revisions...)...)
	out := git.Input(ids, "cat-file", "--batch")
	var objects []sourceObject
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
		objects = append(objects, sourceObject{id: id, t: t, data: rest[:size]})
		out = rest[size+1:]
	}
	return objects
}

// entries returns the newer half, plus extra objects, as entries: whole, or as deltas against
// others.
func (s *packSource) entries(extra ...sourceObject) []packtest.Entry {
	objects := slices.Concat(s.objects, extra)
	s.random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	entries := make([]packtest.Entry, 0, len(objects))
	for i := range objects {
		entries = append(entries, s.entry(objects[:i], &objects[i]))
	}
	return entries
}

// entry encodes an object against one of those before it, or a stored one.
func (s *packSource) entry(before []sourceObject, o *sourceObject) packtest.Entry {
	choice := s.random.IntN(4)
	pool := before
	if choice == 3 {
		pool = s.older
	}
	for range 4 {
		if choice == 0 || len(pool) == 0 {
			break
		}
		at := s.random.IntN(len(pool))
		base := &pool[at]
		if base.t != o.t {
			continue
		}
		made, ok := delta.NewIndex(base.data).Create(nil, o.data, len(o.data)+64)
		if !ok {
			continue
		}
		if choice == 1 {
			return packtest.Entry{Kind: pack.KindOFSDelta, Base: at, Data: made}
		}
		return packtest.Entry{Kind: pack.KindRefDelta, BaseID: base.id, Data: made}
	}
	return packtest.Whole(o.t, o.data)
}

func (s *packSource) pick(t object.Type) *sourceObject {
	for {
		if o := &s.objects[s.random.IntN(len(s.objects))]; o.t == t {
			return o
		}
	}
}

func newObject(tb testing.TB, t object.Type, data []byte) sourceObject {
	tb.Helper()
	return sourceObject{id: packtest.Hash(tb, t, data), t: t, data: data}
}

// mutations make packs that may be wrong.
var mutations = map[string]func(s *packSource) []byte{
	"none": func(s *packSource) []byte { return s.encode(s.entries()) },
	"an object is left out": func(s *packSource) []byte {
		entries := s.entries()
		for i := range entries { // nothing may count on places then
			if entries[i].Kind == pack.KindOFSDelta {
				return s.encode(entries)
			}
		}
		at := s.random.IntN(len(entries))
		return s.encode(slices.Delete(entries, at, at+1))
	},
	"an object is left out, all whole": func(s *packSource) []byte {
		var entries []packtest.Entry
		left := s.random.IntN(len(s.objects))
		for i, o := range s.objects {
			if i != left {
				entries = append(entries, packtest.Whole(o.t, o.data))
			}
		}
		return s.encode(entries)
	},
	"an object has another type": func(s *packSource) []byte {
		entries := s.entries()
		at := s.random.IntN(len(entries))
		entries[at] = packtest.Whole(object.Type(1+s.random.IntN(4)), s.objects[s.random.IntN(len(s.objects))].data)
		return s.encode(entries)
	},
	"a byte of an object": func(s *packSource) []byte {
		o := s.pick(object.Type(1 + s.random.IntN(3)))
		data := slices.Clone(o.data)
		if len(data) > 0 {
			data[s.random.IntN(len(data))] ^= 1 << s.random.IntN(8)
		}
		return s.encode(s.entries(newObject(s.tb, o.t, data)))
	},
	"a byte of a content": func(s *packSource) []byte {
		entries := s.entries()
		e := &entries[s.random.IntN(len(entries))]
		e.Data = slices.Clone(e.Data)
		if len(e.Data) > 0 {
			e.Data[s.random.IntN(len(e.Data))] ^= 1 << s.random.IntN(8)
		}
		return s.encode(entries)
	},
	"a size that lies": func(s *packSource) []byte {
		entries := s.entries()
		e := &entries[s.random.IntN(len(entries))]
		e.Size = max(1, int64(len(e.Data)+s.random.IntN(9)-4))
		return s.encode(entries)
	},
	"a count that lies": func(s *packSource) []byte {
		packed := s.encode(s.entries())
		body := packed[:len(packed)-pack.TrailerSize]
		binary.BigEndian.PutUint32(body[8:], binary.BigEndian.Uint32(body[8:])+uint32(s.random.IntN(5))-2)
		return packtest.Seal(body)
	},
	"a wrong trailer": func(s *packSource) []byte {
		packed := s.encode(s.entries())
		packed[len(packed)-1-s.random.IntN(pack.TrailerSize)]++
		return packed
	},
	"cut off": func(s *packSource) []byte {
		packed := s.encode(s.entries())
		return packed[:s.random.IntN(len(packed))]
	},
	"a bit anywhere": func(s *packSource) []byte {
		packed := s.encode(s.entries())
		packed[s.random.IntN(len(packed))] ^= 1 << s.random.IntN(8)
		return packed
	},
	"a bit of the body, the trailer being right": func(s *packSource) []byte {
		packed := s.encode(s.entries())
		body := packed[:len(packed)-pack.TrailerSize]
		body[s.random.IntN(len(body))] ^= 1 << s.random.IntN(8)
		return packtest.Seal(body)
	},
	"deltas that are their own bases": func(s *packSource) []byte {
		blob := s.pick(object.TypeBlob)
		a, b := append(slices.Clone(blob.data), 'a'), append(slices.Clone(blob.data), 'b')
		aID, bID := packtest.Hash(s.tb, object.TypeBlob, a), packtest.Hash(s.tb, object.TypeBlob, b)
		return s.encode(append(s.entries(),
			packtest.Entry{Kind: pack.KindRefDelta, BaseID: bID, Data: packtest.DeltaOf(s.tb, b, a)},
			packtest.Entry{Kind: pack.KindRefDelta, BaseID: aID, Data: packtest.DeltaOf(s.tb, a, b)}))
	},
	"a delta against something else": func(s *packSource) []byte {
		entries := s.entries()
		entries[s.random.IntN(len(entries))] = packtest.Entry{
			Kind: pack.KindRefDelta, BaseID: s.older[s.random.IntN(len(s.older))].id, Data: packtest.DeltaOf(s.tb,
				s.pick(object.TypeTree).data, []byte("x")),
		}
		return s.encode(entries)
	},
	"an odd tree": func(s *packSource) []byte {
		o := s.pick(object.TypeTree)
		var entries []object.TreeEntry
		for it := object.IterTree(o.data); it.Next(); {
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
			s.pick(object.TypeBlob).id, s.pick(object.TypeTree).id, s.pick(object.TypeCommit).id, s.older[0].id, {}, {1},
		}
		entries = append(entries, object.TreeEntry{
			Mode: modes[s.random.IntN(len(modes))], Name: names[s.random.IntN(len(names))], ID: ids[s.random.IntN(len(ids))],
		})
		if s.random.IntN(4) > 0 {
			object.SortTree(entries)
		}
		return s.encode(s.entries(newObject(s.tb, object.TypeTree, object.AppendTree(nil, entries))))
	},
	"an odd commit": func(s *packSource) []byte {
		o := s.pick(object.TypeCommit)
		tree := string(o.data[len("tree ") : len("tree ")+object.HexSize])
		others := []string{
			s.pick(object.TypeTree).id.String(), s.pick(object.TypeBlob).id.String(), s.pick(object.TypeCommit).id.String(),
			s.older[s.random.IntN(len(s.older))].id.String(), object.ZeroID.String(), object.EmptyTreeID.String(),
			strings.Repeat("1", 40),
		}
		other := others[s.random.IntN(len(others))]
		data := strings.Replace(string(o.data), tree, other, 1)
		switch s.random.IntN(3) {
		case 0:
			data = strings.Replace(string(o.data), "\nauthor", "\nparent "+other+"\nauthor", 1)
		case 1:
			drop := []string{"tree ", "author ", "committer "}[s.random.IntN(3)]
			at := strings.Index(string(o.data), drop)
			end := at + strings.IndexByte(string(o.data[at:]), '\n') + 1
			data = string(o.data[:at]) + string(o.data[end:])
		}
		return s.encode(s.entries(newObject(s.tb, object.TypeCommit, []byte(data))))
	},
	"an odd tag": func(s *packSource) []byte {
		targets := []sourceObject{
			*s.pick(object.TypeTree), *s.pick(object.TypeBlob), *s.pick(object.TypeCommit), s.older[0], {id: object.ID{9}},
		}
		target := targets[s.random.IntN(len(targets))]
		names := []string{"commit", "tree", "blob", "tag", "horse"}
		data := fmt.Sprintf("object %s\ntype %s\ntag v1\ntagger A <a@b> 1 +0000\n\nm\n", target.id,
			names[s.random.IntN(len(names))])
		return s.encode(s.entries(newObject(s.tb, object.TypeTag, []byte(data))))
	},
	"an odd delta": func(s *packSource) []byte {
		entries := s.entries()
		base := s.random.IntN(len(entries))
		for entries[base].Kind.IsDelta() {
			base = s.random.IntN(len(entries))
		}
		return s.encode(append(entries,
			packtest.Entry{Kind: pack.KindOFSDelta, Base: base, Data: oddDelta(s.random, entries[base].Data)}))
	},
	"repeated objects": func(s *packSource) []byte {
		entries := s.entries()
		for range 1 + s.random.IntN(3) {
			o := s.objects[s.random.IntN(len(s.objects))]
			entries = append(entries, packtest.Whole(o.t, o.data))
		}
		return s.encode(entries)
	},
	"odd .gitmodules": func(s *packSource) []byte {
		contents := []string{
			"[submodule \"a\"]\n\tpath = a\n\turl = https://example.com/a\n", "[submodule \"..\"]\n",
			"[submodule \"a\"]\n\turl = -u\n", "nonsense",
		}
		blob := newObject(s.tb, object.TypeBlob, []byte(contents[s.random.IntN(len(contents))]))
		name := []string{".gitmodules", ".GITMODULES", "GITMOD~1", "modules"}[s.random.IntN(4)]
		tree := object.AppendTree(nil, []object.TreeEntry{{Mode: object.ModeBlob, Name: name, ID: blob.id}})
		return s.encode(s.entries(blob, newObject(s.tb, object.TypeTree, tree)))
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
			program, size = append(append(program, byte(n)), odbtest.Noise(random, n)...), size+n
		}
	}
	data = append(appendSize(data, max(0, size+random.IntN(12)/11)), program...)
	if random.IntN(8) == 0 {
		data = data[:random.IntN(len(data)+1)]
	}
	return data
}

func (s *packSource) encode(entries []packtest.Entry) []byte {
	return packtest.Encode(entries...)
}

// judge has git read a pack, and returns its verdict and the IDs of the objects. The repository
// does not change.
func judge(tb testing.TB, git *oracle.Repository, packed []byte) (objects []string, verdict error) {
	tb.Helper()
	dir := filepath.Join(git.Dir, "objects", "pack")
	before, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		tb.Fatal(err)
	}
	told, verdict := git.Try(packed, "index-pack", strict, "--stdin", "--fix-thin")
	if verdict == nil && missingGitmodules.Match(told) {
		verdict = errors.New("gitmodulesMissing") // index-pack leaves these to its caller, and receive-pack refuses them
	}
	after, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		tb.Fatal(err)
	}
	fresh := slices.DeleteFunc(after, func(name string) bool { return slices.Contains(before, name) })
	for _, name := range fresh {
		if strings.HasSuffix(name, ".pack") && verdict == nil {
			for line := range strings.Lines(git.Git("verify-pack", "-v", name)) {
				if id, _, ok := strings.Cut(line, " "); ok && len(id) == object.HexSize {
					objects = append(objects, id)
				}
			}
		}
	}
	for _, name := range fresh {
		if err := os.Remove(name); err != nil {
			tb.Fatal(err)
		}
	}
	return objects, verdict
}

func TestIngestJudgesAsGit(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 11, Commits: 24, Files: 12, Tags: true})
	old, tip := git.Git("rev-parse", "main~8"), git.Git("rev-parse", "main")
	older := git.Input([]byte(old+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	source := packSource{objects: readObjects(t, git, tip, "^"+old), older: readObjects(t, git, old)}
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for name, mutate := range mutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The judge has the older half, as the pool has.
			git := oracle.New(t)
			git.Input(older, "index-pack", "--stdin")
			s := source
			s.tb, s.random = t, rand.New(rand.NewPCG(uint64(len(name)), 5))
			for round := range rounds {
				packed := mutate(&s)
				objects, verdict := judge(t, git, packed)
				if verdict != nil && repeated.MatchString(verdict.Error()) {
					continue
				}
				for tier, limits := range map[string]odb.Limits{"hot": {}, "segment": {HotValueBytes: 1}} {
					compareVerdict(t, fmt.Sprintf("round %d, %s", round, tier), older, packed, limits, objects, verdict)
				}
			}
		})
	}
}

func compareVerdict(
	t *testing.T, what string, older, packed []byte, limits odb.Limits, objects []string, verdict error,
) {
	t.Helper()
	h := odbtest.NewPool(t, odb.Options{Limits: limits})
	if _, err := h.Push(older, ingest.Options{}); err != nil {
		t.Fatal(err)
	}
	files := len(leftovers(h))
	_, err := h.Push(packed, ingest.Options{})
	if (err == nil) != (verdict == nil) {
		t.Fatalf("%s: packhorse says %v, git says %v", what, err, verdict)
	}
	if err != nil {
		if !ingest.IsBadPack(err) && !errors.Is(err, pack.ErrLimit) {
			t.Errorf("%s: a bad pack is reported as %v", what, err)
		}
		if left := len(leftovers(h)); left != files {
			t.Errorf("%s: %d files were left behind", what, left-files)
		}
		return
	}
	h.Fsck()
	v := h.View()
	for _, hex := range objects {
		id, err := object.ParseID(hex)
		if err != nil {
			t.Fatal(err)
		}
		kind, data, err := v.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if packtest.Hash(t, kind, data) != id {
			t.Errorf("%s: %s reads back as something else", what, id)
		}
	}
}
