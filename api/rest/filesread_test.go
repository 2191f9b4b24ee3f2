package rest_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// readLine is any line of an answer of files/read.
type readLine struct {
	Ref       string
	CommitSHA string `json:"commit_sha"`
	TreeSHA   string `json:"tree_sha"`

	Path, Mode, SHA           string
	Size                      *int64
	Data                      *string
	Known, Truncated, Missing bool

	Complete bool
	Files    *int
}

// readFiles returns the first line of an answer, and the others in a short form: "path=content",
// with what stands in place of the content.
func readFiles(t *testing.T, body []byte) (head readLine, told []string) {
	t.Helper()
	if !strings.HasSuffix(string(body), "\n") {
		t.Errorf("no line end: %.200s", body)
	}
	for i, text := range strings.Split(strings.TrimSuffix(string(body), "\n"), "\n") {
		var line readLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %.200s", err, text)
		}
		switch {
		case i == 0:
			head = line
			continue
		case line.Complete:
			told = append(told, fmt.Sprint("complete ", *line.Files))
			continue
		case line.Missing:
			told = append(told, line.Path+" missing")
			continue
		}
		entry := line.Path
		if line.Data != nil {
			data, err := base64.StdEncoding.DecodeString(*line.Data)
			if err != nil || line.Size == nil || int64(len(data)) != *line.Size {
				t.Errorf("%d bytes of data, %v: %.200s", len(data), err, text)
			}
			entry += "=" + strings.TrimSpace(string(data))
		}
		if line.Known {
			entry += " known"
		}
		if line.Truncated {
			entry += fmt.Sprint(" truncated ", *line.Size)
		}
		if line.Mode != "100644" {
			entry += " " + line.Mode
		}
		told = append(told, entry)
	}
	return head, told
}

func TestFilesRead(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	c.call(c.door.CreateBranch, http.MethodPost, "/",
		strings.NewReader(`{"target_branch":"draft","target_is_ephemeral":true,"base_branch":"dev"}`)).want(http.StatusCreated)
	const readme, aGo, bGo = "README.md=hello again", "lib/a.go=package a", "lib/b.go=package b"
	aID, err := object.Hash(object.TypeBlob, []byte("package a\n"))
	if err != nil {
		t.Fatal(err)
	}
	known := strings.ToUpper(aID.String())
	for body, want := range map[string]string{
		`{}`:            readme + ", " + aGo + ", complete 2",
		`{"ref":"dev"}`: readme + ", " + aGo + ", " + bGo + ", complete 3",
		`{"ref":"draft","ephemeral":true,"include_globs":["b.*"]}`:           bGo + ", complete 1",
		`{"ref":"` + done[0].Commit.SHA + `"}`:                               "README.md=hello, complete 1",
		`{"ref":"dev","paths":["lib"],"exclude_globs":["b.go"]}`:             aGo + ", complete 1",
		`{"paths":["nope","lib/a.go","lib/","README.md/","/lib/a.go/x"]}`:    aGo + ", nope missing, README.md/ missing, /lib/a.go/x missing, complete 1",
		`{"paths":["lib/a.go"],"exclude_globs":["*.go"]}`:                    "complete 0",
		`{"max_bytes_per_file":10,"unknown":1}`:                              "README.md truncated 12, " + aGo + ", complete 2",
		`{"known":["` + known + `"]}`:                                        readme + ", lib/a.go known, complete 2",
		`{"paths":["lib"],"max_bytes_per_file":1,"known":["` + known + `"]}`: "lib/a.go known, complete 1",
	} {
		got := c.call(c.door.FilesRead, http.MethodPost, "/", strings.NewReader(body)).want(http.StatusOK)
		if kind := got.Header.Get("Content-Type"); kind != "application/x-ndjson" {
			t.Errorf("%s: the type is %s", body, kind)
		}
		if _, told := readFiles(t, got.Body); strings.Join(told, ", ") != want {
			t.Errorf("%s:\ngot  %s\nwant %s", body, strings.Join(told, ", "), want)
		}
	}
	got := c.call(c.door.FilesRead, http.MethodPost, "/", strings.NewReader(`{}`)).want(http.StatusOK)
	if head, _ := readFiles(t, got.Body); head.Ref != "main" || head.CommitSHA != done[2].Commit.SHA ||
		head.TreeSHA != done[2].Commit.Tree || head.TreeSHA == "" {
		t.Errorf("the first line is %+v", head)
	}

	many := func(count int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`"`+item+`",`, count), ",") + "]"
	}
	id := strings.Repeat("a", 40)
	for body, says := range map[string]string{
		``:                                  "JSON object",
		`[]`:                                "whole body",
		`{"ref":1}`:                         `"ref"`,
		`{"paths":"a"}`:                     `"paths"`,
		`{"paths":["a/../b"]}`:              `a/../b`,
		`{"paths":` + many(1001, "a") + `}`: "paths: expected at most 1000 items, got 1001",
		`{"include_globs":["["]}`:           "glob",
		`{"include_globs":` + many(1001, "a") + `}`:                 "include_globs: expected at most 1000",
		`{"exclude_globs":` + many(1001, "a") + `}`:                 "exclude_globs: expected at most 1000",
		`{"max_bytes_per_file":0}`:                                  "max_bytes_per_file: expected a number from 1 on, got 0",
		`{"max_bytes_per_file":"1"}`:                                `"max_bytes_per_file"`,
		`{"known":` + many(10001, id) + `}`:                         "known: expected at most 10000 items, got 10001",
		`{"known":["` + id + `","` + id + `","` + id + `","main"]}`: `known[3]: expected the 40 hexadecimal digits of a blob, got "main"`,
		`{"known":["` + id[1:] + `"]}`:                              "known[0]",
		`{"expected_head_sha":"` + id + `"}`:                        "expected_head_sha",
	} {
		c.call(c.door.FilesRead, http.MethodPost, "/", strings.NewReader(body)).refused(http.StatusBadRequest, says)
	}
	c.call(c.door.FilesRead, http.MethodPost, "/", strings.NewReader(`{"known":`+many(10000, id)+`}`)).want(http.StatusOK)
	c.call(c.door.FilesRead, http.MethodPost, "/", strings.NewReader(`{"ref":"nope"}`)).
		refused(http.StatusNotFound, "nope")
	c.as("nope").call(c.door.FilesRead, http.MethodPost, "/", strings.NewReader(`{}`)).
		refused(http.StatusNotFound, "nope")
}

