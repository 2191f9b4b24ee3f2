package packgen_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// layouts are ways to store a repository in a pool.
var layouts = map[string]struct {
	hotCount int
	fill     func(h *odbtest.Pool, g *odbtest.Repository)
}{
	"hot, written": {hotCount: 1 << 16, fill: func(h *odbtest.Pool, g *odbtest.Repository) {
		h.Write(g, g.All())
	}},
	"hot, pushed": {hotCount: 1 << 16, fill: func(h *odbtest.Pool, g *odbtest.Repository) {
		h.PushGit(g, odbtest.Lines("", g.Tips()))
	}},
	"one segment": {hotCount: 1, fill: func(h *odbtest.Pool, g *odbtest.Repository) {
		h.PushGit(g, odbtest.Lines("", g.Tips()))
	}},
	"segments, thin packs and hot objects": {hotCount: 60, fill: func(h *odbtest.Pool, g *odbtest.Repository) {
		commits := g.IDs("", "rev-list", "--all", "--topo-order", "--reverse")
		n := len(commits)
		h.PushGit(g, fmt.Sprintf("%s\n", commits[n/4]))
		revisions := fmt.Sprintf("%s\n^%s\n", commits[n/3], commits[n/4])
		for part := range slices.Chunk(g.IDs(revisions, "rev-list", "--objects", "--stdin", "--topo-order", "--reverse"),
			100) {
			h.Write(g, part)
		}
		h.PushGit(g, fmt.Sprintf("%s\n%s\n--not\n%s\n", commits[n/2], commits[n/2-1], commits[n/3]))
		h.PushGit(g, fmt.Sprintf("%s\n--not\n%s\n", commits[n/2+2], commits[n/2]))
		h.PushGit(g, fmt.Sprintf("%s\n%s\n--not\n%s\n", commits[3*n/4], commits[n/2], commits[n/4]))
		h.PushGit(g, fmt.Sprintf("%s--not\n%s\n%s\n", odbtest.Lines("", g.Tips()), commits[3*n/4], commits[n/2]))
	}},
}

func TestPackAgainstGit(t *testing.T) {
	t.Parallel()
	for name, layout := range layouts {
		for _, options := range []odbtest.HistoryOptions{
			{Seed: 31, CommitCount: 60},
			{Seed: 32, CommitCount: 150, Skew: 3000},
		} {
			for _, bitmaps := range []string{"no", "near", "all"} {
				if testing.Short() && (bitmaps == "no") != (options.Seed == 31) {
					continue
				}
				t.Run(fmt.Sprintf("%s seed %d, %s bitmaps", name, options.Seed, bitmaps), func(t *testing.T) {
					t.Parallel()
					g := odbtest.NewHistory(t, options)
					h := odbtest.NewPool(t, odb.Options{
						CoverCount: bitmapUse[bitmaps].coverCount,
						Limits:     odb.Limits{HotCount: layout.hotCount, HotBytes: 64 << 20},
					})
					layout.fill(h, g)
					buildBitmaps(h, g, bitmaps)
					v := h.View()
					r := rand.New(rand.NewPCG(options.Seed, 5))
					for range oracle.CaseCount(t, 6, 3) {
						odbtest.CheckPack(t, g, v, drawRequest(t, r, g))
						odbtest.CheckPack(t, g, v, drawShallowRequest(t, r, g, v))
					}
				})
			}
		}
	}
}

// bitmapUse is how "near", "all" and "no" use bitmaps: for the objects of the client, for all packs
// with haves, and not at all.
var bitmapUse = map[string]struct {
	build      bool
	coverCount int // see [odb.Options]
}{"no": {}, "near": {build: true}, "all": {build: true, coverCount: -1}}

// buildBitmaps builds and checks bitmaps if their use needs any.
func buildBitmaps(h *odbtest.Pool, g *odbtest.Repository, use string) {
	h.Helper()
	if bitmapUse[use].build {
		h.Must(packgen.BuildBitmaps(h.Context(), h.Store, h.ID, g.Tips(), nil))
		h.Fsck()
	}
}

