package odb_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/packgen"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// packed has a pool write a pack.
func packed(t *testing.T, v *odb.View, request packgen.Request) []byte {
	t.Helper()
	plan, err := packgen.Plan(t.Context(), v, request, nil)
	must(t, err)
	defer plan.Close()
	var out bytes.Buffer
	n, err := plan.WriteTo(t.Context(), &out, nil)
	must(t, err)
	if n != int64(out.Len()) || int(binary.BigEndian.Uint32(out.Bytes()[8:])) != plan.Count() {
		t.Errorf("pack of %d bytes for %d objects says %d bytes", out.Len(), plan.Count(), n)
	}
	return out.Bytes()
}

// packObjects has git pack-objects write a pack for the same request, without a search for deltas.
func (g *repository) packObjects(request packgen.Request) []byte {
	g.tb.Helper()
	args, input := g.packObjectsCommand(request)
	return g.Input([]byte(input), append(args, "--window=0")...)
}

// packObjectsCommand returns the arguments and the input that upload-pack gives to pack-objects.
func (g *repository) packObjectsCommand(request packgen.Request) (args []string, input string) {
	args = []string{"pack-objects", "--revs", "--stdout", "-q"}
	if request.Thin {
		args = append(args, "--thin")
	}
	if request.OFSDelta {
		args = append(args, "--delta-base-offset")
	}
	if len(request.Tags) > 0 {
		args = append(args, "--include-tag")
	}
	if !request.Filter.IsZero() {
		args = append(args, "--filter="+request.Filter.String())
	}
	shallow := append(slices.Clone(request.ClientShallow), request.Shallow...)
	if len(shallow) > 0 {
		args = append([]string{"--shallow-file", ""}, append(args, "--shallow")...)
	}
	input = lines("--shallow ", shallow) + lines("", request.Wants)
	for _, id := range request.Unshallow {
		input += lines("", g.ids("", "rev-parse", id.String()+"^@"))
	}
	return args, input + "--not\n" + lines("", request.Haves) + lines("", request.Unshallow) + "\n"
}

// objectsOf returns what a pack holds, once git index-pack has completed and accepted it in the
// repository, which stays as it is.
func (g *repository) objectsOf(packed []byte) ([]object.ID, error) {
	g.tb.Helper()
	base := filepath.Join(g.tb.TempDir(), "p")
	if _, err := g.Try(packed, "index-pack", "--stdin", "--fix-thin", base+".pack"); err != nil {
		return nil, err
	}
	index, err := os.ReadFile(base + ".idx")
	g.must(err)
	return idsInOrder(index)[:binary.BigEndian.Uint32(packed[8:])], nil // what completes a thin pack lies behind
}

// idsInOrder returns the IDs of an index of git's, version 2, in the order of their entries in the
// pack.
func idsInOrder(index []byte) []object.ID {
	const fanoutEnd = 8 + 256*4
	count := int(binary.BigEndian.Uint32(index[fanoutEnd-4:]))
	offsets := index[fanoutEnd+count*(object.IDSize+4):]
	ids := make([]object.ID, count)
	order := make([]int, count)
	for i := range ids {
		ids[i] = object.ID(index[fanoutEnd+i*object.IDSize:])
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(binary.BigEndian.Uint32(offsets[4*a:]), binary.BigEndian.Uint32(offsets[4*b:]))
	})
	sorted := make([]object.ID, count)
	for i, at := range order {
		sorted[i] = ids[at]
	}
	return sorted
}

// client returns a repository that has what haves reach down to a boundary.
func (g *repository) client(haves, shallow []object.ID) *repository {
	g.tb.Helper()
	c := newRepository(g.tb)
	if len(haves) > 0 {
		c.Input(g.packObjects(packgen.Request{Wants: haves, ClientShallow: shallow}), "index-pack", "--stdin")
	}
	c.setShallow(shallow)
	return c
}

func (g *repository) setShallow(boundary []object.ID) {
	g.tb.Helper()
	if len(boundary) > 0 {
		g.must(os.WriteFile(filepath.Join(g.Dir, "shallow"), []byte(lines("", boundary)), 0o600))
	} else if err := os.Remove(filepath.Join(g.Dir, "shallow")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.tb.Fatal(err)
	}
}

func sortedDifference(a, b []object.ID) []object.ID {
	var only []object.ID
	for _, id := range a {
		if _, ok := slices.BinarySearchFunc(b, id, object.ID.Compare); !ok {
			only = append(only, id)
		}
	}
	return only
}

