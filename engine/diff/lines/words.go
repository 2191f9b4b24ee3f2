package lines

import (
	"bytes"
	"context"
	"iter"
	"unicode"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"

	"packhorse/odb/fair"
)

// Pair is a changed line and the line that it became, by their indexes, and what differs between
// the two: ranges of bytes from the beginning of the line, each with its end behind it, in order.
// Ranges begin and end between characters, if the lines are UTF-8.
type Pair struct {
	OldIndex, NewIndex int
	Old, New           []ByteRange
}

// ByteRange is the bytes from From up to To, To not included.
type ByteRange struct{ From, To int }

// Pairs walks the pairs of changed lines: in each of the changes, which are those of [Diff] for the
// same texts, the first removed line and the first added one, and so on until one of the two runs
// out of lines. Differences are marked by whole words. Line feeds do not count.
//
// The error is that of ctx and ends the walk.
func Pairs(ctx context.Context, before, after Text, changes []Change) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		w := wordDiff{differ: diffmatchpatch.New()}
		w.differ.DiffTimeout = 0 // a result that depends on the time is none
		for _, c := range changes {
			for i := range min(c.OldCount, c.NewCount) {
				if err := fair.Pause(ctx); err != nil {
					yield(Pair{}, err)
					return
				}
				p := Pair{OldIndex: c.OldStart + i, NewIndex: c.NewStart + i}
				p.Old, p.New = w.compare(before.Line(p.OldIndex), after.Line(p.NewIndex))
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// wordsMax bounds the words of a line that are compared. Of longer lines everything between the
// first and the last difference differs.
const wordsMax = 1000

// wordDiff compares lines by words.
type wordDiff struct {
	differ *diffmatchpatch.DiffMatchPatch
}

// compare returns what differs between two lines.
func (w *wordDiff) compare(before, after []byte) (removed, added []ByteRange) {
	a, b := words(bytes.TrimSuffix(before, newline)), words(bytes.TrimSuffix(after, newline))
	start := 0
	for start < min(len(a), len(b)) && bytes.Equal(a[start], b[start]) {
		start++
	}
	end := 0
	for end < min(len(a), len(b))-start && bytes.Equal(a[len(a)-end-1], b[len(b)-end-1]) {
		end++
	}
	from := sizeOf(a[:start])
	a, b = a[start:len(a)-end], b[start:len(b)-end]
	if len(a) > wordsMax || len(b) > wordsMax {
		return addRange(nil, from, sizeOf(a)), addRange(nil, from, sizeOf(b))
	}
	atA, atB := from, from
	numbers := map[string]rune{}
	for _, d := range w.differ.DiffMainRunes(asRunes(a, numbers), asRunes(b, numbers), false) {
		count := utf8.RuneCountInString(d.Text)
		if d.Type != diffmatchpatch.DiffInsert {
			size := sizeOf(a[:count])
			a = a[count:]
			if d.Type == diffmatchpatch.DiffDelete {
				removed = addRange(removed, atA, size)
			}
			atA += size
		}
		if d.Type != diffmatchpatch.DiffDelete {
			size := sizeOf(b[:count])
			b = b[count:]
			if d.Type == diffmatchpatch.DiffInsert {
				added = addRange(added, atB, size)
			}
			atB += size
		}
	}
	return removed, added
}

// addRange appends a range, unless it is empty, and joins it to the last one if that ends where it
// begins.
func addRange(all []ByteRange, from, size int) []ByteRange {
	switch n := len(all); {
	case size == 0:
		return all
	case n > 0 && all[n-1].To == from:
		all[n-1].To += size
		return all
	}
	return append(all, ByteRange{from, from + size})
}

func sizeOf(words [][]byte) (size int) {
	for _, w := range words {
		size += len(w)
	}
	return size
}

// asRunes gives each distinct word a character of its own, because the library compares characters.
// There are too few words for surrogates.
func asRunes(words [][]byte, numbers map[string]rune) []rune {
	runes := make([]rune, len(words))
	for i, w := range words {
		number, ok := numbers[string(w)]
		if !ok {
			number = rune(len(numbers) + 1)
			numbers[string(w)] = number
		}
		runes[i] = number
	}
	return runes
}

// words divides a line into runs of letters, digits and underscores, runs of white space, and
// single characters of any other kind.
func words(line []byte) (all [][]byte) {
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		kind := kindOf(r)
		for kind != symbol && size < len(line) {
			r, n := utf8.DecodeRune(line[size:])
			if kindOf(r) != kind {
				break
			}
			size += n
		}
		all = append(all, line[:size])
		line = line[size:]
	}
	return all
}

// wordKind classifies characters to find the ends of words.
type wordKind int

const (
	symbol wordKind = iota
	letter
	blank
)

func kindOf(r rune) wordKind {
	switch {
	case r == utf8.RuneError:
		return symbol
	case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r), r == '_':
		return letter
	case unicode.IsSpace(r):
		return blank
	}
	return symbol
}
