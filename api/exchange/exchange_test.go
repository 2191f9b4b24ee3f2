package exchange_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
)

func TestParseGitPath(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		want exchange.GitPath
		ok   bool
	}{
		"/a.git/info/refs":           {exchange.GitPath{Repo: "a", Service: "info/refs"}, true},
		"/a/b/c.git/git-upload-pack": {exchange.GitPath{Repo: "a/b/c", Service: "git-upload-pack"}, true},
		"/a+ephemeral.git/git-receive-pack": {
			exchange.GitPath{Repo: "a", Variant: exchange.Ephemeral, Service: "git-receive-pack"}, true,
		},
		"/a+import.git/git-receive-pack": {
			exchange.GitPath{Repo: "a", Variant: exchange.Import, Service: "git-receive-pack"}, true,
		},
		"/a+ephemeral+import.git/info/refs": {
			exchange.GitPath{Repo: "a+ephemeral", Variant: exchange.Import, Service: "info/refs"}, true,
		},
		"/a+Ephemeral.git/info/refs":  {exchange.GitPath{Repo: "a+Ephemeral", Service: "info/refs"}, true},
		"/a.git.git/info/refs":        {exchange.GitPath{Repo: "a.git", Service: "info/refs"}, true},
		"/api/v1/repos.git/info/refs": {exchange.GitPath{Repo: "api/v1/repos", Service: "info/refs"}, true},
		"/a/info/refs":                {exchange.GitPath{Repo: "a", Service: "info/refs"}, true},
		"/a/b/git-upload-pack":        {exchange.GitPath{Repo: "a/b", Service: "git-upload-pack"}, true},
		"/a+ephemeral/git-receive-pack": {
			exchange.GitPath{Repo: "a", Variant: exchange.Ephemeral, Service: "git-receive-pack"}, true,
		},
		"/a/info/refs/info/refs":              {exchange.GitPath{Repo: "a/info/refs", Service: "info/refs"}, true},
		"/a.git/info/lfs/objects/batch":       {exchange.GitPath{Repo: "a", Service: exchange.LFS}, true},
		"/a/info/lfs/locks/verify":            {exchange.GitPath{Repo: "a", Service: exchange.LFS}, true},
		"/a.git/info/lfs":                     {},
		"/a/info/lfs":                         {},
		"/info/refs":                          {},
		"/git-upload-pack":                    {},
		"/a":                                  {},
		"/a.git":                              {},
		"/a.git/":                             {},
		"/a.git/HEAD":                         {},
		"/a.git/info/refs/":                   {},
		"/a.git/git-upload-archive":           {},
		"/a.git/b.git/info/refs":              {},
		"/a.git/git-upload-pack/../info/refs": {},
		"/a+ephemeral.git/info/refs?x=y":      {},
		"a.git/info/refs":                     {},
		"":                                    {},
	}
	for path, test := range tests {
		got, ok := exchange.ParseGitPath(path)
		if ok != test.ok || ok && got != test.want {
			t.Errorf("ParseGitPath(%.80q) = %+v, %t, want %+v, %t", path, got, ok, test.want, test.ok)
		}
	}
}

func TestReadBody(t *testing.T) {
	t.Parallel()
	const sizeMax = 10
	broken := func() io.Reader {
		return io.MultiReader(strings.NewReader("123"), iotest.ErrReader(exchange.ErrEndedEarly))
	}
	tests := map[string]struct {
		body   io.Reader
		length int64 // announced
		want   string
		err    error
	}{
		"none":                       {nil, 0, "", nil},
		"small":                      {strings.NewReader("12345"), 5, "12345", nil},
		"all of it":                  {strings.NewReader("1234567890"), 10, "1234567890", nil},
		"too large as announced":     {iotest.ErrReader(io.ErrNoProgress), 11, "", &exchange.LimitError{}},
		"chunks":                     {strings.NewReader("12345"), -1, "12345", nil},
		"chunks, a byte at a time":   {iotest.OneByteReader(strings.NewReader("1234567890")), -1, "1234567890", nil},
		"chunks, too large":          {strings.NewReader("12345678901"), -1, "", &exchange.LimitError{}},
		"chunks, endless":            {endless{}, -1, "", &exchange.LimitError{}},
		"cut":                        {broken(), 10, "", io.ErrUnexpectedEOF},
		"cut, chunks":                {broken(), -1, "", io.ErrUnexpectedEOF},
		"announced without a reason": {strings.NewReader(""), 10, "", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := exchangetest.New("POST", "/", test.body)
			x.Length = test.length
			got, err := exchange.ReadBody(x, sizeMax)
			var limit *exchange.LimitError
			if want := (*exchange.LimitError)(nil); errors.As(test.err, &want) {
				if !errors.As(err, &limit) || limit.Max != sizeMax || limit.StatusCode() != 413 {
					t.Errorf("error %v, want a LimitError", err)
				}
				return
			}
			if string(got) != test.want || !errors.Is(err, test.err) {
				t.Errorf("%q, %v; want %q, %v", got, err, test.want, test.err)
			}
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestShape(t *testing.T) {
	t.Parallel()
	deep := func(depth int) string { return strings.Repeat("[", depth) }
	members := func(count int) string { return `{` + strings.Repeat(`"a":{"b":1},`, count) }
	tests := map[string]bool{
		`{}`: true, ``: true, `]]]`: true, deep(32): true, deep(33): false, `"` + deep(40): true, `"\"` + deep(40): true,
		`"\\"` + deep(33): false, `[]` + deep(32): true,
		members(1000): true, members(1001): false, strings.Repeat(`"a":`, 1001): false, `[` +
			strings.Repeat(members(999)+`},`, 3): true,
		`{"a":"` + strings.Repeat(":", 2000) + `"}`: true,
	}
	for text, fine := range tests {
		if err := exchange.CheckShape([]byte(text)); err == nil != fine {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// The bytes of a character count as unfinished until the last one is there.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "a": 0, "é": 0, "a\xc3": 1, "\xe2\x82": 2, "€": 0, "\xf0\x9f\x98": 3, "😀": 0,
		"\x80": 0, "\x80\x80\x80\x80": 0, "\xff": 0, "a\xe2": 1,
	} {
		if got := exchange.Unfinished([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestIsMediaType(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"application/json": true, " Application/JSON ; charset=utf-8": true, "application/jsonx": false, "": false,
		"text/plain; application/json": false,
	} {
		if got := exchange.IsMediaType(value, "application/json"); got != want {
			t.Errorf("%q: %t, want %t", value, got, want)
		}
	}
}

func TestTagAmong(t *testing.T) {
	t.Parallel()
	const tag = `"x"`
	for list, want := range map[string]struct{ weak, strong bool }{
		"": {}, `"y"`: {}, tag: {true, true}, "W/" + tag: {true, false}, `"y", ` + tag: {true, true}, "*": {true, true},
		`"y",W/"x"`: {true, false}, "x": {},
	} {
		if weak := exchange.TagAmong(list, tag, true); weak != want.weak {
			t.Errorf("%s, weak: %t", list, weak)
		}
		if strong := exchange.TagAmong(list, tag, false); strong != want.strong {
			t.Errorf("%s, strong: %t", list, strong)
		}
	}
}