// checkPack compares a pack with git's for the same request, and has git accept it at a client and
// find it connected.
//
// Some differences are right. Git may leave out an object that was asked for by its ID if it met it
// inside a tree before. It leaves out a little more of what the client has when files have moved,
// since it marks what is uninteresting before it looks for the rest; and less for a shallow client
// that takes no thin pack.
func checkPack(t *testing.T, g *repository, v *odb.View, request packgen.Request) {
	t.Helper()
	wants := request.Wants
	request.Wants = nil
	name := fmt.Sprintf("request %+v", request)
	request.Wants = wants
	client := g.client(request.Haves, request.ClientShallow)
	data := packed(t, v, request)
	got, err := client.objectsOf(data)
	if err != nil {
		t.Errorf("%s: git refuses the pack: %v", name, err)
		return
	}
	want, err := g.objectsOf(g.packObjects(request))
	must(t, err)
	slices.SortFunc(got, object.ID.Compare)
	slices.SortFunc(want, object.ID.Compare)
	right := slices.Concat(wants, client.ids("", "cat-file", "--batch-all-objects", "--batch-check"))
	for _, id := range wants {
		right = append(right, g.ids("", "rev-parse", id.String()+"^{}")...)
	}
	slices.SortFunc(right, object.ID.Compare)
	missing := sortedDifference(sortedDifference(want, got), right)
	extra := sortedDifference(sortedDifference(got, want), right)
	if len(missing)+len(extra) > 0 {
		t.Errorf("%s: %d objects, want %d\nmissing:\n%stoo many:\n%s", name, len(got), len(want), g.describe(missing),
			g.describe(extra))
	}
	if request.Filter.IsZero() {
		client.Input(data, "index-pack", "--stdin", "--fix-thin")
		client.setShallow(slices.DeleteFunc(slices.Concat(request.ClientShallow, request.Shallow), func(id object.ID) bool {
			return slices.Contains(request.Unshallow, id)
		}))
		if _, err := client.Try([]byte(lines("", wants)), "rev-list", "--objects", "--quiet", "--stdin"); err != nil {
			t.Errorf("%s: the client lacks something: %v", name, err)
		}
	}
}

// layouts are the ways in which the objects of a repository come to lie in a pool.
var layouts = map[string]struct {
	hotCount int
	fill     func(h *ingestHost, g *repository)
}{
	"hot, written": {hotCount: 1 << 16, fill: func(h *ingestHost, g *repository) {
		h.write(g, g.all())
	}},
	"hot, pushed": {hotCount: 1 << 16, fill: func(h *ingestHost, g *repository) {
		h.pushPack(g, lines("", g.tips()))
	}},
	"one segment": {hotCount: 1, fill: func(h *ingestHost, g *repository) {
		h.pushPack(g, lines("", g.tips()))
	}},
	"segments, thin packs and hot objects": {hotCount: 60, fill: func(h *ingestHost, g *repository) {
		commits := g.ids("", "rev-list", "--all", "--topo-order", "--reverse")
		n := len(commits)
		h.pushPack(g, fmt.Sprintf("%s\n", commits[n/4]))
		revisions := fmt.Sprintf("%s\n^%s\n", commits[n/3], commits[n/4])
		for part := range slices.Chunk(g.ids(revisions, "rev-list", "--objects", "--stdin", "--topo-order", "--reverse"),
			100) {
			h.write(g, part)
		}
		h.pushPack(g, fmt.Sprintf("%s\n%s\n--not\n%s\n", commits[n/2], commits[n/2-1], commits[n/3]))
		h.pushPack(g, fmt.Sprintf("%s\n--not\n%s\n", commits[n/2+2], commits[n/2]))
		h.pushPack(g, fmt.Sprintf("%s\n%s\n--not\n%s\n", commits[3*n/4], commits[n/2], commits[n/4]))
		h.pushPack(g, fmt.Sprintf("%s--not\n%s\n%s\n", lines("", g.tips()), commits[3*n/4], commits[n/2]))
	}},
}

// pushPack pushes what git packs for revisions, thin if it comes to that.
func (h *ingestHost) pushPack(g *repository, revisions string) {
	h.tb.Helper()
	packed := g.Input([]byte(revisions), "pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q")
	_, err := h.push(packed, ingest.Options{})
	h.must(err)
}

func TestPackAgainstGit(t *testing.T) {
	t.Parallel()
	for name, layout := range layouts {
		for _, options := range []historyOptions{
			{seed: 31, commitCount: 60},
			{seed: 32, commitCount: 150, skew: 3000},
		} {
			for _, bitmaps := range []string{"no", "near", "all"} {
				if testing.Short() && (bitmaps == "no") != (options.seed == 31) {
					continue
				}
				t.Run(fmt.Sprintf("%s seed %d, %s bitmaps", name, options.seed, bitmaps), func(t *testing.T) {
					t.Parallel()
					g := newHistory(t, options)
					h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: layout.hotCount, HotBytes: 64 << 20}})
					layout.fill(h, g)
					h.useBitmaps(g, bitmaps)
					v := h.view()
					r := rand.New(rand.NewPCG(options.seed, 5))
					count := 12
					if testing.Short() {
						count = 4
					}
					for range count {
						checkPack(t, g, v, drawRequest(t, r, g))
						checkPack(t, g, v, drawShallowRequest(t, r, g, v))
					}
				})
			}
		}
	}
}

