package githttp_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
)

// TestFetchAgainstGit draws requests and holds the answers against those of git upload-pack.
func TestFetchAgainstGit(t *testing.T) {
	t.Parallel()
	seeds := map[string]func(git *oracle.Repository){
		"merges": func(git *oracle.Repository) {
			git.Seed(oracle.History{Seed: 31, Commits: 60, Merges: true, Tags: true})
		},
		"odd": seedOddities,
	}
	count := 40
	if testing.Short() {
		count = 8
	}
	for name, seed := range seeds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := newTwins(t, seed)
			d := newDraw(tw.git, 1)
			for i := range count {
				t.Run(fmt.Sprintf("v2/%d", i), func(t *testing.T) { tw.t = t; tw.compare(2, d.fetch()) })
				t.Run(fmt.Sprintf("v0/%d", i), func(t *testing.T) { tw.t = t; tw.compare(d.IntN(2), d.legacyFetch()) })
			}
		})
	}
}

// draw makes up requests to a repository.
type draw struct {
	*rand.Rand
	commits, tips, tags, others []string
	names                       []string
}

func newDraw(git *oracle.Repository, seed uint64) *draw {
	d := &draw{Rand: newRand(seed), commits: lines(git.Git("rev-list", "--all"))}
	for _, line := range lines(git.Git("for-each-ref", "--format=%(objecttype) %(objectname) %(refname)")) {
		words := strings.Fields(line)
		switch words[0] {
		case "commit":
			d.tips = append(d.tips, words[1])
		case "tag":
			d.tags = append(d.tags, words[1])
		default:
			d.others = append(d.others, words[1])
		}
		d.names = append(d.names, words[2])
	}
	return d
}

// some returns up to count of list, in random order.
func (d *draw) some(list []string, count int) []string {
	list = slices.Clone(list)
	d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(count, len(list))]
}

func (d *draw) one(list ...string) string { return list[d.IntN(len(list))] }

func (d *draw) odds(n int) bool { return d.IntN(n) == 0 }

// wants are mostly tips, and at times anything.
func (d *draw) wants() []string {
	var wants []string
	for range 1 + d.IntN(3) {
		switch d.IntN(6) {
		case 0:
			wants = append(wants, d.some(d.commits, 1)...)
		case 1:
			wants = append(wants, d.some(d.tags, 1)...)
		case 2:
			wants = append(wants, d.some(append(d.others, d.tips...), 1)...)
		default:
			wants = append(wants, d.some(d.tips, 1)...)
		}
	}
	return wants
}

func prefixed(prefix string, list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, prefix+s)
	}
	return out
}

// limits are the lines about shallow history.
func (d *draw) limits() []string {
	var out []string
	if d.odds(3) {
		out = prefixed("shallow ", d.some(d.commits, 1+d.IntN(3)))
	}
	switch d.IntN(9) {
	case 0:
		out = append(out, fmt.Sprint("deepen ", 1+d.IntN(8)))
	case 1:
		out = append(out, fmt.Sprint("deepen ", 1+d.IntN(5)), "deepen-relative")
	case 2:
		out = append(out, "deepen 2147483647")
	case 3:
		out = append(out, fmt.Sprint("deepen-since ", 1_600_000_000+d.IntN(60)*3600))
	case 4:
		out = append(out, "deepen-not "+d.one(d.names...))
	}
	return out
}

func (d *draw) fetch() []byte {
	ask := []string{"command=fetch", "agent=test", "object-format=sha1", delim}
	for _, flag := range []string{"thin-pack", "ofs-delta", "include-tag", "no-progress", "sideband-all"} {
		if d.odds(2) {
			ask = append(ask, flag)
		}
	}
	ask = append(ask, prefixed("want ", d.wants())...)
	ask = append(ask, d.limits()...)
	if d.odds(3) {
		ask = append(ask, "filter "+
			d.one("blob:none", "blob:limit=100", "blob:limit=1k", "tree:0", "tree:1", "tree:3", "object:type=commit",
				"object:type=tag", "object:type=tree", "object:type=blob", "combine:blob:limit=200+tree:4"))
	}
	if d.odds(4) {
		ask = append(ask, prefixed("want-ref ", d.some(d.names, 1+d.IntN(2)))...)
	}
	if d.odds(2) {
		ask = append(ask, prefixed("have ", d.some(d.commits, d.IntN(5)))...)
		if d.odds(2) {
			ask = append(ask, "have "+strings.Repeat("7", 40))
		}
		if d.odds(8) {
			ask = append(ask, "wait-for-done")
		}
	}
	if d.odds(2) {
		ask = append(ask, "done")
	}
	return request(append(ask, flush)...)
}

// legacyFetch is a fetch in version 0 or 1.
func (d *draw) legacyFetch() []byte {
	var flags []string
	for _, flag := range []string{"thin-pack", "ofs-delta", "include-tag", "no-progress", "no-done", "filter"} {
		if d.odds(2) {
			flags = append(flags, flag)
		}
	}
	flags = append(flags, d.one("multi_ack_detailed", "multi_ack_detailed", "multi_ack", ""),
		d.one("side-band-64k", "side-band-64k", "side-band", ""))
	wants := prefixed("want ", d.wants())
	limits := d.limits()
	if at := slices.Index(limits, "deepen-relative"); at >= 0 {
		limits = slices.Delete(limits, at, at+1)
		flags = append(flags, "deepen-relative")
	}
	wants[0] += " " + strings.Join(append(flags, "agent=test"), " ")
	ask := append(wants, limits...)
	if slices.Contains(flags, "filter") {
		ask = append(ask, "filter "+d.one("blob:none", "tree:0", "tree:2", "object:type=commit"))
	}
	ask = append(ask, flush)
	if d.odds(8) {
		return request(ask...) // a client that asks for its new boundary
	}
	haves := d.some(d.commits, d.IntN(6))
	for range d.IntN(3) {
		haves = slices.Insert(haves, d.IntN(len(haves)+1), fmt.Sprintf("%040x", d.Uint64()))
	}
	return request(append(append(ask, prefixed("have ", haves)...), d.one(flush, "done"))...)
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 9)) }
