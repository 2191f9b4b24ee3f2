package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/githttp"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/clonecache"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// flipped is a store that is damaged in one place at a time, and the answers of the undamaged
// store.
type flipped struct {
	t     *testing.T
	fs    *vfs.MemFS
	keys  kv.Store
	files file.Store
	asks  []ask

	client *gitClient
	large  object.ID // of a blob that a push brought

	backups []olderBackups

	host *engine.Host
	rest map[string]api.Handler
	git  *githttp.Door
}

// open opens the host again, with empty caches.
func (f *flipped) open() {
	f.t.Helper()
	clones, err := clonecache.Open("cache", clonecache.Options{FS: f.fs, CostMin: -1})
	must(err)
	f.host, err = engine.Open(context.Background(), engine.Config{
		KV: f.keys, Files: f.files, Clones: clones, Objects: odb.Options{
			AuxiliaryCount: 1, HistoryCommits: 2, TrigramBytes: 1, Logger: slog.New(slog.DiscardHandler),
		},
	})
	must(err)
	f.rest = make(map[string]api.Handler)
	for _, route := range api.Routes(rest.New(rest.Config{Host: f.host})) {
		f.rest[route.Method+" "+route.Path] = route.Handler
	}
	f.git = githttp.New(githttp.Config{Host: f.host, Agent: "packhorse"})
}

func (f *flipped) shut() {
	f.t.Helper()
	must(f.host.Close(context.Background()))
}

func (f *flipped) openStores() {
	f.t.Helper()
	var err error
	f.keys, err = kv.OpenPebble("keys",
		kv.PebbleOptions{FS: f.fs, MemoryBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler)})
	must(err)
	f.files, err = file.OpenDir("files", file.DirOptions{FS: filetest.AtomicRenames(f.fs)})
	must(err)
}

func (f *flipped) shutStores() {
	f.t.Helper()
	must(errors.Join(f.files.Close(), f.keys.Close()))
}

// newFlipped fills a store by pushes, through the API, and with a fork: segments with all that
// stands beside them, hot objects, a large file of each kind, and packs in the clone cache.
func newFlipped(t *testing.T) *flipped {
	t.Helper()
	f := &flipped{t: t, fs: vfs.NewMem()}
	f.openStores()
	t.Cleanup(f.shutStores)
	f.open()
	git := oracle.New(t)
	f.client = &gitClient{git: git, objects: make(map[object.ID]made)}
	random := rand.New(rand.NewPCG(1, 1))
	large := make([]byte, 0, 1<<20+20000)
	for len(large) < cap(large)-40 {
		large = fmt.Appendf(large, "line %d of %x\n", len(large), random.Uint64())
	}
	parent := git.Seed(oracle.History{Seed: 5, Commits: 25, Files: 8, Tags: true})
	var err error
	f.large, err = object.ParseID(git.Write("blob", large))
	must(err)
	tree := git.Input([]byte(git.Git("ls-tree", parent)+"\n100644 blob "+f.large.String()+"\tlarge\n"), "mktree")
	tip := git.Git("commit-tree", strings.TrimSpace(string(tree)), "-p", parent, "-m", "large")
	id, err := object.ParseID(tip)
	must(err)
	pushed := enginetest.Create(t, f.host, "pushed")
	enginetest.Push(t, pushed, git.Input([]byte(tip+"\n"), "pack-objects", "--revs", "--stdout", "-q",
		"--delta-base-offset"),
		engine.Command{Name: "refs/heads/main", New: id})
	enginetest.Create(t, f.host, "written")
	f.commit("written", "main", "", "large", string(large[:1<<20+3000]))
	for i := range 6 {
		f.commit("written", "main", "", "small", strings.Repeat(fmt.Sprintln("version", i), 40))
	}
	f.commit("pushed", "main", "", "on/top", "one\n")
	f.keepBackup([]ask{wholeClone("pushed", f.head("pushed")), wholeClone("written", f.head("written"))})
	f.maintain()
	for i := range 4 {
		f.commit("written", "main", "", "hot", strings.Repeat(fmt.Sprintln("hot", i), 60))
	}
	f.commit("written", "side", "main", "small", "another\n"+strings.Repeat(fmt.Sprintln("version", 5), 40))
	f.commit("pushed", "side", "main", "on/side", "two\n")
	_, err = f.host.CreateRepository(t.Context(), engine.Actor{Org: enginetest.Org, Subject: "test"},
		engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "pushed", Commit: tip}})
	must(err)
	f.commit("fork", "main", "", "own", "of the fork\n")
	f.note("pushed", tip)
	f.asks = f.allAsks(tip, parent)
	f.baseline(f.asks)
	f.maintainFiles()
	return f
}