// useBitmaps makes bitmaps and says what for: "near" what the client has, "all" that is sent.
func (h *ingestHost) useBitmaps(g *repository, what string) {
	h.tb.Helper()
	if what == "no" {
		return
	}
	h.must(packgen.BuildBitmaps(h.tb.Context(), h.store, h.pool, g.tips(), nil))
	h.fsck()
	if what == "all" {
		h.store.CoverFrom(0)
	}
}

// A client that takes thin packs and short deltas gets a pack of long deltas from end to end, in
// either form.
func TestPackOfLongDeltas(t *testing.T) {
	t.Parallel()
	g := newHistory(t, historyOptions{seed: 33, commitCount: 40})
	h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	_, err := h.push(g.Input([]byte(lines("", g.tips())), "pack-objects", "--revs", "--stdout", "-q"), ingest.Options{})
	h.must(err)
	wants := g.tips()
	tree := bytes.TrimSpace(g.Input([]byte("100644 blob "+g.Write("blob", []byte("elsewhere"))+"\tfile\n"), "mktree"))
	unrelated := g.ids("", "commit-tree", "-m", "unrelated", string(tree))
	h.pushPack(g, lines("", unrelated))
	v := h.view()
	for _, haves := range [][]object.ID{nil, unrelated} {
		checkPack(t, g, v, packgen.Request{Wants: wants, Haves: haves, Thin: true, OFSDelta: true})
	}
}

// TestPackOfRealRepository is TestPackAgainstGit on the repository that PACKHORSE_REAL_REPO names;
// PACKHORSE_BITMAPS is what bitmaps are used for, as in [ingestHost.useBitmaps].
func TestPackOfRealRepository(t *testing.T) {
	g := &repository{Repository: oracle.Real(t), tb: t}
	h := newIngestHost(t, odb.Options{})
	h.pushPack(g, lines("", g.tips()))
	h.useBitmaps(g, cmp.Or(os.Getenv("PACKHORSE_BITMAPS"), "no"))
	v := h.view()
	r := rand.New(rand.NewPCG(1, 6))
	for range 20 {
		checkPack(t, g, v, drawRequest(t, r, g))
		checkPack(t, g, v, drawShallowRequest(t, r, g, v))
	}
}

// tags returns the tag objects that refs name, and what they lead to.
func (g *repository) tags() []packgen.TagTarget {
	var tags []packgen.TagTarget
	for _, id := range g.tips("refs/tags") {
		if g.Git("cat-file", "-t", id.String()) == "tag" {
			tags = append(tags, packgen.TagTarget{Tag: id, Peeled: g.ids("", "rev-parse", id.String()+"^{}")[0]})
		}
	}
	return tags
}

// drawRequest draws a request.
func drawRequest(t *testing.T, r *rand.Rand, g *repository) packgen.Request {
	t.Helper()
	tips, commits := g.tips(), g.commits()
	request := packgen.Request{
		Wants:    pick(r, tips, 1+r.IntN(4)),
		OFSDelta: r.IntN(4) > 0,
	}
	if r.IntN(4) == 0 {
		request.Wants = tips
	}
	if r.IntN(3) > 0 {
		request.Haves = pick(r, commits, 1+r.IntN(5))
		request.Thin = r.IntN(3) > 0
	}
	if r.IntN(3) == 0 {
		request.Tags = g.tags()
	}
	if r.IntN(3) == 0 {
		specs := []string{
			"blob:none", "blob:limit=200", "tree:0", "tree:1", "tree:2", "tree:3", "object:type=tree", "object:type=blob",
			"object:type=commit", "object:type=tag", "combine:blob:limit=300+tree:3",
		}
		filter, err := packgen.ParseFilter(specs[r.IntN(len(specs))])
		must(t, err)
		request.Filter = filter
	}
	return request
}

// drawShallowRequest draws a request of a client whose history is cut, or is to be.
func drawShallowRequest(t *testing.T, r *rand.Rand, g *repository, v *odb.View) packgen.Request {
	t.Helper()
	tips := g.tips("refs/heads")
	request := packgen.Request{Wants: pick(r, tips, 1+r.IntN(3)), OFSDelta: true, Thin: r.IntN(3) > 0}
	var err error
	if r.IntN(3) > 0 {
		request.Haves = pick(r, tips, 1+r.IntN(2))
		request.ClientShallow, _, err = revwalk.Deepen(t.Context(), v, request.Haves,
			revwalk.DeepenOptions{Depth: 1 + r.IntN(5)})
		must(t, err)
	}
	options := revwalk.DeepenOptions{ClientShallow: request.ClientShallow, Tips: g.tips()}
	switch r.IntN(5) {
	case 0:
		return request // what is new, below the boundary that is there
	case 1:
		options.Depth = revwalk.DepthInfinite
	case 2:
		options.Depth, options.Relative = 1+r.IntN(4), true
	default:
		options.Depth = 1 + r.IntN(6)
	}
	request.Shallow, request.Unshallow, err = revwalk.Deepen(t.Context(), v, request.Wants, options)
	must(t, err)
	return request
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
