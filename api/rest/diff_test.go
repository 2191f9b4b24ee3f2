package rest_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
)

// diffAnswer is the answer of the two endpoints for diffs.
type diffAnswer struct {
	SHA, Branch, Base string
	BaseSHA           *string `json:"base_sha"`
	MergeBaseSHA      *string `json:"merge_base_sha"`
	TreeSHA           string  `json:"tree_sha"`
	BaseTreeSHA       *string `json:"base_tree_sha"`
	Files             []diffEntry
	Filtered          []diffEntry `json:"filtered_files"`
	Stats             struct{ Files, Additions, Deletions, Changes int }
	Complete          *bool
}

type diffEntry struct {
	Path, State          string
	OldPath              *string `json:"old_path"`
	Bytes                *int
	IsEOF                *bool `json:"is_eof"`
	Additions, Deletions int
	Raw                  *string
	RawBase64            *string `json:"raw_base64"`
	Reason               string
}

func (c *client) diff(query string) diffAnswer {
	c.t.Helper()
	var told diffAnswer
	c.call(c.door.CommitDiff, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&told)
	return told
}

// commitFiles writes files to main; a nil content removes the file.
func (c *client) commitFiles(files map[string][]byte) string {
	c.t.Helper()
	const chunkMax = 4 << 20
	var operations []string
	p := &pack{}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		if files[path] == nil {
			operations = append(operations, fmt.Sprintf(`{"path":%q,"operation":"delete"}`, path))
			continue
		}
		operations = append(operations, fmt.Sprintf(`{"path":%q,"content_id":"%d"}`, path, i))
		rest := string(files[path])
		for len(rest) > chunkMax {
			p.chunk(fmt.Sprint(i), rest[:chunkMax], false)
			rest = rest[chunkMax:]
		}
		p.chunk(fmt.Sprint(i), rest, true)
	}
	head := newPack(fmt.Sprintf(`"target_branch":"main","commit_message":"m",%s,"files":[%s]`, author,
		strings.Join(operations, ",")))
	var done committed
	c.commitPack(strings.NewReader(head.String() + p.String())).want(http.StatusCreated).decode(&done)
	return done.Commit.SHA
}

func TestCommitDiff(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	long := strings.Repeat("the same line in all of them\n", 20)
	root := c.commitFiles(map[string][]byte{"README.md": []byte("one\ntwo\nthree"), "old name": []byte(long)})
	next := c.commitFiles(map[string][]byte{
		"README.md": []byte("one\n2\nthree\n"), "old name": nil, "new name": []byte(long + "more\n"),
	})

	first := c.diff("sha=" + root)
	if first.SHA != root || first.BaseSHA != nil || first.MergeBaseSHA != nil || len(first.Files) != 2 ||
		first.Files[0].State != "A" ||
		first.Stats.Files != 2 || first.Stats.Additions != 23 || first.Stats.Changes != 23 || !*first.Complete ||
		first.Filtered == nil {
		t.Errorf("the root is told as %+v", first)
	}
	got := c.diff("gitApplyCompatible=true&sha=" + next)
	if *got.BaseSHA != root || *got.MergeBaseSHA != root || len(got.Files) != 2 {
		t.Fatalf("the second commit is told as %+v", got)
	}
	const readme = `diff --git a/README.md b/README.md
index 59a5c8d07bde2d4be45bb3b8bb2a2d5a97b0b9b0..0000000000000000000000000000000000000000 100644
--- a/README.md
+++ b/README.md
@@ -1,3 +1,3 @@
 one
-two
-three
\ No newline at end of file
+2
+three
`
	f := got.Files[0]
	if lines := strings.SplitN(readme, "\n", 3); *f.Raw != lines[0]+"\n"+strings.SplitN(*f.Raw, "\n", 3)[1]+"\n"+lines[2] {
		t.Errorf("got  %s\nwant %s", *f.Raw, readme)
	}
	if f.State != "M" || *f.OldPath != "" || *f.Bytes != len(*f.Raw) || !*f.IsEOF || f.Additions != 2 || f.Deletions != 2 {
		t.Errorf("the changed file is told as %+v", f)
	}
	f = got.Files[1]
	if f.Path != "new name" || *f.OldPath != "old name" || f.State != "R099" ||
		!strings.Contains(*f.Raw, "rename from old name\nrename to new name\n") {
		t.Errorf("the renamed file is told as %+v", f)
	}
	if again := c.diff("sha=" + next + "&baseSha=" + root); *again.Files[1].Raw != *f.Raw || *again.BaseSHA != root {
		t.Errorf("with its base it is told as %+v", again)
	}
	back := c.diff("sha=" + root + "&baseSha=" + next)
	if *back.MergeBaseSHA != root || back.Stats.Additions != 2 || back.Stats.Deletions != 3 || *back.Files[0].IsEOF {
		t.Errorf("backwards it is told as %+v", back)
	}
	if none := c.diff("sha=" + next + "&baseSha=" + next); none.Files == nil || len(none.Files) != 0 || !*none.Complete {
		t.Errorf("against itself: %+v", none)
	}
	one := c.diff("sha=" + next + "&path=new+name")
	if len(one.Files) != 1 || one.Files[0].State != "A" || one.Stats.Files != 1 {
		t.Errorf("of one path: %+v", one)
	}
	if two := c.diff("sha=" + next + "&path=new+name&path=old+name"); len(two.Files) != 1 || two.Files[0].State != "R099" {
		t.Errorf("of both names: %+v", two)
	}
}