// maintain makes segments of everything.
func (f *flipped) maintain() {
	f.t.Helper()
	for done, err := range f.host.Maintain(f.t.Context(), engine.MaintainOptions{All: true, ReaderGrace: -1}) {
		must(errors.Join(err, done.Err))
	}
}

// maintainFiles lets the host settle, so that every file is in its place.
func (f *flipped) maintainFiles() {
	f.shut()
	f.open()
	f.baseline(f.asks)
	f.keepBackup(f.asks)
	f.shut()
}

func (f *flipped) commit(repo, branch, base, path, content string) {
	f.t.Helper()
	if base != "" {
		base = `"base_branch":"` + base + `",`
	}
	metadata := fmt.Sprintf(
		`{"metadata":{"target_branch":%q,%s"commit_message":"m","author":{"name":"n","email":"e@example.com"},`+
			`"files":[{"path":%q,"content_id":"1"}]}}`, branch, base, path,
	)
	data := base64.StdEncoding.EncodeToString([]byte(content))
	got := f.do(&ask{
		repo: repo, method: "POST", target: v1 + "/commit-pack", header: map[string]string{
			"Content-Type": "application/x-ndjson",
		},
		body: metadata + "\n" + `{"blob_chunk":{"content_id":"1","data":"` + data + `","eof":true}}` + "\n",
	})
	if got.err != nil || got.status != http.StatusCreated {
		f.t.Fatalf("commit: %+v", got)
	}
}

func (f *flipped) note(repo, sha string) {
	f.t.Helper()
	got := f.do(&ask{
		repo: repo, method: "POST", target: v1 + "/notes",
		body: `{"sha":"` + sha + `","action":"add","note":"noted","author":{"name":"n","email":"e@example.com"}}`,
	})
	if got.err != nil || got.status/100 != 2 {
		f.t.Fatalf("note: %+v", got)
	}
}

// head returns the tip of main.
func (f *flipped) head(repo string) string {
	f.t.Helper()
	got := f.do(&ask{repo: repo, method: "GET", target: v1 + "/branches"})
	var listed struct {
		Branches []struct {
			Name    string
			HeadSHA string `json:"head_sha"`
		}
	}
	must(json.Unmarshal([]byte(got.body), &listed))
	for _, b := range listed.Branches {
		if b.Name == "main" {
			return b.HeadSHA
		}
	}
	f.t.Fatalf("%s has no main: %s", repo, got.body)
	return ""
}

// baseline records the answers of an undamaged store, which must be the same each time.
func (f *flipped) baseline(asks []ask) {
	f.t.Helper()
	for i := range asks {
		one := &asks[i]
		got := f.do(one)
		if got.err != nil || got.status/100 != 2 {
			f.t.Fatalf("%s of the undamaged store: %d %.200s, %v", one.name, got.status, got.body, got.err)
		}
		if one.want.status != 0 && got != one.want {
			f.t.Fatalf("%s is told in two ways:\n%.300q\n%.300q", one.name, one.want.body, got.body)
		}
		one.want = got
	}
}

// place is where a store is damaged.
type place struct {
	name string
	size int64
	key  []byte // of the key-value store; nil for a file
	data []byte // the undamaged value or file
}

