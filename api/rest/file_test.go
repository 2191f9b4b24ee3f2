package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
)

func TestFile(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	get := func(headers ...string) answer {
		return c.call(c.door.File, http.MethodGet, "/?path=README.md", nil, headers...)
	}
	whole := get().want(http.StatusOK)
	etag := whole.Header.Get("ETag")
	modified := whole.Header.Get("Last-Modified")
	if string(whole.Body) != "hello again\n" || etag != fmt.Sprintf("%q", whole.Header.Get("X-Blob-Sha")) {
		t.Errorf("got %q, ETag %s", whole.Body, etag)
	}
	if got := whole.Header.Get("X-Last-Commit-Sha"); got != done[2].Commit.SHA {
		t.Errorf("X-Last-Commit-Sha is %s, want %s", got, done[2].Commit.SHA)
	}
	tests := map[string]struct {
		headers []string
		status  int
		body    string
		span    string // Content-Range
	}{
		"range":                   {[]string{"Range", "bytes=6-10"}, 206, "again", "bytes 6-10/12"},
		"range to the end":        {[]string{"Range", "bytes=6-"}, 206, "again\n", "bytes 6-11/12"},
		"range beyond the end":    {[]string{"Range", "bytes=6-99"}, 206, "again\n", "bytes 6-11/12"},
		"suffix":                  {[]string{"Range", "bytes=-3"}, 206, "in\n", "bytes 9-11/12"},
		"long suffix":             {[]string{"Range", "bytes=-99"}, 206, "hello again\n", "bytes 0-11/12"},
		"behind the end":          {[]string{"Range", "bytes=12-"}, 416, "", "bytes */12"},
		"empty suffix":            {[]string{"Range", "bytes=-0"}, 416, "", "bytes */12"},
		"backwards":               {[]string{"Range", "bytes=5-4"}, 200, "hello again\n", ""},
		"several":                 {[]string{"Range", "bytes=0-1,3-4"}, 200, "hello again\n", ""},
		"another unit":            {[]string{"Range", "lines=1-2"}, 200, "hello again\n", ""},
		"beyond all files":        {[]string{"Range", "bytes=99999999999999999999-"}, 416, "", "bytes */12"},
		"suffix beyond all files": {[]string{"Range", "bytes=-99999999999999999999"}, 206, "hello again\n", "bytes 0-11/12"},
		"end beyond all files":    {[]string{"Range", "bytes=6-99999999999999999999"}, 206, "again\n", "bytes 6-11/12"},
		"another case, space":     {[]string{"Range", "Bytes= 6-10 "}, 206, "again", "bytes 6-10/12"},
		"no numbers":              {[]string{"Range", "bytes=a-b"}, 200, "hello again\n", ""},
		"signed numbers":          {[]string{"Range", "bytes=+1-2"}, 200, "hello again\n", ""},
		"nothing but a dash":      {[]string{"Range", "bytes=-"}, 200, "hello again\n", ""},
		"no dash":                 {[]string{"Range", "bytes=6"}, 200, "hello again\n", ""},
		"no range":                {[]string{"Range", "bytes"}, 200, "hello again\n", ""},
		"if-range, weak":          {[]string{"Range", "bytes=0-4", "If-Range", "W/" + etag}, 200, "hello again\n", ""},
		"if-range, other date": {
			[]string{"Range", "bytes=0-4", "If-Range", "Mon, 01 Jan 2001 00:00:00 GMT"}, 200, "hello again\n", "",
		},
		"if-match, star": {[]string{"If-Match", "*"}, 200, "hello again\n", ""},
		"if-match, list": {[]string{"If-Match", `"x" , ` + etag}, 200, "hello again\n", ""},
		"match before since": {
			[]string{"If-Match", etag, "If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"}, 200, "hello again\n", "",
		},
		"precondition, then range": {[]string{"Range", "bytes=0-4", "If-None-Match", etag}, 304, "", ""},
		"no date":                  {[]string{"If-Modified-Since", "yesterday"}, 200, "hello again\n", ""},
		"huge":                     {[]string{"Range", "bytes=0-9223372036854775807"}, 206, "hello again\n", "bytes 0-11/12"},
		"if-range holds":           {[]string{"Range", "bytes=0-4", "If-Range", etag}, 206, "hello", "bytes 0-4/12"},
		"if-range date holds":      {[]string{"Range", "bytes=0-4", "If-Range", modified}, 206, "hello", "bytes 0-4/12"},
		"if-range fails":           {[]string{"Range", "bytes=0-4", "If-Range", `"x"`}, 200, "hello again\n", ""},
		"if-none-match":            {[]string{"If-None-Match", etag}, 304, "", ""},
		"if-none-match, weak":      {[]string{"If-None-Match", "W/" + etag}, 304, "", ""},
		"if-none-match, list":      {[]string{"If-None-Match", `"x", ` + etag}, 304, "", ""},
		"if-none-match, star":      {[]string{"If-None-Match", "*"}, 304, "", ""},
		"if-none-match, other":     {[]string{"If-None-Match", `"x"`}, 200, "hello again\n", ""},
		"if-match":                 {[]string{"If-Match", etag}, 200, "hello again\n", ""},
		"if-match, weak":           {[]string{"If-Match", "W/" + etag}, 412, "", ""},
		"if-match, other":          {[]string{"If-Match", `"x"`}, 412, "", ""},
		"if-modified-since":        {[]string{"If-Modified-Since", modified}, 304, "", ""},
		"if-modified-since, past": {
			[]string{"If-Modified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"}, 200, "hello again\n", "",
		},
		"if-unmodified-since": {[]string{"If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"}, 412, "", ""},
		"none-match before since": {
			[]string{"If-None-Match", `"x"`, "If-Modified-Since", modified}, 200, "hello again\n", "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := get(test.headers...).want(test.status)
			if string(got.Body) != test.body || got.Header.Get("Content-Range") != test.span {
				t.Errorf("got %q, Content-Range %q", got.Body, got.Header.Get("Content-Range"))
			}
		})
	}
	c.call(c.door.File, http.MethodHead, "/?path=README.md", nil).want(http.StatusOK)
	c.call(c.door.File, http.MethodGet, "/?path=lib", nil).refused(http.StatusBadRequest, "folder")
	c.call(c.door.File, http.MethodGet, "/?path=nope", nil).refused(http.StatusNotFound, "nope")
	c.call(c.door.File, http.MethodGet, "/?path=README.md/x", nil).refused(http.StatusNotFound, "README.md/x")
	c.call(c.door.File, http.MethodGet, "/", nil).refused(http.StatusBadRequest, "path")
	c.call(c.door.File, http.MethodGet, "/?path=README.md&ref=nope", nil).refused(http.StatusNotFound, "nope")
	older := c.call(c.door.File, http.MethodGet, "/?path=/README.md&ref="+done[1].Commit.SHA, nil).want(http.StatusOK)
	if string(older.Body) != "hello\n" || older.Header.Get("X-Last-Commit-Sha") != done[0].Commit.SHA {
		t.Errorf("the older file is %q of %s", older.Body, older.Header.Get("X-Last-Commit-Sha"))
	}
}

