package githttp_test

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
)

// layout determines how the objects of a remote are stored in its pool.
type layout struct {
	// options let small histories be stored as large ones are.
	options odb.Options
	bitmaps bool // there are to be some
	// fill pushes everything, in parts if that is the point.
	fill func(tw *twins)
}

// likeLarge has segments, and bitmaps over them, for a history of a few hundred objects.
var likeLarge = odb.Options{Limits: odb.Limits{HotCount: 1}, AuxiliaryCount: 100, CoverCount: 1}

// layouts leave objects in segments with bitmaps, above them, and in layers of another repository.
var layouts = map[string]layout{
	"bitmaps": {likeLarge, true, func(tw *twins) {
		enginetest.Create(tw.t, tw.remote.host, repoName)
		tw.push(repoName, "refs/*:refs/*")
		tw.maintain()
	}},
	"walked, beside bitmaps": {odb.Options{Limits: likeLarge.Limits, AuxiliaryCount: 100}, true, func(tw *twins) {
		enginetest.Create(tw.t, tw.remote.host, repoName)
		tw.push(repoName, "refs/*:refs/*")
		tw.maintain()
	}},
	"above bitmaps": {likeLarge, true, func(tw *twins) {
		enginetest.Create(tw.t, tw.remote.host, repoName)
		tw.pushPart(repoName, 10)
		tw.maintain()
		tw.pushRest(repoName)
	}},
	"fork": {likeLarge, true, func(tw *twins) {
		enginetest.Create(tw.t, tw.remote.host, "source")
		tw.pushPart("source", 10)
		tw.maintain()
		tw.fork("source", repoName)
		tw.pushRest(repoName)
	}},
	"fork of a fork, hot": {odb.Options{}, false, func(tw *twins) {
		enginetest.Create(tw.t, tw.remote.host, "source")
		tw.pushPart("source", 40)
		tw.fork("source", "middle")
		tw.pushPart("middle", 10)
		tw.fork("middle", repoName)
		tw.pushRest(repoName)
	}},
}

// newLaidOut returns twins whose remote has the layout.
func newLaidOut(t *testing.T, l layout, seed func(git *oracle.Repository)) *twins {
	t.Helper()
	tw := newGitTwin(t)
	seed(tw.git)
	fs := vfs.NewMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{Objects: l.options})
	t.Cleanup(shut)
	tw.remote = serveHost(t, host, githttp.Config{})
	l.fill(tw)
	if odbtest.Shared() {
		return tw // the files of others cannot be seen in fs
	}
	if got := hasBitmaps(t, fs, "files"); got != l.bitmaps {
		t.Fatalf("there are bitmaps: %t, want %t", got, l.bitmaps)
	}
	return tw
}

// hasBitmaps reports whether there are bitmaps in a folder of files.
func hasBitmaps(t *testing.T, fs vfs.FS, dir string) bool {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		full := path.Join(dir, name)
		if info, err := fs.Stat(full); err == nil && info.IsDir() && hasBitmaps(t, fs, full) || path.Ext(name) == ".bitmap" {
			return true
		}
	}
	return false
}

// partRef holds a part of the history before the rest is pushed.
const partRef = "refs/heads/part"

func (tw *twins) push(repo string, refspecs ...string) {
	tw.t.Helper()
	tw.git.Git(append([]string{"push", "--quiet", tw.remote.base + "/" + repo + ".git"}, refspecs...)...)
}

// pushPart pushes the history without its last commits.
func (tw *twins) pushPart(repo string, without int) {
	tw.t.Helper()
	commits := lines(tw.git.Git("rev-list", "--all", "--topo-order"))
	tw.push(repo, commits[min(without, len(commits)-1)]+":"+partRef)
}

// pushRest pushes everything, and leaves the refs that git has.
func (tw *twins) pushRest(repo string) {
	tw.t.Helper()
	tw.push(repo, "refs/*:refs/*")
	tw.push(repo, ":"+partRef)
}

func (tw *twins) fork(from, to string) {
	tw.t.Helper()
	_, err := tw.remote.host.CreateRepository(context.Background(), engine.Actor{Org: enginetest.Org, Subject: "test"},
		engine.CreateRequest{Name: to, Base: &engine.Base{Name: from}})
	if err != nil {
		tw.t.Fatal(err)
	}
}

