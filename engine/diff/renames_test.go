package diff_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"packhorse/engine/diff"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// text is n lines, of which the first that many are of another kind.
func text(kind string, n, other int) string {
	var b strings.Builder
	for i := range n {
		if i < other {
			fmt.Fprintf(&b, "%s has its own line %06d here\n", kind, i)
		} else {
			fmt.Fprintf(&b, "a line that all have, %06d it is\n", i)
		}
	}
	return b.String()
}

func TestRenames(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		old, new map[string]string
		want     []string
	}{
		"equal content": {
			old: map[string]string{"a": "content\n", "b": ""}, new: map[string]string{"c": "content\n", "b": ""},
			want: []string{"R100 a c"},
		},
		"equal content, the same name first": {
			old: map[string]string{
				"a/x": "content\n", "b/y": "content\n",
			}, new: map[string]string{"c/y": "content\n", "d/z": "content\n"},
			want: []string{"R100 b/y c/y", "R100 a/x d/z"},
		},
		"a link is no file": {
			old: map[string]string{"a": "120000:target"}, new: map[string]string{"b": "target"},
			want: []string{"D a", "A b"},
		},
		"an executable is a file": {
			old: map[string]string{"a": "100755:target"}, new: map[string]string{"b": "target"},
			want: []string{"R100 a b"},
		},
		"links are renamed when they are equal": {
			old: map[string]string{
				"a": "120000:target", "b": "120000:target1",
			}, new: map[string]string{"c": "120000:target", "d": "120000:target2"},
			want: []string{"D b", "R100 a c", "A d"},
		},
		"no copies": {
			old: map[string]string{"a": "content\n", "k": "k"}, new: map[string]string{"a": "content\n", "b": "content\n"},
			want: []string{"A b", "D k"},
		},
		"a source is used once": {
			old: map[string]string{"a": text("a", 100, 0)}, new: map[string]string{"b": text("b", 100, 10), "c": text("c", 100,
				20)},
			want: []string{"R090 a b", "A c"},
		},
		"below a half": {
			old: map[string]string{"a": text("a", 100, 0)}, new: map[string]string{"b": text("b", 100, 60)},
			want: []string{"D a", "A b"},
		},
		"the same name is enough at three quarters": {
			old: map[string]string{"a/x": text("a", 100, 0), "b/y": text("b", 100, 10)}, new: map[string]string{"c/x": text("c",
				100, 20)},
			want: []string{"D b/y", "R080 a/x c/x"},
		},
		"the better one without": {
			old: map[string]string{"a/x": text("a", 100, 30), "b/y": text("b", 100, 5)}, new: map[string]string{"c/x": text("c",
				100, 0)},
			want: []string{"D a/x", "R095 b/y c/x"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory(t)
			got := told(t, diff.Changes(context.Background(), m, m.tree(test.old), m.tree(test.new), nil))
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestRenamesPastTheLimit(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	before, after := map[string]string{}, map[string]string{}
	for i := range 1001 {
		before[fmt.Sprintf("old/%d", i)] = fmt.Sprintf("old %d\n", i)
		after[fmt.Sprintf("new/%dx", i)] = fmt.Sprintf("new %d\n", i)
	}
	before["old/exact"], after["new/other"] = "the same\n", "the same\n"
	before["old/name"], after["new/name"] = text("", 9, 0), text("", 9, 1)
	before["old/similar"], after["new/alike"] = text("x", 9, 3), text("y", 9, 3)
	var renames []string
	for _, line := range told(t, diff.Changes(context.Background(), m, m.tree(before), m.tree(after), nil)) {
		if line[0] == 'R' {
			renames = append(renames, line)
		}
	}
	if want := []string{"R088 old/name new/name", "R100 old/exact new/other"}; !slices.Equal(renames, want) {
		t.Errorf("got %q, want %q", renames, want)
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		a, b string
		want int
	}{
		"equal":                {a: "one\ntwo\n", b: "one\ntwo\n", want: diff.ScoreMax},
		"half":                 {a: "one\ntwo\n", b: "one\nwto\n", want: diff.ScoreMax / 2},
		"other line ends":      {a: "one\r\ntwo\r\n", b: "one\ntwo\n", want: diff.ScoreMax * 8 / 10},
		"no last line end":     {a: "one\ntwo", b: "one\ntwo", want: diff.ScoreMax * 4 / 7},
		"empty":                {a: "", b: "", want: 0},
		"long lines, in parts": {a: strings.Repeat("x", 640), b: strings.Repeat("x", 320), want: diff.ScoreMax / 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := diff.NewFingerprint([]byte(test.a)), diff.NewFingerprint([]byte(test.b))
			if got, back := diff.Score(a, b), diff.Score(b, a); got != test.want || back != test.want {
				t.Errorf("%d, and %d the other way round; want %d", got, back, test.want)
			}
		})
	}
}

func TestMayScoreHoldsForScores(t *testing.T) {
	t.Parallel()
	for size := range 40 {
		a, b := diff.NewFingerprint([]byte(strings.Repeat("\n", 20))), diff.NewFingerprint([]byte(strings.Repeat("\n", size)))
		if score := diff.Score(a, b); score > diff.ScoreMax/2 && !diff.MayScore(20, int64(size), diff.ScoreMax/2) {
			t.Errorf("%d bytes against 20 score %d, and were ruled out", size, score)
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"plain/with space.c":         "plain/with space.c",
		"tab\tline\nquote\"back\\\a": `"tab\tline\nquote\"back\\\a"`,
		"ümlaut\x01\x7f":             `"\303\274mlaut\001\177"`,
	} {
		if got := diff.Quote(path); got != want {
			t.Errorf("%q becomes %s, want %s", path, got, want)
		}
	}
}

func TestRenamesOfUnreadableFiles(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	missing := object.ID{1}
	entry := func(path string, id object.ID) []diff.Entry {
		return []diff.Entry{{Path: path, Mode: object.ModeBlob, ID: id}}
	}
	if _, err := diff.Renames(
		context.Background(), m, entry("a", missing), entry("b", m.write(object.TypeBlob, []byte("b"))),
	); err == nil {
		t.Error("a missing blob was compared")
	}
}

// Files are compared in turns, also within one: the worker of a merge gives its own back during it.
func TestRenamesTakeTurns(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	var before, after []diff.Entry
	for i := range 20 {
		for side, entries := range map[string]*[]diff.Entry{"old": &before, "new": &after} {
			id := m.write(object.TypeBlob, []byte(text(side, 200, 10+i)))
			*entries = append(*entries, diff.Entry{Path: fmt.Sprintf("%s%d", side, i), Mode: object.ModeBlob, ID: id})
		}
	}
	account := fair.NewProcessors(1).Account(fair.Tenant{Org: "acme"}, 0)
	ctx := fair.With(t.Context(), account)
	search := func(ctx context.Context) error {
		_, err := diff.Renames(ctx, m, before, after)
		return err
	}
	if err := search(ctx); err != nil {
		t.Fatal(err)
	}
	if account.Spent() == 0 {
		t.Error("the search took no turn")
	}
	if err := fair.Do(ctx, search); err != nil {
		t.Fatal(err)
	}
}
