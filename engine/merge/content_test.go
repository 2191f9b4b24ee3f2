package merge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"packhorse/engine/diff/lines"
	"packhorse/engine/merge"
	"packhorse/fuzz/oracle"
)

// triple is a content and what two sides made of it.
type triple struct{ base, ours, theirs []byte }

// TestContentAgainstGit merges generated contents as git merge-tree does.
func TestContentAgainstGit(t *testing.T) {
	t.Parallel()
	count := oracle.CaseCount(t, 2000, 400)
	random := rand.New(rand.NewPCG(uint64(count), 11))
	triples := make([]triple, count)
	for i := range triples {
		triples[i] = newTriple(random)
	}
	r := oracle.New(t)
	want := mergeTriples(r, triples)
	conflicting := 0
	for i, x := range triples {
		got, conflicts, err := merge.Content(t.Context(), lines.NewBase(lines.Split(x.base)), x.ours, x.theirs,
			merge.ContentOptions{Ours: "ours", Theirs: "theirs"})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[i]) {
			t.Fatalf("another content than git's.\nbase: %q\nours: %q\ntheirs: %q\ngot:\n%s\nwant:\n%s", x.base, x.ours,
				x.theirs, got, want[i])
		}
		if n := bytes.Count(want[i], []byte("<<<<<<< ours")); n != conflicts {
			t.Fatalf("%d conflicts, git has %d", conflicts, n)
		}
		if conflicts > 0 {
			conflicting++
		}
	}
	if conflicting < count/5 || conflicting > count*9/10 {
		t.Errorf("%d of %d merges are conflicts: the generator tests little", conflicting, count)
	}
}

// mergeTriples has git merge two commits in which file i has the contents of triple i, and returns
// the merged ones.
func mergeTriples(r *oracle.Repository, triples []triple) [][]byte {
	var stream bytes.Buffer
	for mark, branch := range []string{"base", "ours", "theirs"} {
		fmt.Fprintf(&stream, "commit refs/heads/%s\nmark :%d\ncommitter C <c@d> %d +0000\ndata 0\n", branch, mark+1,
			1_700_000_000+mark)
		if mark > 0 {
			stream.WriteString("from :1\n")
		}
		for i, x := range triples {
			content := [][]byte{x.base, x.ours, x.theirs}[mark]
			fmt.Fprintf(&stream, "M 100644 inline %06d\ndata %d\n%s\n", i, len(content), content)
		}
	}
	stream.WriteString("done\n")
	r.Input(stream.Bytes(), "fast-import", "--quiet", "--done")
	out, _ := r.Try(nil, "merge-tree", "--write-tree", "--no-messages", "ours", "theirs") // 1 where something conflicts
	tree, _, _ := strings.Cut(string(out), "\n")
	var names bytes.Buffer
	for i := range triples {
		fmt.Fprintf(&names, "%s:%06d\n", tree, i)
	}
	blobs := r.Input(names.Bytes(), "cat-file", "--batch")
	merged := make([][]byte, len(triples))
	for i := range merged {
		line, rest, _ := bytes.Cut(blobs, []byte("\n"))
		size, err := strconv.Atoi(string(line[bytes.LastIndexByte(line, ' ')+1:]))
		if err != nil {
			panic(err)
		}
		merged[i], blobs = rest[:size], rest[size+1:]
	}
	return merged
}

