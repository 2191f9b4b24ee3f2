package grep

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"regexp/syntax"
	"slices"
	"unicode/utf8"

	"packhorse/odb/fair"
)

// automaton finds lines that match a program. It is a DFA whose states are made when a text leads
// to them: the instructions at which a match may stand that began anywhere in the line. Package
// regexp, which also finds where a match lies, follows them one by one for each byte. An automaton
// is for one goroutine.
type automaton struct {
	program *syntax.Prog
	classes *alphabet
	begin   int32 // the state at the beginning of a line
	// stays has the bytes that lead from begin to begin, ends of lines included.
	stays [256]bool

	// next has a row of classes for each state. States are named by where their rows begin.
	next   []int32
	states []automatonState
	named  map[string]int32 // by their content
	cost   int              // of all states; see costMax

	// The set of instructions that is being made, and the round in which each was added.
	list    []uint32
	added   []uint32
	round   uint32
	matched bool
	spare   []uint32
	key     []byte
}

// automatonState is a state in which the line does not match yet.
type automatonState struct {
	insts []uint32 // that read a rune, or wait
	waits bool     // for what comes next, such as the end of the line
	last  rune     // the rune before, or one like it, if the state waits
	ends  bool     // the line matches if it ends here
}

// Names of no state.
const (
	unknown = 0  // nobody was there
	dead    = -1 // the line does not match, however it goes on
	matched = -2
)

// lineEdge stands for what is before the first rune of a line, and behind the last.
const lineEdge rune = -1

// costMax bounds the states: their rows and instructions, together.
const costMax = 1 << 18

// errManyStates says that a program has too many states.
var errManyStates = errors.New("grep: too many states")

// newAutomaton returns an automaton of a program. Errors: errManyStates.
func newAutomaton(program *syntax.Prog, classes *alphabet) (*automaton, error) {
	a := &automaton{
		program: program, classes: classes, named: make(map[string]int32), added: make([]uint32, len(program.Inst)),
		next: make([]int32, len(classes.first)), // of no state
	}
	a.clear()
	a.add(uint32(program.Start), lineEdge)
	var err error
	if a.begin, err = a.state(lineEdge); err != nil || a.begin < 0 || a.at(a.begin).waits {
		return a, err
	}
	for c := range utf8.RuneSelf {
		next := a.begin
		if c != '\n' {
			if next, err = a.step(a.begin, a.classes.ascii[c]); err != nil {
				return a, err
			}
		}
		a.stays[c] = next == a.begin
	}
	return a, nil
}

func (a *automaton) at(row int32) *automatonState { return &a.states[int(row)/len(a.classes.first)-1] }

// pauseBytes is the number of bytes that are read between two pauses.
const pauseBytes = 256 << 10

// find returns where the first line that matches begins and ends, of those that begin at from, a
// beginning of a line, or later. Errors: errManyStates; those of ctx.
func (a *automaton) find(ctx context.Context, text []byte, from int) (start, end int, ok bool, err error) {
	if from >= len(text) || a.begin == dead {
		return 0, 0, false, nil
	}
	at, row := from, a.begin
	for row != matched && at < len(text) {
		if err := fair.Pause(ctx); err != nil {
			return 0, 0, false, err
		}
		if at, row, err = a.run(ctx, text, at, min(len(text), at+pauseBytes), row); err != nil {
			return 0, 0, false, err
		}
	}
	switch {
	case row == matched:
	case row != dead && text[len(text)-1] != '\n' && a.at(row).ends:
		at = len(text)
	default:
		return 0, 0, false, nil
	}
	start = bytes.LastIndexByte(text[from:at], '\n') + 1 + from
	return start, textEnd(text, at), true, nil
}

// run reads text from a place in a state until a line matches, or to limit or a little beyond. It
// returns where it is then: in a line that matches, or in another state. It is dead only at the end
// of the text.
func (a *automaton) run(ctx context.Context, text []byte, at, limit int, row int32) (int, int32, error) {
	for at < limit {
		if row == a.begin {
			for at < limit && a.stays[text[at]] {
				at++
			}
			if at == limit {
				break
			}
		}
		c, size := text[at], 1
		class := uint16(0)
		if c < utf8.RuneSelf {
			class = a.classes.ascii[c]
		} else {
			var r rune
			r, size = utf8.DecodeRune(text[at:])
			class = a.classes.of(r)
		}
		next := a.next[int(row)+int(class)]
		if next > 0 {
			row = next
			at += size
			continue
		}
		if c == '\n' { // of which no row tells anything
			if a.at(row).ends {
				return at, matched, nil
			}
			row = a.begin
			at++
			continue
		}
		if next == unknown {
			if err := fair.Pause(ctx); err != nil {
				return 0, 0, err
			}
			var err error
			if next, err = a.step(row, class); err != nil {
				return 0, 0, err
			}
		}
		switch next {
		case matched:
			return at, matched, nil
		case dead:
			if at = textEnd(text, at) + 1; at > len(text) {
				return len(text), dead, nil
			}
			row = a.begin
		default:
			row = next
			at += size
		}
	}
	return at, row, nil
}

