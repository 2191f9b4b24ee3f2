package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/engine"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/refs"
)

// oldObjects is a server whose store holds what earlier versions accepted, as docs/backup.md tells
// of it.
type oldObjects struct {
	*packhorsetest.Server
	t          *testing.T
	home, data string
	url, token string
}

// badModules is a .gitmodules to which git's fsck objects.
const badModules = "[submodule \"a\"]\n\tpath = a\n\turl = -u./payload\n"

// oldHistory makes a history with a tree that is not sorted, a commit with a date of too many
// digits, a bad .gitmodules, and an empty file.
func oldHistory(t *testing.T) (git *oracle.Repository, tip string) {
	t.Helper()
	git = oracle.New(t)
	blob := git.Write("blob", bytes.Repeat([]byte("a line of a file\n"), 20))
	entry := func(mode, name, id string) string {
		parsed, err := object.ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		return mode + " " + name + "\x00" + string(parsed[:])
	}
	folder := git.Write("tree", []byte(entry("100644", "b", blob)+entry("100644", "a", blob)))
	modules, empty := git.Write("blob", []byte(badModules)), git.Write("blob", nil)
	for i, tree := range []string{
		entry("40000", "folder", folder),
		entry("100644", ".gitmodules", modules) + entry("100644", "empty", empty) + entry("100644", "file", blob),
	} {
		date, parent := "1700000000 +0000", ""
		if i == 0 {
			date = "0" + date
		} else {
			parent = "parent " + tip + "\n"
		}
		tip = git.Write("commit", fmt.Appendf(nil, "tree %s\n%sauthor A <a@b> %s\ncommitter A <a@b> %[3]s\n\n%d\n",
			git.Write("tree", []byte(tree)), parent, date, i))
	}
	return git, tip
}

// newOldObjects stores the objects of oldHistory unchecked, the empty file as a delta that makes
// nothing, with branches, one of them ephemeral, and a tag that lead to them.
func newOldObjects(t *testing.T) *oldObjects {
	t.Helper()
	o := &oldObjects{t: t, home: t.TempDir()}
	o.data = filepath.Join(o.home, "data")
	o.serve()
	o.token = create(t, o.Server, "r")
	if err := o.Stop(); err != nil {
		t.Fatal(err)
	}
	git, tip := oldHistory(t)
	keys, err := kv.OpenPebble(filepath.Join(o.data, "keys"), kv.PebbleOptions{})
	o.must(err)
	files, err := file.OpenDir(filepath.Join(o.data, "files"), file.DirOptions{})
	o.must(err)
	host, err := engine.Open(t.Context(), engine.Config{KV: keys, Files: files})
	o.must(err)
	repo, err := host.Repository(t.Context(), packhorsetest.Org, "r")
	o.must(err)
	o.store(keys, repo, git)
	actor := engine.Actor{Org: packhorsetest.Org, Subject: "test"}
	at := engine.CommitName{Text: tip, Kind: engine.FullID}
	for _, branch := range []string{"main", "side"} {
		_, err = repo.CreateBranch(t.Context(), actor, engine.CreateBranchRequest{Branch: branch, Base: at})
		o.must(err)
	}
	_, err = repo.CreateBranch(t.Context(), actor,
		engine.CreateBranchRequest{Branch: "spike", Namespace: refs.Ephemeral, Base: at})
	o.must(err)
	_, err = repo.CreateTag(t.Context(), actor, refs.Main, "v1", at)
	o.must(err)
	o.must(errors.Join(host.Close(t.Context()), files.Close(), keys.Close()))
	o.serve()
	return o
}

// store adds all objects of git to the repository, unchecked.
func (o *oldObjects) store(keys kv.Store, repo *engine.Repository, git *oracle.Repository) {
	o.t.Helper()
	ctx := o.t.Context()
	view, err := repo.Objects(ctx)
	o.must(err)
	defer view.Close()
	q := view.NewQuarantine(ctx)
	defer q.Close()
	var base object.ID
	for _, line := range git.Objects() {
		var hex, kind string
		var size int64
		if _, err := fmt.Sscan(line, &hex, &kind, &size); err != nil {
			o.t.Fatal(err)
		}
		id, err := object.ParseID(hex)
		o.must(err)
		if id == object.EmptyBlobID {
			continue
		}
		value := odb.HotValue{ID: id, Size: size, ContentSize: size}
		value.Type, err = object.ParseType(kind)
		o.must(err)
		data := git.Read(kind, hex)
		if size == 340 {
			base = id
		}
		var row *odb.GraphRow
		if value.Type == object.TypeCommit {
			tree, parents, seconds, err := object.CommitLinks(data)
			o.must(err)
			row = &odb.GraphRow{Tree: tree, Parents: parents, Seconds: seconds, Generation: uint32(1 + len(parents))}
		}
		value.Payload = pack.Deflate(nil, data, pack.LevelDefault)
		o.must(q.AddPacked(ctx, &value, row))
	}
	short := []byte{0xd4, 2, 0} // 340 bytes become none
	o.must(q.AddPacked(ctx, &odb.HotValue{
		ID: object.EmptyBlobID, Type: object.TypeBlob, Base: base, ContentSize: int64(len(short)),
		Payload: pack.Deflate(nil, short, pack.LevelDefault),
	}, nil))
	b := kv.NewBatch()
	o.must(q.Stage(ctx, b))
	applied, err := keys.Apply(ctx, b)
	o.must(err)
	o.must(applied.Wait(ctx))
	q.Settled(ctx)
}