// newTriple makes a content and changes it twice. Some changes are the same, and many touch.
func newTriple(random *rand.Rand) triple {
	kinds := []int{2, 5, 30, 1000}[random.IntN(4)]
	end := []string{"\n", "\n", "\r\n"}[random.IntN(3)]
	line := func() string {
		e := end
		if random.IntN(40) == 0 {
			e = []string{"\n", "\r\n"}[random.IntN(2)]
		}
		return fmt.Sprintf("%d%s", random.IntN(kinds), e)
	}
	base := make([]string, random.IntN([]int{2, 8, 40, 200}[random.IntN(4)]+1))
	for i := range base {
		base[i] = line()
	}
	edit := func(from []string, edits int) []string {
		all := append([]string(nil), from...)
		for range edits {
			at := random.IntN(len(all) + 1)
			gone := min(random.IntN(6), len(all)-at)
			added := make([]string, random.IntN(6))
			for i := range added {
				added[i] = line()
			}
			all = append(all[:at:at], append(added, all[at+gone:]...)...)
		}
		return all
	}
	shared := edit(base, random.IntN(3))
	ours, theirs := edit(shared, random.IntN(5)), edit(shared, random.IntN(5))
	if random.IntN(8) == 0 {
		ours = shared
	}
	content := func(all []string) []byte {
		text := strings.Join(all, "")
		if random.IntN(4) == 0 {
			text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
		}
		return []byte(text)
	}
	return triple{content(base), content(ours), content(theirs)}
}

// TestContent covers the cases that the comparison with git does not show.
func TestContent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		base, ours, theirs string
		options            merge.ContentOptions
		want               string
		conflicts          int
	}{
		"long markers": {
			base: "a\n", ours: "b\n", theirs: "c\n", options: merge.ContentOptions{Ours: "x:f", Theirs: "y:g", MarkerSize: 9},
			want: "<<<<<<<<< x:f\nb\n=========\nc\n>>>>>>>>> y:g\n", conflicts: 1,
		},
		"no labels": {base: "a\n", ours: "b\n", theirs: "c\n", want: "<<<<<<<\nb\n=======\nc\n>>>>>>>\n", conflicts: 1},
		"no line feed at the end": {
			base: "a\r\nb", ours: "a\r\nc", theirs: "a\r\nd", want: "a\r\n<<<<<<<\r\nc\r\n=======\r\nd\r\n>>>>>>>\r\n",
			conflicts: 1,
		},
		"a side is empty":  {base: "a\n", ours: "", theirs: "c\n", want: "<<<<<<<\n=======\nc\n>>>>>>>\n", conflicts: 1},
		"only ours":        {base: "a\n", ours: "b\n", theirs: "a\n", want: "b\n"},
		"only theirs":      {base: "a\n", ours: "a\n", theirs: "", want: ""},
		"the same on both": {base: "a\n", ours: "b\n", theirs: "b\n", want: "b\n"},
		"both add to nothing": {
			base: "", ours: "b\n", theirs: "c\n", want: "<<<<<<<\nb\n=======\nc\n>>>>>>>\n", conflicts: 1,
		},
		"far enough": {base: "1\n2\n3\n", ours: "a\n2\n3\n", theirs: "1\n2\nc\n", want: "a\n2\nc\n"},
		"two far conflicts": {
			base: "1\n-\n-\n-\n-\n2\n", ours: "a\n-\n-\n-\n-\nb\n", theirs: "c\n-\n-\n-\n-\nd\n",
			want: conflict("a", "c") + "-\n-\n-\n-\n" + conflict("b", "d"), conflicts: 2,
		},
		"two joined conflicts": {
			base: "1\n-\n-\n-\n2\n", ours: "a\n-\n-\n-\nb\n", theirs: "c\n-\n-\n-\nd\n",
			want: conflict("a\n-\n-\n-\nb", "c\n-\n-\n-\nd"), conflicts: 1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := lines.NewBase(lines.Split([]byte(tt.base)))
			got, conflicts, err := merge.Content(t.Context(), base, []byte(tt.ours), []byte(tt.theirs), tt.options)
			if err != nil || string(got) != tt.want || conflicts != tt.conflicts {
				t.Errorf("got %q with %d conflicts, %v; want %q with %d", got, conflicts, err, tt.want, tt.conflicts)
			}
		})
	}
}

func conflict(ours, theirs string) string {
	return "<<<<<<<\n" + ours + "\n=======\n" + theirs + "\n>>>>>>>\n"
}

// TestContentCancelled checks that a merge ends when its context is cancelled.
func TestContentCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := merge.Content(ctx, lines.NewBase(lines.Split([]byte("a\n"))), []byte("b\n"), []byte("c\n"), merge.ContentOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
