package rest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
)

// chunked adds a patch in chunks of at most a size.
func (p *pack) chunked(patch string, sizeMax int) *pack {
	for len(patch) > sizeMax {
		p.diffChunk(patch[:sizeMax], false)
		patch = patch[sizeMax:]
	}
	return p.diffChunk(patch, true)
}

// manyLines is a text of numbered lines.
func manyLines(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "line number %d\n", i)
	}
	return text.String()
}

// newFile is a patch that creates a file.
func newFile(path, text string) string {
	count := strings.Count(text, "\n")
	return fmt.Sprintf(
		"diff --git a/%[1]s b/%[1]s\nnew file mode 100644\n--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1,%[2]d @@\n%[3]s", path,
		count,
		"+"+strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n+")+"\n",
	)
}

// TestDiffCommitSpools sends patches that are too large for memory.
func TestDiffCommitSpools(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	text := manyLines(200_000)
	c.diffCommit(newPack(onMain).chunked(newFile("many", text), 1<<20)).want(http.StatusCreated)
	if got := c.call(c.door.File, http.MethodGet, "/?path=many", nil).want(http.StatusOK); string(got.Body) != text {
		t.Errorf("the file holds %d bytes, want %d", len(got.Body), len(text))
	}
	// Every fourth line goes, in a hunk of its own.
	var edit, want strings.Builder
	edit.WriteString("--- a/many\n+++ b/many\n")
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if i%4 != 2 {
			want.WriteString(line)
		} else {
			fmt.Fprintf(&edit, "@@ -%d,3 +%d,2 @@\n %s-%s %s", i, i-i/4, lines[i-1], line, lines[i+1])
		}
	}
	if edit.Len() < 1<<20 {
		t.Fatalf("a patch of %d bytes is none that spools", edit.Len())
	}
	c.diffCommit(newPack(onMain).chunked(edit.String(), 300_000)).want(http.StatusCreated)
	if got := c.call(c.door.File, http.MethodGet, "/?path=many", nil).
		want(http.StatusOK); string(got.Body) != want.String() {
		t.Errorf("the file holds %d bytes, want %d", len(got.Body), want.Len())
	}
	c.diffCommit(newPack(onMain).chunked(newFile("many", text), 1<<20)).refused(http.StatusBadRequest, "exists already")
	c.diffCommit(newPack(onMain).chunked(strings.Repeat("no patch\n", 200_000), 1<<20)).refused(http.StatusBadRequest,
		"no patch")
}

// TestDiffCommitLargeFile checks the possible changes of files above 32 MiB: they are created and
// deleted as a whole.
func TestDiffCommitLargeFile(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads and writes 100 MiB")
	}
	c, _ := seeded(t)
	text := manyLines(1_800_000)
	if len(text) <= 32<<20 {
		t.Fatalf("the file has %d bytes", len(text))
	}
	c.diffCommit(newPack(onMain).chunked(newFile("large", text), 3<<20)).want(http.StatusCreated)
	const hunk = "--- a/large\n+++ b/large\n@@ -1 +1 @@\n-line number 0\n+line number nought\n"
	r := c.diffCommit(newPack(onMain).diffChunk(hunk, true)).refused(http.StatusRequestEntityTooLarge, "large")
	if r.Result == nil || r.Result.Status != "invalid" {
		t.Errorf("result is %+v", r.Result)
	}
	moved := "diff --git a/large b/larger\nsimilarity index 100%\nrename from large\nrename to larger\n"
	c.diffCommit(newPack(onMain).diffChunk(moved, true)).want(http.StatusCreated)
	if got := c.call(c.door.File, http.MethodHead, "/?path=larger", nil).
		want(http.StatusOK); got.Header.Get("Content-Length") != fmt.Sprint(len(text)) {
		t.Errorf("the file has %s bytes, want %d", got.Header.Get("Content-Length"), len(text))
	}
}

// TestDiffCommitWaits looks at patches for which there is no memory, and at clients that do not
// wait for it.
func TestDiffCommitWaits(t *testing.T) {
	t.Parallel()
	c, seeds := seeded(t)
	large := func() io.Reader { return newPack(onMain).chunked(newFile("many", manyLines(100_000)), 1<<20) }
	small := func() io.Reader { return newPack(onMain).diffChunk(again, true) }
	gone, leave := context.WithCancel(t.Context())
	leave()
	late, stop := context.WithTimeout(t.Context(), -1)
	defer stop()
	tests := map[string]struct {
		body   io.Reader
		change func(x *exchangetest.Exchange)
		status int
		word   string
	}{
		"no memory": {
			large(), func(x *exchangetest.Exchange) { x.ReserveErr = exchange.ErrBusy }, 503, "unavailable",
		},
		"none is needed":    {small(), func(x *exchangetest.Exchange) { x.ReserveErr = exchange.ErrBusy }, 201, "ok"},
		"the client leaves": {small(), func(x *exchangetest.Exchange) { x.Ctx = gone }, 503, "unavailable"},
		"too late":          {small(), func(x *exchangetest.Exchange) { x.Ctx = late }, 504, "timeout"},
		"the body stalls": {
			io.MultiReader(newPack(onMain), failing{exchange.ErrSlowBody}), func(*exchangetest.Exchange) {}, 408, "timeout",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			x := exchangetest.New(http.MethodPost, "/", test.body)
			x.RequestHeaders.Set("Content-Type", "application/x-ndjson")
			test.change(x)
			if err := c.door.DiffCommit(x, c.grant); err != nil {
				rest.Refuse(x, err)
			}
			got, err := x.Finish()
			if err != nil {
				t.Fatal(err)
			}
			var told refusal
			answer{got, t}.want(test.status).decode(&told)
			if told.Result == nil || told.Result.Status != test.word {
				t.Errorf("result is %+v, want status %q", told.Result, test.word)
			}
		})
	}
	if _, tips := c.tips(""); tips[0] == seeds[2].Commit.SHA {
		t.Error("main has not moved")
	}
}

// failing is a body that breaks off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