func TestDiffFilters(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.commitFiles(map[string][]byte{"z.txt": []byte("z")})
	files := map[string][]byte{
		"a/yarn.lock":  []byte("lock\n"),
		"binary":       []byte("\x00\x01binary"),
		"few.txt":      []byte(strings.Repeat("line\n", 2000)),
		"lock.go":      []byte("no lock file\n"),
		"many.txt":     []byte(strings.Repeat("line\n", 2001)),
		"size.txt":     []byte(strings.Repeat("0123456789", 51_200)),
		"too-long.txt": []byte(strings.Repeat("0123456789", 51_200) + "\n"),
	}
	sha := c.commitFiles(files)
	told := c.diff("sha=" + sha)
	reasons := map[string]string{}
	for _, f := range told.Filtered {
		reasons[f.Path] = f.Reason
		if f.Raw != nil || f.Bytes == nil || (*f.Bytes == 0) != (f.Reason == "size") {
			t.Errorf("%s is told as %+v", f.Path, f)
		}
		if ends := files[f.Path][len(files[f.Path])-1] == '\n'; *f.IsEOF != ends {
			t.Errorf("%s ends in a line feed: %v, told: %v", f.Path, ends, *f.IsEOF)
		}
	}
	want := map[string]string{"a/yarn.lock": "lock", "binary": "binary", "many.txt": "lines", "too-long.txt": "size"}
	if !maps.Equal(reasons, want) {
		t.Errorf("filtered are %v, want %v", reasons, want)
	}
	if len(told.Files) != 3 || told.Stats.Files != 7 || told.Stats.Additions != 1+2000+1+2001+1 || *told.Complete {
		t.Errorf("%d files, stats %+v, complete %v", len(told.Files), told.Stats, *told.Complete)
	}
	for path := range want {
		one := c.diff("sha=" + sha + "&path=" + url.QueryEscape(path))
		if len(one.Filtered) != 0 || len(one.Files) != 1 || len(*one.Files[0].Raw) != *one.Files[0].Bytes || !*one.Complete {
			t.Errorf("asked for by its path, %s is told as %.200v", path, one)
		}
	}
	binary := c.diff("sha=" + sha + "&path=binary")
	if raw := *binary.Files[0].Raw; !strings.Contains(raw, "GIT binary patch\nliteral 8\n") {
		t.Errorf("the binary file is told as %s", raw)
	}
}

