package lines

const (
	indentMax = 200 // columns; more counts as this much
	blanksMax = 20  // bounds the blank lines that are checked
	slideMax  = 100 // lines that the choice of a place looks back
)

// Penalties of a place between two lines, where a group of changed lines may begin or end. git's
// authors fitted them to a corpus of diffs.
const (
	penaltyFileStart      = 1
	penaltyFileEnd        = 21
	weightBlank           = -30 // for each blank line around the place
	weightBlankBehind     = 6   // for each blank line behind the place
	penaltyIndent         = -4  // the line behind is indented more than the one before
	penaltyIndentBlank    = 10  // the same with blank lines between them
	penaltyOutdent        = 24  // it is indented less, and the next one more: a block begins
	penaltyOutdentBlank   = 17
	penaltyDedent         = 23 // it is indented less: a block ends
	penaltyDedentBlank    = 17
	weightIndentDirection = 60 // of having the smaller indentation, against penalties
)

// score says how bad a place for a group is: the smaller the better.
type score struct{ indent, penalty int }

// worse says whether s is worse than t.
func (s score) worse(t score) bool {
	direction := 0
	switch {
	case s.indent > t.indent:
		direction = 1
	case s.indent < t.indent:
		direction = -1
	}
	return weightIndentDirection*direction+s.penalty-t.penalty > 0
}

// bestEnd returns where g, which has slid down as far as it can, should end: top is the highest
// possible end. Of equally good places it takes the lowest.
func (s *side) bestEnd(g group, top int) int {
	size := g.end - g.start
	best := -1
	var least score
	for end := max(top, g.end-size-1, g.end-slideMax); end <= g.end; end++ {
		var sum score
		s.addPlace(&sum, end)
		s.addPlace(&sum, end-size)
		if best < 0 || !sum.worse(least) {
			best, least = end, sum
		}
	}
	return best
}

// addPlace adds the badness of the place before the line index to sum.
func (s *side) addPlace(sum *score, index int) {
	indent := -1 // of the line behind the place
	if index < s.Count() {
		indent = indentation(s.Line(index))
	} else {
		sum.penalty += penaltyFileEnd
	}
	before, blanksBefore := s.firstText(index-1, -1)
	behind, blanks := s.firstText(index+1, 1)
	if before < 0 && blanksBefore == 0 {
		sum.penalty += penaltyFileStart
	}
	blanksBehind := 0
	if indent < 0 {
		blanksBehind = 1 + blanks
		indent = behind
	}
	sum.penalty += weightBlank*(blanksBefore+blanksBehind) + weightBlankBehind*blanksBehind
	sum.indent += indent
	if indent < 0 || before < 0 || indent == before {
		return
	}
	plain, withBlanks := penaltyDedent, penaltyDedentBlank
	switch {
	case indent > before:
		plain, withBlanks = penaltyIndent, penaltyIndentBlank
	case behind > indent:
		plain, withBlanks = penaltyOutdent, penaltyOutdentBlank
	}
	if blanksBefore+blanksBehind == 0 {
		sum.penalty += plain
	} else {
		sum.penalty += withBlanks
	}
}

// firstText returns the indentation of the first line from an index on that is not blank, -1 for
// none, and the number of blank lines before it. Past too many of these it stops and returns 0.
func (s *side) firstText(index, step int) (indent, blanks int) {
	for ; 0 <= index && index < s.Count(); index += step {
		if indent := indentation(s.Line(index)); indent >= 0 {
			return indent, blanks
		}
		blanks++
		if blanks == blanksMax {
			return 0, blanks
		}
	}
	return -1, blanks
}

// indentation returns the indentation of a line in columns, -1 if it is blank.
func indentation(line []byte) int {
	n := 0
	for _, c := range line {
		switch c {
		case ' ':
			n++
		case '\t':
			n += 8 - n%8
		case '\n', '\r':
		default:
			return n
		}
		if n >= indentMax {
			return indentMax
		}
	}
	return -1
}