// Every kind of entry, contents around the sizes of pieces, and one that is not read ahead.
func TestFilesReadContents(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	var index strings.Builder
	contents := map[string]string{}
	add := func(mode, path, content string) {
		id := content
		if mode != "160000" {
			id = git.Write("blob", []byte(content))
		}
		contents[path] = content
		fmt.Fprintf(&index, "%s %s\t%s\n", mode, id, path)
	}
	for _, size := range []int{0, 1, 2, 3, 48<<10 - 1, 48 << 10, 48<<10 + 1, 96<<10 + 2, 1 << 20, 1<<20 + 1, 3<<20 + 5} {
		add("100644", fmt.Sprintf("size/%07d", size), strings.Repeat("0123456789\xff", size/11+1)[:size])
	}
	add("100755", "run", "#!/bin/sh\n")
	add("120000", "link", "size/0000003")
	add("120000", "long-link", strings.Repeat("t", 1<<20+7))
	add("160000", "module", strings.Repeat("1", 40))
	git.Git("read-tree", "--empty")
	git.Input([]byte(index.String()), "update-index", "--index-info")
	tip := git.Git("commit-tree", "-m", "m", git.Git("write-tree"))
	host := enginetest.Open(t)
	id, err := object.ParseID(tip)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Push(t, enginetest.Create(t, host, "r"),
		git.Input([]byte(tip+"\n"), "pack-objects", "--revs", "--stdout", "-q"),
		engine.Command{Name: "refs/heads/main", New: id})
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: host})

	got := c.call(c.door.FilesRead, http.MethodPost, "/", strings.NewReader(`{}`)).want(http.StatusOK)
	listed := strings.Split(git.Git("ls-tree", "-r", tip), "\n")
	texts := strings.Split(string(got.Body), "\n")
	if len(texts) != len(listed)+3 {
		t.Fatalf("%d lines of %d files", len(texts), len(listed))
	}
	for i, entry := range listed {
		meta, path, _ := strings.Cut(entry, "\t")
		fields := strings.Fields(meta)
		var line readLine
		if err := json.Unmarshal([]byte(texts[i+1]), &line); err != nil {
			t.Fatal(err)
		}
		if line.Path != path || line.Mode != fields[0] || line.SHA != fields[2] {
			t.Errorf("%s %s %s, want %s", line.Mode, line.SHA, line.Path, entry)
		}
		if fields[1] == "commit" {
			if line.Data != nil || line.Size != nil || line.Known || line.Truncated {
				t.Errorf("a submodule has content: %s", texts[i+1])
			}
			continue
		}
		if line.Data == nil || line.Size == nil || *line.Size != int64(len(contents[path])) {
			t.Errorf("%s: %.200s", path, texts[i+1])
			continue
		}
		if data, err := base64.StdEncoding.Strict().DecodeString(*line.Data); err != nil || string(data) != contents[path] {
			t.Errorf("%s: another content of %d bytes, %v", path, len(data), err)
		}
	}
	for _, chunk := range got.Chunks {
		if len(chunk) > 100<<10 {
			t.Errorf("%d bytes are written at once", len(chunk))
		}
	}
	_, told := readFiles(t, got.Body)
	if !slices.Contains(told, fmt.Sprint("complete ", len(listed))) {
		t.Error("the last line is another one")
	}
}

// A server without a free slot says so instead of beginning an answer.
func TestFilesReadOfABusyServer(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	x := exchangetest.New(http.MethodPost, "/", strings.NewReader("{}"))
	x.SlotErr = exchange.ErrBusy
	if err := c.door.FilesRead(x, c.grant); !errors.Is(err, exchange.ErrBusy) {
		t.Errorf("%v", err)
	}
}