func TestDiffOfLargeFiles(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	text := strings.Repeat("hörse \"pack\"\n", 250_000)
	c.commitFiles(map[string][]byte{"text": []byte(text), "latin": []byte(text), "bin": []byte("\x00")})
	sha := c.commitFiles(map[string][]byte{
		"text":  []byte(text + "end"),
		"latin": []byte(text + "\xe4\n"),
		"bin":   []byte("\x00" + strings.Repeat("binary", 2_000_000)),
	})
	told := c.diff("sha=" + sha + "&path=text&path=latin&path=bin")
	if len(told.Files) != 3 {
		t.Fatalf("%d files", len(told.Files))
	}
	for _, f := range told.Files {
		raw := []byte(*f.Raw)
		if f.RawBase64 != nil {
			raw, _ = base64.StdEncoding.DecodeString(*f.RawBase64)
		}
		if len(raw) != *f.Bytes || (f.RawBase64 != nil) != (f.Path == "latin") {
			t.Errorf("%s: %d bytes, told as %d", f.Path, len(raw), *f.Bytes)
		}
		ending := map[string]string{
			"text": "\n+end\n\\ No newline at end of file\n", "latin": "\n+\xe4\n", "bin": "\n\n",
		}[f.Path]
		if !strings.HasSuffix(string(raw), ending) {
			t.Errorf("%s ends in %q", f.Path, raw[max(0, len(raw)-60):])
		}
	}
	small := c.commitFiles(map[string][]byte{"small": []byte("\xe4\n")})
	f := c.diff("sha=" + small).Files[0]
	if raw, _ := base64.StdEncoding.DecodeString(*f.RawBase64); !strings.HasSuffix(string(raw), "\n+\xe4\n") ||
		!strings.HasSuffix(*f.Raw, "\n+\uFFFD\n") {
		t.Errorf("what is no UTF-8 is told as %+v", f)
	}
}

// TestDiffsApply commits the diff of a commit to its parent, which gives the same tree.
func TestDiffsApply(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	random := rand.New(rand.NewPCG(3, 3))
	size := 9 << 20 // above 8 MiB a binary patch is a stream
	if testing.Short() {
		size = 1 << 20
	}
	noise := make([]byte, size)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	changed := slices.Clone(noise)
	changed[len(changed)/2] ^= 0xff
	text := []byte(strings.Repeat("a line\n", 1000))
	parent := c.commitFiles(map[string][]byte{
		"moved/old": text, "noise": noise, "small noise": noise[:5000], "no end": []byte("one\ntwo"),
		"latin": []byte("\xe4\n"), "gone": []byte("x"),
	})
	sha := c.commitFiles(map[string][]byte{
		"moved/old": nil, "moved/new \"name\"": append(text, "more\n"...), "noise": changed, "small noise": changed[:4990],
		"no end": []byte("one\ntwo\n"), "latin": []byte("\xe4\n\xf6\n"), "gone": nil, "yarn.lock": []byte("lock\n"),
		"empty": {},
	})
	var patch []byte
	told := c.diff("sha=" + sha +
		"&path=moved&path=noise&path=small+noise&path=no+end&path=latin&path=gone&path=yarn.lock&path=empty")
	for _, f := range told.Files {
		raw := []byte(*f.Raw)
		if f.RawBase64 != nil {
			var err error
			if raw, err = base64.StdEncoding.DecodeString(*f.RawBase64); err != nil {
				t.Fatal(err)
			}
		}
		patch = append(patch, raw...)
	}
	c.post(c.door.CreateBranch, fmt.Sprintf(`{"target_branch":"applied","base_ref":%q}`, parent)).want(http.StatusCreated)
	body := newPack(`"target_branch":"applied","commit_message":"m",` + author)
	for len(patch) > 4<<20 {
		body.diffChunk(string(patch[:4<<20]), false)
		patch = patch[4<<20:]
	}
	var applied committed
	c.diffCommit(body.diffChunk(string(patch), true)).want(http.StatusCreated).decode(&applied)
	if left := c.diff("sha=" + applied.Commit.SHA + "&baseSha=" + sha); left.Stats.Files != 0 {
		t.Errorf("what was applied differs: %+v", left)
	}
}

