package githttp_test

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the trailer of a pack
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
)

// seal gives a pack that was changed its trailer again.
func seal(pack []byte) []byte {
	body := pack[:len(pack)-sha1.Size]
	sum := sha1.Sum(body) //nolint:gosec // as above
	return append(slices.Clone(body), sum[:]...)
}

// TestBadPackAgainstGit pushes packs that must be refused, whole and with a reason.
func TestBadPackAgainstGit(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	base := git.Seed(oracle.History{Seed: 71, Commits: 12})
	commit := func(tree string) string { return git.Git("commit-tree", "-m", "new", "-p", base, tree) }
	write := func(objectType, data string) string { return git.Write(objectType, []byte(data)) }
	tree := func(entries ...string) string {
		return strings.TrimSpace(string(git.Input([]byte(strings.Join(entries, "\n")+"\n"), "mktree", "--missing")))
	}
	// only packs just these objects.
	only := func(ids ...string) []byte {
		return git.Input([]byte(strings.Join(ids, "\n")+"\n"), "pack-objects", "-q", "--stdout")
	}
	blob := write("blob", strings.Repeat("a file\n", 100))
	goodTree := tree("100644 blob " + blob + "\tfile")
	good := commit(goodTree)
	pack := only(good, goodTree, blob)
	change := func(at int, to ...byte) []byte {
		changed := slices.Clone(pack)
		copy(changed[(at+len(changed))%len(changed):], to)
		return changed
	}
	raw := func(mode, name string) string {
		id, err := hex.DecodeString(blob)
		if err != nil {
			t.Fatal(err)
		}
		return mode + " " + name + "\x00" + string(id)
	}
	unsorted := write("tree", raw("100644", "b")+raw("100644", "a"))
	dotgit := write("tree", raw("100644", ".git"))
	noAuthor := write("commit", "tree "+goodTree+"\n\nno author\n")
	badCommit, dotgitCommit := commit(unsorted), commit(dotgit)
	missing := tree("100644 blob " + strings.Repeat("3", 40) + "\tfile")
	missingCommit := commit(missing)
	module := write("blob", "[submodule \"x\"]\n\tpath = x\n\turl = -oops\n")
	modules := tree("100644 blob " + module + "\t.gitmodules")
	modulesCommit := commit(modules)
	tests := map[string]struct {
		tip    string
		pack   []byte
		reason string
	}{
		"without its tree": {good, only(good, blob), "which " + good + " names, is missing"},
		"without a blob": {
			good, only(good, goodTree), "object " + blob + ", which " + goodTree + " names, is missing",
		},
		"a blob nobody has":     {missingCommit, only(missingCommit, missing), "is missing"},
		"without the commit":    {good, only(goodTree, blob), ""},
		"unsorted tree":         {badCommit, only(badCommit, unsorted, blob), "treeNotSorted"},
		"a file .git":           {dotgitCommit, only(dotgitCommit, dotgit, blob), "hasDotgit"},
		"commit without author": {noAuthor, only(noAuthor, goodTree, blob), "missingAuthor"},
		"url that is an option": {modulesCommit, only(modulesCommit, modules, module), "gitmodulesUrl"},
		"no pack":               {good, nil, ""},
		"half a header":         {good, pack[:7], ""},
		"only a header":         {good, pack[:12], ""},
		"half an entry":         {good, pack[:40], ""},
		"without its trailer":   {good, pack[:len(pack)-20], ""},
		"half a trailer":        {good, pack[:len(pack)-5], ""},
		"wrong trailer":         {good, change(-1, pack[len(pack)-1]^1), "checksum"},
		"damaged":               {good, change(60, pack[60]^0x10), ""},
		"damaged, trailer fits": {good, seal(change(60, pack[60]^0x10)), ""},
		"more than it says":     {good, seal(change(8, 0, 0, 0, 2)), ""},
		"less than it says":     {good, seal(change(8, 0, 0, 0, 4)), ""},
		"version 4":             {good, seal(change(4, 0, 0, 0, 4)), "version"},
		"no signature":          {good, seal(change(0, 'K')), ""},
		"something else":        {good, []byte("hello, world, how are you?"), ""},
		"delta without a base":  {good, thinPack(t, git, good), "unresolved"},
		"an object of no size":  {good, seal(change(12, 0x10)), ""},
		"objects that fill a hot": {
			good, append(slices.Clone(pack[:len(pack)-20]), bytes.Repeat([]byte{0x9f}, 3<<20)...), "",
		},
	}
	tw := newTwins(t, func(own *oracle.Repository) {
		own.Git("fetch", "--quiet", git.Dir, "refs/heads/main:refs/heads/main")
	})
	tw.git.Git("config", "receive.fsckObjects", "true")
	push := func(tip string, pack []byte) (got, want report) {
		return tw.comparePush(pushBody(allCapabilities, []string{zero + " " + tip + " refs/heads/new"}, pack), false)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tw.t = t
			if got, _ := push(test.tip, test.pack); !strings.Contains(got.lines[0], test.reason) {
				t.Errorf("the reason is %q, not %q", got.lines[0], test.reason)
			}
			for _, id := range []string{good, goodTree, blob, test.tip} {
				answer := tw.ours(2, request("command=fetch", delim, "want "+id, "done", flush))
				if answer.fatal != "upload-pack: not our ref "+id+"\n" {
					t.Errorf("%s of a refused push is answered with %q and %d bytes", id, answer.fatal, len(answer.pack))
				}
			}
		})
	}
	tw.t = t
	if got, _ := push(good, pack); got.lines[0] != "unpack ok" {
		t.Errorf("the pack itself is no good: %q", got.lines)
	}
}

// thinPack is a pack with deltas against objects that only git has.
func thinPack(t *testing.T, git *oracle.Repository, tip string) []byte {
	t.Helper()
	text := strings.Repeat("a long file with many lines\n", 1000)
	hidden := git.Write("blob", []byte(text))
	near := git.Write("blob", []byte(text+"and one more\n"))
	old := git.Git("commit-tree", "-m", "old",
		strings.TrimSpace(string(git.Input([]byte("100644 blob "+hidden+"\tfile\n"), "mktree"))))
	next := git.Git("commit-tree", "-m", "next", "-p", old,
		strings.TrimSpace(string(git.Input([]byte("100644 blob "+near+"\tfile\n"), "mktree"))))
	pack := git.Input([]byte(tip+"\n"+next+"\n^"+old+"\n"), "pack-objects", "-q", "--revs", "--stdout", "--thin")
	if binary.BigEndian.Uint32(pack[8:]) < 3 {
		t.Fatal("nothing in the pack")
	}
	return pack
}
