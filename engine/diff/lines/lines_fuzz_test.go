package lines_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sergi/go-diff/diffmatchpatch"

	"packhorse/engine/diff/lines"
)

// FuzzLines holds that the changes between two contents, applied to the first, give the second, in
// each way of finding them, and that they touch nothing twice.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nc\nd"))
	f.Add([]byte(""), []byte("\n\n\n"))
	f.Add([]byte("{\n}\n\n{\n}\n"), []byte("{\n}\n\n{\n}\n\n{\n}\n"))
	f.Add(bytes.Repeat([]byte("x\ny\n"), 90), bytes.Repeat([]byte("y\nx\nz\n"), 70))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if len(before)+len(after) > 1<<13 {
			t.Skip("too slow")
		}
		a, b := lines.Split(before), lines.Split(after)
		for _, o := range []lines.Options{{}, {NoContext: true}, {NoIndent: true, Histogram: true}} {
			changes, err := lines.Diff(t.Context(), a, b, o)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			at := 0
			for i, c := range changes {
				if i > 0 && c.OldStart <= at || c.OldCount+c.NewCount == 0 {
					t.Fatalf("%+v: change %d is none of its own: %+v", o, i, changes)
				}
				got = append(got, a.Range(at, c.OldStart-at)...)
				got = append(got, b.Range(c.NewStart, c.NewCount)...)
				at = c.OldStart + c.OldCount
			}
			if got = append(got, a.Range(at, a.Count()-at)...); !bytes.Equal(got, after) {
				t.Fatalf("%+v: %+v make %q of %q, want %q", o, changes, got, before, after)
			}
		}
	})
}

// TestLinesNearMinimal holds that the changes are not many more than the fewest, which another
// implementation finds.
func TestLinesNearMinimal(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	content := func() []byte {
		var content []byte
		for range random.IntN(120) {
			content = fmt.Appendln(content, random.IntN(30))
		}
		return content
	}
	for range 200 {
		before, after := content(), content()
		least := otherDistance(before, after)
		for _, o := range []lines.Options{{}, {NoContext: true}} {
			changes, err := lines.Diff(t.Context(), lines.Split(before), lines.Split(after), o)
			if err != nil {
				t.Fatal(err)
			}
			edits := 0
			for _, c := range changes {
				edits += c.OldCount + c.NewCount
			}
			if edits < least || edits > least+least/4 {
				t.Errorf("%+v: %d lines differ, %d at least: %q and %q", o, edits, least, before, after)
			}
		}
	}
}

// otherDistance returns how many lines go-diff removes and adds.
func otherDistance(before, after []byte) (edits int) {
	numbers := map[string]rune{}
	number := func(content []byte) []rune {
		var all []rune
		for line := range bytes.Lines(content) {
			if _, ok := numbers[string(line)]; !ok {
				numbers[string(line)] = rune(len(numbers) + 1)
			}
			all = append(all, numbers[string(line)])
		}
		return all
	}
	differ := diffmatchpatch.New()
	differ.DiffTimeout = 0
	for _, d := range differ.DiffMainRunes(number(before), number(after), false) {
		if d.Type != diffmatchpatch.DiffEqual {
			edits += len([]rune(d.Text))
		}
	}
	return edits
}

// FuzzLinesPairs holds that what differs between two lines lies within them, in order, and that the
// rest is the same.
func FuzzLinesPairs(f *testing.F) {
	f.Add([]byte("x := first(1)"), []byte("y := second(1, 2)"))
	f.Add([]byte("für grün"), []byte("f\xffr gelb\r"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		before, after = bytes.ReplaceAll(before, []byte("\n"), nil), bytes.ReplaceAll(after, []byte("\n"), nil)
		if len(before) == 0 || len(after) == 0 {
			t.Skip("no lines")
		}
		change := lines.Change{OldCount: 1, NewCount: 1}
		for p, err := range lines.Pairs(t.Context(), lines.Split(before), lines.Split(after), []lines.Change{change}) {
			if err != nil {
				t.Fatal(err)
			}
			if a, b := without(t, before, p.Old), without(t, after, p.New); !bytes.Equal(a, b) {
				t.Errorf("%q and %q remain of %q and %q", a, b, before, after)
			}
		}
	})
}

func without(t *testing.T, line []byte, ranges []lines.ByteRange) (rest []byte) {
	t.Helper()
	at := 0
	for i, r := range ranges {
		if r.From >= r.To || r.To > len(line) || r.From < at || i > 0 && r.From == at {
			t.Fatalf("%+v of a line of %d bytes", ranges, len(line))
		}
		rest = append(rest, line[at:r.From]...)
		at = r.To
	}
	return append(rest, line[at:]...)
}
