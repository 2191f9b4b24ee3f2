package grep

import (
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// alphabet divides the runes into classes that a program treats alike.
type alphabet struct {
	first []rune                // of each class, ascending
	ascii [utf8.RuneSelf]uint16 // the classes of these runes
}

// alphabetOf returns the classes of a program.
func alphabetOf(program *syntax.Prog) *alphabet {
	a := &alphabet{first: []rune{0}}
	split := func(low, high rune) { a.first = append(a.first, low, high+1) }
	split('\n', '\n')
	for i := range program.Inst {
		inst := &program.Inst[i]
		switch inst.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if len(inst.Rune) == 1 { // perhaps without regard to case
				for r := unicode.SimpleFold(inst.Rune[0]); r != inst.Rune[0]; r = unicode.SimpleFold(r) {
					split(r, r)
				}
			}
			for pair := range slices.Chunk(inst.Rune, 2) {
				split(pair[0], pair[len(pair)-1])
			}
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0 {
				split('0', '9')
				split('A', 'Z')
				split('_', '_')
				split('a', 'z')
			}
		default: // reads no rune
		}
	}
	slices.Sort(a.first)
	a.first = slices.Compact(a.first)
	for c := range a.ascii {
		a.ascii[c] = a.of(rune(c))
	}
	return a
}

// of returns the class of a rune.
func (a *alphabet) of(r rune) uint16 {
	i, exact := slices.BinarySearch(a.first, r)
	if !exact {
		i--
	}
	return uint16(i)
}