// places returns every file of the stores and of the clone cache, and the values of hot objects,
// graph rows, filters, manifests and visibility sets.
func (f *flipped) places() map[string][]place {
	f.t.Helper()
	all := map[string][]place{}
	for _, dir := range []string{"files", "cache"} {
		names := filesBelow(f.fs, dir)
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) }) // by age
		for _, name := range names {
			kind := path.Ext(name)
			if dir == "cache" {
				kind = "clone"
			}
			if data := readAll(f.fs, name); path.Base(name) != "LOCK" && len(data) > 0 {
				all[kind] = append(all[kind], place{name: name, size: int64(len(data)), data: data})
			}
		}
	}
	for _, table := range "ogfmV" {
		for pair, err := range f.keys.Scan(f.t.Context(),
			kv.ScanOptions{Start: []byte{byte(table)}, End: []byte{byte(table) + 1}}) {
			must(err)
			all["key "+string(table)] = append(all["key "+string(table)], place{
				name: fmt.Sprintf("key %x", pair.Key), size: int64(len(pair.Value)), key: bytes.Clone(pair.Key),
				data: bytes.Clone(pair.Value),
			})
		}
	}
	return all
}

// filesBelow returns the files below a folder.
func filesBelow(fs vfs.FS, dir string) []string {
	names, err := fs.List(dir)
	must(err)
	var found []string
	for _, name := range names {
		name = fs.PathJoin(dir, name)
		info, err := fs.Stat(name)
		must(err)
		if info.IsDir() {
			found = append(found, filesBelow(fs, name)...)
		} else {
			found = append(found, name)
		}
	}
	return found
}

func readAll(fs vfs.FS, name string) []byte {
	open, err := fs.Open(name)
	must(err)
	data, err := io.ReadAll(open)
	must(errors.Join(err, open.Close()))
	return data
}

// damage changes a bit, a byte or a page of a place, and returns a function that restores it and
// whether anything has changed.
func (f *flipped) damage(at *place, random *rand.Rand) (how string, restore func(), changed bool) {
	f.t.Helper()
	offset, size := random.Int64N(at.size), int64(1)
	if at.key == nil && random.IntN(2) == 0 { // indexes and footers are small
		offset = at.size - 1 - random.Int64N(min(at.size, 8<<10))
	}
	change := func(p []byte) { p[0] ^= 1 << random.IntN(8) }
	how = "bit"
	switch random.IntN(4) {
	case 0:
		how, change = "byte", func(p []byte) { p[0] ^= byte(1 + random.IntN(255)) }
	case 1:
		const page = 4096
		offset = offset / page * page
		size = min(page, at.size-offset)
		torn := random.Int64N(size)
		how, change = "page", func(p []byte) { clear(p[torn:]) }
	}
	how = fmt.Sprintf("%s at %d of %d in %s", how, offset, at.size, at.name)
	old := make([]byte, size)
	f.readAt(at, old, offset)
	fresh := bytes.Clone(old)
	change(fresh)
	f.writeAt(at, fresh, offset)
	return how, func() { f.writeAt(at, old, offset) }, !bytes.Equal(old, fresh)
}

func (f *flipped) readAt(at *place, p []byte, offset int64) {
	if at.key != nil {
		copy(p, at.data[offset:])
		return
	}
	open, err := f.fs.Open(at.name)
	must(err)
	_, err = open.ReadAt(p, offset)
	must(err)
	must(open.Close())
}

func (f *flipped) writeAt(at *place, p []byte, offset int64) {
	if at.key != nil {
		value := bytes.Clone(at.data)
		copy(value[offset:], p)
		b := kv.NewBatch()
		b.Put(at.key, value)
		_, err := f.keys.Apply(context.Background(), b)
		must(err)
		return
	}
	open, err := f.fs.OpenReadWrite(at.name, vfs.WriteCategoryUnspecified)
	must(err)
	_, err = open.WriteAt(p, offset)
	must(err)
	must(open.Close())
}