func (o *oldObjects) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// serve starts the server, without maintenance of its own.
func (o *oldObjects) serve() {
	o.t.Helper()
	o.Server = start(o.t, packhorsetest.Options{Dir: o.home, Flags: []string{"--maintenance-off"}})
	if o.token != "" {
		o.url = strings.Replace(o.URL, "http://", "http://t:"+o.token+"@", 1) + "/r.git"
	}
}

// git runs git in a folder, and wants it to succeed or to fail with a text.
func (o *oldObjects) git(dir, fails string, args ...string) {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, append(oracle.EnvOutside(o.home), "FILTER_BRANCH_SQUELCH_WARNING=1")
	told, err := cmd.CombinedOutput()
	if (err != nil) != (fails != "") || !strings.Contains(string(told), fails) {
		o.t.Fatalf("git %s: %v, want %q\n%s", strings.Join(args, " "), err, fails, told)
	}
}

// clone clones with strict checks into a new folder, which it returns.
func (o *oldObjects) clone(fails string) string {
	o.t.Helper()
	dir := filepath.Join(o.t.TempDir(), "clone")
	o.git(o.home, fails, "-c", "transfer.fsckObjects=true", "clone", "--quiet", o.url, dir)
	return dir
}

// warns checks that fsck finds no damage, and just these warnings.
func (o *oldObjects) warns(when string, want ...string) {
	o.t.Helper()
	got := packhorse(o.t, nil, "fsck", "--data", o.data)
	if got.status != 0 {
		o.t.Errorf("%s: fsck: %+v", when, got)
	}
	told := got.out + got.errOut
	for _, text := range []string{"a delta that makes nothing", "treeNotSorted", "zeroPaddedDate", "gitmodulesUrl"} {
		if strings.Contains(told, text) != slices.Contains(want, text) {
			o.t.Errorf("%s: fsck tells of %q, or does not:\n%s", when, text, told)
		}
	}
}

func (o *oldObjects) gc(args ...string) {
	o.t.Helper()
	if got := packhorse(o.t, nil, append([]string{"gc", "--data", o.data}, args...)...); got.status != 0 {
		o.t.Fatalf("gc: %+v", got)
	}
}

// TestRepairOfOldObjects does with a store what docs/backup.md, "Warnings of fsck", says.
func TestRepairOfOldObjects(t *testing.T) {
	t.Parallel()
	o := newOldObjects(t)
	faults := []string{"treeNotSorted", "zeroPaddedDate", "gitmodulesUrl"}
	o.warns("at first", append(faults, "a delta that makes nothing")...)
	o.gc()
	o.warns("after gc", faults...)
	o.clone("fsck error")

	work := filepath.Join(t.TempDir(), "work")
	o.git(o.home, "", "clone", "--quiet", o.url, work)
	commitIn := func(name string) {
		o.must(os.WriteFile(filepath.Join(work, name), []byte(name+"\n"), 0o600))
		o.git(work, "", "add", name)
		o.git(work, "", "commit", "--quiet", "-m", name)
	}
	commitIn("one")
	o.git(work, "gitmodulesUrl", "push", "--quiet", "origin", "main")
	body := `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"A","email":"a@b"},` +
		`"files":[{"path":".gitmodules","operation":"delete"}]}}` + "\n"
	send(t.Context(), http.MethodPost, o.URL+"/api/v1/repos/commit-pack", o.token, "", []byte(body)).mustBe(t, http.StatusCreated)
	o.git(work, "", "reset", "--quiet", "--hard", "HEAD~")
	o.git(work, "", "pull", "--quiet", "--ff-only")
	commitIn("two")
	o.git(work, "", "push", "--quiet", "origin", "main")
	o.clone("fsck error")
	o.warns("after the commit", faults...)

	rewritten := o.rewritten()
	o.git(rewritten, "", "push", "--quiet", "--mirror", o.url)
	o.clone("")
	o.warns("after the push", faults...)
	o.gc("--grace", "0s")
	o.warns("while an ephemeral branch leads to them", faults...)
	send(t.Context(), http.MethodDelete, o.URL+"/api/v1/repos/branches", o.token, "",
		[]byte(`{"name": "spike", "ephemeral": true}`)).mustBe(t, http.StatusOK)
	org := filepath.Join(o.OrgDir(), "org.yaml")
	o.must(os.WriteFile(org, []byte("keep_history: 30d\n"), 0o600))
	o.must(o.Stop())
	o.serve() // which has read it
	o.gc("--grace", "0s")
	o.warns("while the organization keeps its history", faults...)
	o.must(os.WriteFile(org, []byte("keep_history: 0s\n"), 0o600))
	o.must(o.Stop())
	o.serve()
	o.gc("--grace", "0s")
	o.warns("in the end")
	o.git(o.clone(""), "", "fsck", "--strict")
}

// rewritten rewrites the history in a clone, without .gitmodules, and returns its folder.
func (o *oldObjects) rewritten() string {
	o.t.Helper()
	dir := o.t.TempDir()
	o.git(dir, "", "clone", "--quiet", "--mirror", o.url, "old.git")
	o.git(dir, "", "-C", "old.git", "filter-branch", "--index-filter",
		"git rm --quiet --cached --ignore-unmatch .gitmodules", "--tag-name-filter", "cat", "--", "--all")
	o.git(dir, "", "init", "--quiet", "--bare", "new.git")
	copied := exec.CommandContext(o.t.Context(), "sh", "-c",
		"git -C old.git fast-export --branches --tags | git -C new.git fast-import --quiet")
	copied.Dir, copied.Env = dir, oracle.EnvOutside(o.home)
	if told, err := copied.CombinedOutput(); err != nil {
		o.t.Fatalf("%v\n%s", err, told)
	}
	return filepath.Join(dir, "new.git")
}