// textEnd returns where the line at an offset ends, without its newline.
func textEnd(text []byte, offset int) int {
	if i := bytes.IndexByte(text[offset:], '\n'); i >= 0 {
		return offset + i
	}
	return len(text)
}

// step returns, and remembers, where a class leads from a state.
func (a *automaton) step(row int32, class uint16) (int32, error) {
	from, r := a.at(row), a.classes.first[class]
	insts, next := from.insts, int32(matched)
	if from.waits {
		a.decide(from, r)
		a.spare = append(a.spare[:0], a.list...)
		insts = a.spare
	}
	if !from.waits || !a.matched {
		a.clear()
		for _, pc := range insts {
			if inst := &a.program.Inst[pc]; inst.MatchRune(r) {
				a.add(inst.Out, r)
			}
		}
		a.add(uint32(a.program.Start), r)
		var err error
		if next, err = a.state(r); err != nil {
			return 0, err
		}
	}
	a.next[int(row)+int(class)] = next
	return next, nil
}

// decide makes the set of those instructions of a state that read a rune when r is next.
func (a *automaton) decide(s *automatonState, r rune) {
	a.clear()
	flags := syntax.EmptyOpContext(s.last, r)
	for _, pc := range s.insts {
		a.follow(pc, func(wanted syntax.EmptyOp) (passes, waits bool) { return wanted&^flags == 0, false })
	}
}

func (a *automaton) clear() {
	a.list, a.matched = a.list[:0], false
	a.round++
}

// add adds what is reached from an instruction behind a rune, or at the beginning of a line.
func (a *automaton) add(pc uint32, last rune) {
	a.follow(pc, func(wanted syntax.EmptyOp) (passes, waits bool) {
		const begins = syntax.EmptyBeginLine | syntax.EmptyBeginText
		return false, last == lineEdge || wanted&begins == 0
	})
}

// follow adds what is reached from an instruction without a rune. test says of a condition whether
// it is true, or else whether that remains to be seen.
func (a *automaton) follow(pc uint32, test func(wanted syntax.EmptyOp) (passes, waits bool)) {
	for a.added[pc] != a.round {
		a.added[pc] = a.round
		switch inst := &a.program.Inst[pc]; inst.Op {
		case syntax.InstMatch:
			a.matched = true
			return
		case syntax.InstFail:
			return
		case syntax.InstAlt, syntax.InstAltMatch:
			a.follow(inst.Arg, test)
			pc = inst.Out
		case syntax.InstCapture, syntax.InstNop:
			pc = inst.Out
		case syntax.InstEmptyWidth:
			passes, waits := test(syntax.EmptyOp(inst.Arg))
			if waits {
				a.list = append(a.list, pc)
			}
			if !passes {
				return
			}
			pc = inst.Out
		default:
			a.list = append(a.list, pc)
			return
		}
	}
}

// state returns the state of the set behind a rune.
func (a *automaton) state(last rune) (int32, error) {
	if a.matched {
		return matched, nil
	}
	if len(a.list) == 0 {
		return dead, nil
	}
	s := automatonState{last: last}
	slices.Sort(a.list)
	for _, pc := range a.list {
		s.waits = s.waits || a.program.Inst[pc].Op == syntax.InstEmptyWidth
	}
	switch {
	case !s.waits:
		s.last = 0
	case last == lineEdge:
	case syntax.IsWordChar(last):
		s.last = 'w'
	default:
		s.last = ' '
	}
	a.key = binary.AppendVarint(a.key[:0], int64(s.last))
	for _, pc := range a.list {
		a.key = binary.LittleEndian.AppendUint32(a.key, pc)
	}
	if row, ok := a.named[string(a.key)]; ok {
		return row, nil
	}
	if a.cost += len(a.classes.first) + 2*len(a.list); a.cost > costMax {
		return 0, errManyStates
	}
	row := int32(len(a.next))
	a.named[string(a.key)] = row
	a.next = append(a.next, make([]int32, len(a.classes.first))...)
	s.insts = slices.Clone(a.list)
	if s.waits {
		a.decide(&s, lineEdge)
		s.ends = a.matched
	}
	a.states = append(a.states, s)
	return row, nil
}