// TestFlips damages a store in one place at a time and sends all requests: each answer is right, or
// an error that the client cannot miss. The full check finds the damage. A backup is whole or tells
// of it, and the older ones stay as they are. PACKHORSE_CASE_COUNT is the number of places.
func TestFlips(t *testing.T) {
	t.Parallel()
	f := newFlipped(t)
	places := f.places()
	var kinds []string
	for kind := range places {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range []string{
		".segment", ".graph", ".filter", ".history", ".trigram", ".bitmap", "clone", "key o", "key g", "key f", "key m", "key V",
	} {
		if len(places[kind]) == 0 {
			t.Fatalf("there is no %s among %q", kind, kinds)
		}
	}
	random, ofBackups := rand.New(rand.NewPCG(2, 3)), rand.New(rand.NewPCG(2, 4))
	counts := map[string]int{}
	for i := range oracle.CaseCount(t, 30, 10) {
		kind := kinds[i%len(kinds)]
		at := &places[kind][random.IntN(len(places[kind]))]
		how, restore, changed := f.damage(at, random)
		f.open()
		asked := someOf(f.asks, random)
		refused := f.holdAnswers(how, asked)
		if refused > 0 && kind != "clone" && f.host.DamageCount() == 0 {
			t.Errorf("%s: %d answers were refused, and no damage was counted", how, refused)
		}
		found := f.found(i%2 == 0)
		if changed && kind != "clone" && !found && !f.isLeftover(at) {
			t.Errorf("%s: fsck finds nothing", how)
		}
		if refused > 0 && !found && kind != "clone" {
			t.Errorf("%s: %d answers were refused, and fsck finds nothing", how, refused)
		}
		if f.holdBackup(ofBackups, how, at, found, i/len(kinds)%restoredEvery == 0) {
			counts[kind+" backups"]++
		}
		counts[kind+" cases"]++
		counts[kind+" refused"] += refused
		counts[kind+" asked"] += len(asked)
		f.shut()
		restore()
	}
	f.open()
	f.baseline(f.asks)
	f.shut()
	for _, kind := range kinds {
		t.Logf("%s: %d cases, %d of %d answers and %d backups refused", kind, counts[kind+" cases"],
			counts[kind+" refused"], counts[kind+" asked"], counts[kind+" backups"])
	}
}

// someOf returns a third of the requests.
func someOf(asks []ask, random *rand.Rand) []*ask {
	var some []*ask
	for _, n := range random.Perm(len(asks))[:(len(asks)+2)/3] {
		some = append(some, &asks[n])
	}
	return some
}

// holdAnswers wants the answers that were told before, or errors, whose number it returns.
func (f *flipped) holdAnswers(how string, asks []*ask) (refused int) {
	f.t.Helper()
	for _, one := range asks {
		got := f.do(one)
		switch {
		case got.err == nil && got == one.want:
		case got.err != nil && (got.status >= 500 || got.status < 300):
			refused++
		default:
			f.t.Errorf("%s: %s: %d %.100q, %v; want what was told before, or an error", how, one.name, got.status, got.body,
				got.err)
		}
	}
	return refused
}

// found reports whether the check of everything finds damage, or else scrubbing.
func (f *flipped) found(byFsck bool) bool {
	f.t.Helper()
	if !byFsck {
		must(f.host.Scrub(f.t.Context(), engine.ScrubOptions{BytesPerSecond: 1 << 50, Passes: 1}))
		return f.host.ScrubStats().ProblemCount > 0
	}
	found := false
	for checked, err := range f.host.Fsck(f.t.Context(), engine.FsckOptions{}) {
		must(err)
		found = found || checked.Damaged()
	}
	return found
}

// isLeftover reports whether a place waits to be removed, and is not read any more.
func (f *flipped) isLeftover(at *place) bool {
	f.t.Helper()
	id, _, _ := strings.Cut(path.Base(at.name), ".")
	if at.key != nil {
		id = fmt.Sprintf("%x", at.key[1:17])
	}
	for pair, err := range f.keys.Scan(f.t.Context(), kv.ScanOptions{Start: []byte{'d'}, End: []byte{'e'}}) {
		must(err)
		if strings.Contains(fmt.Sprintf("%x", pair.Key), id) {
			return true
		}
	}
	return false
}
