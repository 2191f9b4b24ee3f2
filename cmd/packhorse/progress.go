package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressMark begins the lines that report the progress of a task.
const progressMark = "\r"

// progress prints how far a task has come, a few times a second at most: what is done, of how much
// and with the time left where that is known, and at which rate. Its methods may be called
// concurrently.
type progress struct {
	out io.Writer
	now func() time.Time

	mu    sync.Mutex // guards the fields below
	next  time.Time
	phase string
	begun time.Time // of the phase
	from  int64     // what was done then
}

// step is how far a phase of a task has come.
type step struct {
	phase string // rates are those of one phase
	text  string // what is said before the amount; "" for the phase
	done  int64
	total int64                // 0 if that is not known
	unit  func(n int64) string // how an amount is written; nil for a bare number
}

const (
	progressEvery = 200 * time.Millisecond
	// rateAfter is the time of a phase without a rate, which would jump about.
	rateAfter = time.Second
)

func newProgress(out io.Writer) *progress { return &progress{out: out, now: time.Now} }

// tell prints a step, unless another was printed just before.
func (p *progress) tell(s step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if s.phase != p.phase || p.begun.IsZero() || s.done < p.from {
		p.phase, p.begun, p.from = s.phase, now, s.done
	}
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(progressEvery)
	// If progress cannot be written, neither can the result, whose error is returned.
	_, _ = fmt.Fprintf(p.out, "%s%s\n", progressMark, p.line(s, now))
}

// line is the line of a step. mu is held.
func (p *progress) line(s step, now time.Time) string {
	unit := s.unit
	if unit == nil {
		unit = func(n int64) string { return fmt.Sprint(n) }
	}
	var line strings.Builder
	line.WriteString(s.text)
	if s.text == "" {
		line.WriteString(s.phase)
	}
	line.WriteString(": " + unit(s.done))
	if s.total > 0 {
		fmt.Fprintf(&line, " of %s (%d %%)", unit(s.total), min(s.done*100/s.total, 100))
	}
	took := now.Sub(p.begun)
	if took < rateAfter || s.done <= p.from {
		return line.String()
	}
	rate := float64(s.done-p.from) / took.Seconds()
	fmt.Fprintf(&line, ", %s/s", unit(int64(rate)))
	if left := s.total - s.done; left > 0 {
		fmt.Fprintf(&line, ", %s left", spanText(time.Duration(float64(left)/rate*float64(time.Second))))
	}
	return line.String()
}