func TestInlineDiff(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	big := strings.Repeat("a line of a large file\n", 100_000)
	c.commitFiles(map[string][]byte{"a": []byte("one\nthe quick fox\n"), "big": []byte(big), "bin": []byte("\x00")})
	sha := c.commitFiles(map[string][]byte{
		"a": []byte("one\nthe slow fox\n"), "big": []byte("the" + big[1:]), "bin": []byte("\x001"),
	})
	type pair struct {
		OldLine  int `json:"old_line"`
		NewLine  int `json:"new_line"`
		Old, New [][2]int
	}
	var told struct {
		Files []struct {
			Path   string
			Inline []pair
		}
	}
	c.call(c.door.CommitDiff, http.MethodGet, "/?inline=true&path=a&path=big&path=bin&sha="+sha, nil).want(http.StatusOK).
		decode(&told)
	want := map[string][]pair{
		"a":   {{2, 2, [][2]int{{4, 9}}, [][2]int{{4, 8}}}},
		"big": {{1, 1, [][2]int{{0, 1}}, [][2]int{{0, 3}}}},
		"bin": {},
	}
	for _, f := range told.Files {
		if !reflect.DeepEqual(f.Inline, want[f.Path]) {
			t.Errorf("%s is told as %v", f.Path, f.Inline)
		}
	}
	if len(told.Files) != len(want) {
		t.Errorf("%d files", len(told.Files))
	}
	c.call(c.door.CommitDiff, http.MethodGet, "/?inline=1&sha="+sha, nil).refused(http.StatusBadRequest, "inline")
}

// The answers name the trees that are compared, whatever paths are selected.
func TestDiffTrees(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	later := c.commit("main", "later", "after dev was left\n").Commit
	root, second, third, dev := done[0].Commit, done[1].Commit, done[2].Commit, done[3].Commit
	for query, want := range map[string]struct{ tree, base string }{
		"sha=" + root.SHA:                           {root.Tree, ""},
		"sha=" + third.SHA:                          {third.Tree, second.Tree},
		"path=nope&sha=" + third.SHA:                {third.Tree, second.Tree},
		"sha=" + third.SHA + "&baseSha=" + root.SHA: {third.Tree, root.Tree},
		"sha=" + root.SHA + "&baseSha=" + third.SHA: {root.Tree, third.Tree},
		"sha=" + dev.SHA + "&baseSha=" + later.SHA:  {dev.Tree, later.Tree}, // not their merge base
		"branch=dev":                                {dev.Tree, third.Tree},
		"branch=main&base=dev":                      {later.Tree, third.Tree},
		"branch=main&base=main":                     {later.Tree, later.Tree},
	} {
		call := c.door.CommitDiff
		if strings.HasPrefix(query, "branch=") {
			call = c.door.BranchDiff
		}
		var told diffAnswer
		c.call(call, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&told)
		if told.TreeSHA != want.tree || (told.BaseTreeSHA == nil) != (want.base == "") ||
			want.base != "" && *told.BaseTreeSHA != want.base {
			t.Errorf("%s: %+v, want %+v", query, told, want)
		}
	}
}