// TestFileKinds reads entries that are not plain files.
func TestFileKinds(t *testing.T) {
	t.Parallel()
	c, _ := mixed(t)
	get := func(path string, headers ...string) answer {
		return c.call(c.door.File, http.MethodGet, "/?path="+path, nil, headers...)
	}
	if link := get("lib/link").want(http.StatusOK); string(link.Body) != "a.go" {
		t.Errorf("a symbolic link is %q, want its target", link.Body)
	}
	get("mod").refused(http.StatusBadRequest, "submodule")
	get("mod/below").refused(http.StatusNotFound, "mod/below")
	c.commit("main", "empty", "")
	if empty := get("empty").want(http.StatusOK); len(empty.Body) != 0 ||
		empty.Header.Get("X-Blob-Sha") != "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391" {
		t.Errorf("an empty file is %q", empty.Body)
	}
	get("empty", "Range", "bytes=0-").want(http.StatusRequestedRangeNotSatisfiable)
	head := c.call(c.door.File, http.MethodHead, "/?path=lib/a.go", nil, "Range", "bytes=0-3").
		want(http.StatusPartialContent)
	if head.Header.Get("Content-Range") != "bytes 0-3/10" || len(head.Body) != 0 {
		t.Errorf("HEAD of a range: %v %q", head.Header, head.Body)
	}
}

// TestFileOfBlocks reads ranges of a file that is stored in blocks, at their borders and across.
func TestFileOfBlocks(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	const size = 5<<20 + 77
	content := strings.Repeat("0123456789abcde\n", size/16+1)[:size]
	body := newPack(`"target_branch":"main","commit_message":"m",` + author + `,"files":[{"path":"big","content_id":"1"}]`)
	for at := 0; at < size; at += 4 << 20 {
		end := min(at+4<<20, size)
		body.chunk("1", content[at:end], end == size)
	}
	c.commitPack(body).want(http.StatusCreated)
	for _, part := range [][2]int{
		{0, 1}, {0, size - 1}, {1<<20 - 1, 1 << 20}, {1 << 20, 2<<20 - 1}, {3<<20 + 5, 5<<20 + 5}, {size - 1, size - 1},
	} {
		got := c.call(c.door.File, http.MethodGet, "/?path=big", nil, "Range", fmt.Sprintf("bytes=%d-%d", part[0], part[1])).
			want(http.StatusPartialContent)
		if string(got.Body) != content[part[0]:part[1]+1] {
			t.Errorf("bytes %d to %d came back different: %d", part[0], part[1], len(got.Body))
		}
	}
}

// TestFileMemory reads files of several sizes: the memory of a large one is reserved before it is
// read, and released.
func TestFileMemory(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.commit("main", "small", "small\n")
	c.commit("main", "large", strings.Repeat("large\n", 20_000))
	for path, status := range map[string]int{"small": http.StatusOK, "large": http.StatusServiceUnavailable} {
		x := exchangetest.New(http.MethodGet, "/?path="+path, nil)
		x.ReserveErr = exchange.ErrBusy
		if err := c.door.File(x, c.grant); err != nil {
			rest.Refuse(x, err)
		}
		got, err := x.Finish()
		if err != nil || got.Status != status {
			t.Errorf("%s without memory: %d, %v, want %d", path, got.Status, err, status)
		}
		c.call(c.door.File, http.MethodGet, "/?path="+path, nil).want(http.StatusOK)
		c.call(c.door.File, http.MethodHead, "/?path="+path, nil).want(http.StatusOK)
	}
}