// A client that takes ofs-deltas gets a whole segment of ref-deltas, with and without thin packs.
func TestPackOfLongDeltas(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 33, CommitCount: 40})
	h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	_, err := h.Push(odbtest.PackAll(g.Repository), ingest.Options{})
	h.Must(err)
	wants := g.Tips()
	tree := bytes.TrimSpace(g.Input([]byte("100644 blob "+g.Write("blob", []byte("elsewhere"))+"\tfile\n"), "mktree"))
	unrelated := g.IDs("", "commit-tree", "-m", "unrelated", string(tree))
	h.PushGit(g, odbtest.Lines("", unrelated))
	v := h.View()
	for _, haves := range [][]object.ID{nil, unrelated} {
		odbtest.CheckPack(t, g, v, packgen.Request{Wants: wants, Haves: haves, Thin: true, OFSDelta: true})
	}
}

// TestPackOfRealRepository is TestPackAgainstGit on the repository that PACKHORSE_REAL_REPO names;
// PACKHORSE_BITMAPS is a key of bitmapUse.
func TestPackOfRealRepository(t *testing.T) {
	g := odbtest.RepositoryOf(t, oracle.Real(t))
	use := cmp.Or(os.Getenv("PACKHORSE_BITMAPS"), "no")
	h := odbtest.NewPool(t, odb.Options{CoverCount: bitmapUse[use].coverCount})
	h.PushGit(g, odbtest.Lines("", g.Tips()))
	buildBitmaps(h, g, use)
	v := h.View()
	r := rand.New(rand.NewPCG(1, 6))
	for range 20 {
		odbtest.CheckPack(t, g, v, drawRequest(t, r, g))
		odbtest.CheckPack(t, g, v, drawShallowRequest(t, r, g, v))
	}
}

// tags returns the tag objects that refs name, with the objects that they peel to.
func tags(g *odbtest.Repository) []packgen.TagTarget {
	var tags []packgen.TagTarget
	for _, id := range g.Tips("refs/tags") {
		if g.Git("cat-file", "-t", id.String()) == "tag" {
			tags = append(tags, packgen.TagTarget{Tag: id, Peeled: g.IDs("", "rev-parse", id.String()+"^{}")[0]})
		}
	}
	return tags
}

// drawRequest draws a request.
func drawRequest(t *testing.T, r *rand.Rand, g *odbtest.Repository) packgen.Request {
	t.Helper()
	tips, commits := g.Tips(), g.Commits()
	request := packgen.Request{
		Wants:    odbtest.Pick(r, tips, 1+r.IntN(4)),
		OFSDelta: r.IntN(4) > 0,
	}
	if r.IntN(4) == 0 {
		request.Wants = tips
	}
	if r.IntN(3) > 0 {
		request.Haves = odbtest.Pick(r, commits, 1+r.IntN(5))
		request.Thin = r.IntN(3) > 0
	}
	if r.IntN(3) == 0 {
		request.Tags = tags(g)
	}
	if r.IntN(3) == 0 {
		specs := []string{
			"blob:none", "blob:limit=200", "tree:0", "tree:1", "tree:2", "tree:3", "object:type=tree", "object:type=blob",
			"object:type=commit", "object:type=tag", "combine:blob:limit=300+tree:3",
		}
		filter, err := packgen.ParseFilter(specs[r.IntN(len(specs))])
		odbtest.Must(t, err)
		request.Filter = filter
	}
	return request
}

// drawShallowRequest draws a request of a client whose history is cut, or is to be.
func drawShallowRequest(t *testing.T, r *rand.Rand, g *odbtest.Repository, v *odb.View) packgen.Request {
	t.Helper()
	tips := g.Tips("refs/heads")
	request := packgen.Request{Wants: odbtest.Pick(r, tips, 1+r.IntN(3)), OFSDelta: true, Thin: r.IntN(3) > 0}
	var err error
	if r.IntN(3) > 0 {
		request.Haves = odbtest.Pick(r, tips, 1+r.IntN(2))
		request.ClientShallow, _, err = revwalk.Deepen(t.Context(), v, request.Haves,
			revwalk.DeepenOptions{Depth: 1 + r.IntN(5)})
		odbtest.Must(t, err)
	}
	options := revwalk.DeepenOptions{ClientShallow: request.ClientShallow, Tips: g.Tips()}
	switch r.IntN(5) {
	case 0:
		return request // new objects above the boundary of the client
	case 1:
		options.Depth = revwalk.DepthInfinite
	case 2:
		options.Depth, options.Relative = 1+r.IntN(4), true
	default:
		options.Depth = 1 + r.IntN(6)
	}
	request.Shallow, request.Unshallow, err = revwalk.Deepen(t.Context(), v, request.Wants, options)
	odbtest.Must(t, err)
	return request
}