// maintain returns when the remote has all its bitmaps.
func (tw *twins) maintain() {
	tw.t.Helper()
	for done, err := range tw.remote.host.Maintain(context.Background(), engine.MaintainOptions{}) {
		if err != nil || done.Err != nil {
			tw.t.Fatal(err, done.Err)
		}
	}
}

// TestFetchAgainstGitByLayout is TestFetchAgainstGit with bitmaps and borrowed layers.
func TestFetchAgainstGitByLayout(t *testing.T) {
	t.Parallel()
	count := 30
	if testing.Short() {
		count = 6
	}
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := newLaidOut(t, layout, func(git *oracle.Repository) {
				git.Seed(oracle.History{Seed: 33, Commits: 120, Merges: true, Tags: true})
			})
			d := newDraw(tw.git, 2)
			for range count {
				tw.compare(2, d.fetch())
				tw.compare(d.IntN(2), d.legacyFetch())
			}
		})
	}
}

// TestFetchRealAgainstGit draws 500 requests to a real repository, in turn from a remote with
// bitmaps and from a fork that has some of its history from elsewhere. Heads and tags count.
// PACKHORSE_REAL_COUNT is another number of requests.
func TestFetchRealAgainstGit(t *testing.T) {
	dir, count := oracle.Real(t).Dir, oracle.RealCount(t, 500)
	seed := func(git *oracle.Repository) {
		appendTo(t, filepath.Join(git.Dir, "objects", "info", "alternates"), filepath.Join(dir, "objects")+"\n")
		git.Git("fetch", "--quiet", dir, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
	}
	all, fork := layouts["bitmaps"], layouts["fork"]
	all.options, fork.options = odb.Options{}, odb.Options{}
	remotes := []*twins{newLaidOut(t, all, seed), newLaidOut(t, fork, seed)}
	d := newNearDraw(remotes[0].git, 3)
	for i := range count {
		tw := remotes[i%len(remotes)]
		version, body := 2, d.near().bounded((*draw).fetch)
		if d.odds(4) {
			version, body = d.IntN(2), d.near().bounded((*draw).legacyFetch)
		}
		if d.odds(25) {
			version, body = 2, d.fetch() // from anywhere in history
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) { tw.t = t; tw.compare(version, body) })
	}
}

// nearDraw makes up requests about a short piece of a long history, whose answers are small.
type nearDraw struct {
	*draw
	peeled map[string]string // from commits to the tags that lead there
}

func newNearDraw(git *oracle.Repository, seed uint64) *nearDraw {
	d := &nearDraw{draw: newDraw(git, seed), peeled: map[string]string{}}
	for _, line := range lines(git.Git("for-each-ref", "--format=%(objectname) %(*objectname)", "refs/tags")) {
		if tag, commit, ok := strings.Cut(line, " "); ok && commit != "" {
			d.peeled[commit] = tag
		}
	}
	return d
}

// near returns a draw from up to 2,000 neighbouring commits.
func (d *nearDraw) near() *draw {
	size := min(2<<d.IntN(11), len(d.commits))
	from := d.IntN(len(d.commits) - size + 1)
	piece := &draw{Rand: d.Rand, commits: d.commits[from : from+size], names: d.names}
	piece.tips = piece.some(piece.commits, 4)
	for _, commit := range piece.commits {
		if tag, ok := d.peeled[commit]; ok {
			piece.tags = append(piece.tags, tag)
		}
	}
	if len(piece.tags) == 0 {
		piece.tags = piece.tips
	}
	return piece
}

// bounded draws until the answer is not most of the history: the client has something, or takes a
// part only.
func (d *draw) bounded(ask func(d *draw) []byte) []byte {
	for {
		body := ask(d)
		has := func(line string) bool { return bytes.Contains(body, []byte(line)) }
		if has("want-ref ") || has("deepen 2147483647") || has("deepen-since ") || has("deepen-not ") {
			continue
		}
		if has("deepen ") || has("filter tree:0") ||
			slices.ContainsFunc(d.commits, func(id string) bool { return has("have " + id) }) {
			return body
		}
	}
}