func TestBranchDiff(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	c.commit("main", "later", "after dev was left\n")
	c.commit("dev", "lib/c.go", "package c\n")
	var told diffAnswer
	c.call(c.door.BranchDiff, http.MethodGet, "/?branch=dev", nil).want(http.StatusOK).decode(&told)
	if told.Branch != "dev" || told.Base != "main" || *told.MergeBaseSHA != done[2].Commit.SHA || told.Stats.Files != 2 ||
		told.Files[0].Path != "lib/b.go" || told.Files[1].Path != "lib/c.go" {
		t.Errorf("dev is told as %+v", told)
	}
	c.call(c.door.BranchDiff, http.MethodGet, "/?branch=dev&base=dev&path=lib/b.go", nil).want(http.StatusOK).decode(&told)
	if told.Base != "dev" || len(told.Files) != 0 {
		t.Errorf("against itself: %+v", told)
	}
	fields := fmt.Sprintf(
		`"target_branch":"try","base_branch":"main","ephemeral":true,"commit_message":"m",%s,"files":[{"path":"e","content_id":"1"}]`, author,
	)
	c.commitPack(newPack(fields).chunk("1", "e\n", true)).want(http.StatusCreated)
	var ephemeral diffAnswer
	c.call(c.door.BranchDiff, http.MethodGet, "/?branch=try&ephemeral=true", nil).want(http.StatusOK).decode(&ephemeral)
	if len(ephemeral.Files) != 1 || ephemeral.Files[0].Path != "e" {
		t.Errorf("the ephemeral branch is told as %+v", ephemeral)
	}
	c.call(c.door.BranchDiff, http.MethodGet, "/?branch=main&base=try&ephemeral_base=true", nil).want(http.StatusOK).
		decode(&ephemeral)
	if len(ephemeral.Files) != 0 {
		t.Errorf("main against the ephemeral branch is told as %+v", ephemeral)
	}
	for query, want := range map[string]struct {
		status int
		says   string
	}{
		"":                                {http.StatusBadRequest, "branch"},
		"branch=nope":                     {http.StatusNotFound, "nope"},
		"branch=dev&base=nope":            {http.StatusNotFound, "nope"},
		"branch=dev&ephemeral=true":       {http.StatusNotFound, "dev"},
		"branch=dev&ephemeral=1":          {http.StatusBadRequest, "ephemeral"},
		"branch=dev&ephemeral_base=no":    {http.StatusBadRequest, "ephemeral_base"},
		"branch=dev&path=":                {http.StatusBadRequest, "path"},
		"branch=dev&base=try&base_is=odd": {http.StatusNotFound, "try"},
	} {
		c.call(c.door.BranchDiff, http.MethodGet, "/?"+query, nil).refused(want.status, want.says)
	}
	c.as("nope").call(c.door.BranchDiff, http.MethodGet, "/?branch=dev", nil).refused(http.StatusNotFound, "nope")
}

func TestCommitDiffRefuses(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	sha := done[2].Commit.SHA
	for query, want := range map[string]struct {
		status int
		says   string
	}{
		"":                                     {http.StatusBadRequest, "sha"},
		"sha=":                                 {http.StatusBadRequest, "sha"},
		"sha=main":                             {http.StatusBadRequest, "sha"},
		"sha=" + sha[1:]:                       {http.StatusBadRequest, "sha"},
		"sha=" + strings.Repeat("0", 39) + "1": {http.StatusNotFound, "not found"},
		"sha=" + done[2].Commit.Tree:           {http.StatusNotFound, "not found"},
		"sha=" + sha + "&baseSha=x":            {http.StatusBadRequest, "baseSha"},
		"sha=" + sha + "&baseSha=" + strings.Repeat("1", 40): {http.StatusNotFound, "not found"},
		"sha=" + sha + "&path=/":                             {http.StatusBadRequest, "path"},
		"sha=" + sha + "&gitApplyCompatible=maybe":           {http.StatusBadRequest, "gitApplyCompatible"},
	} {
		c.call(c.door.CommitDiff, http.MethodGet, "/?"+query, nil).refused(want.status, want.says)
	}
	c.call(c.door.CommitDiff, http.MethodGet, "/?sha="+sha, nil, "X-Min-Sequence", "x").refused(http.StatusBadRequest,
		"X-Min-Sequence")
	c.as("nope").call(c.door.CommitDiff, http.MethodGet, "/?sha="+sha, nil).refused(http.StatusNotFound, "nope")

	busy := exchangetest.New(http.MethodGet, "/?sha="+sha, nil)
	busy.SlotErr = exchange.ErrBusy
	err := c.door.CommitDiff(busy, c.grant)
	if err == nil {
		t.Fatal("a diff was begun without a slot")
	}
	if p := rest.Refuse(busy, err); p.Status != http.StatusServiceUnavailable || p.RetryAfter == 0 {
		t.Errorf("without a slot: %+v", p)
	}
}
