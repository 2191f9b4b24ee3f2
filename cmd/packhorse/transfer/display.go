package transfer

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"packhorse/odb/rescue"
)

// Display writes a line for each job that has ended, and on a terminal a bar for each that runs,
// below the lines. Its methods may be called concurrently.
type Display struct {
	out    io.Writer
	width  int // of the terminal; 0: none, and no bars
	dryRun bool

	mu      sync.Mutex // guards the fields below, and out
	running []*Meter
	drawn   int // lines of bars on the terminal
	sum     Summary
	stop    chan struct{}
	drawing sync.WaitGroup
}

// Summary is what became of all jobs.
type Summary struct {
	Counts map[Outcome]int
	Failed []Result
	Bytes  int64
}

// barEvery is the interval in which bars are drawn.
const barEvery = 100 * time.Millisecond

// NewDisplay returns a Display that writes to out, a terminal of a width or, if that is 0,
// something else. Close ends it.
func NewDisplay(out io.Writer, width int, dryRun bool) *Display {
	d := &Display{
		out: out, width: width, dryRun: dryRun, sum: Summary{Counts: make(map[Outcome]int)}, stop: make(chan struct{}),
	}
	if width > 0 {
		rescue.Go(&d.drawing, d.draw, func(error) {}) // bars are missed by nobody
	}
	return d
}

// draw draws the bars until Close.
func (d *Display) draw() error {
	ticker := time.NewTicker(barEvery)
	defer ticker.Stop()
	for {
		select {
		case <-d.stop:
			return nil
		case <-ticker.C:
			d.mu.Lock()
			d.write("")
			d.mu.Unlock()
		}
	}
}

// Begun shows the bar of a job.
func (d *Display) Begun(m *Meter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = append(d.running, m)
}

// Ended replaces the bar of a job by its line.
func (d *Display) Ended(m *Meter, result Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, one := range d.running {
		if one == m {
			d.running = append(d.running[:i], d.running[i+1:]...)
			break
		}
	}
	d.sum.Counts[result.Outcome]++
	d.sum.Bytes += result.Bytes
	if result.Outcome == Failed {
		d.sum.Failed = append(d.sum.Failed, result)
	}
	d.write(d.line(result) + "\n")
}

// line is the line of a job that has ended.
func (d *Display) line(r Result) string {
	word := string(r.Outcome)
	if d.dryRun {
		word = map[Outcome]string{Imported: "would import", Updated: "would update"}[r.Outcome]
		if word == "" {
			word = string(r.Outcome)
		}
	}
	var more strings.Builder
	switch {
	case r.Outcome == Failed:
		fmt.Fprintf(&more, ": %v", r.Err)
	case r.Outcome != Equal:
		more.WriteString(", " + refsText(r.Refs))
		if !d.dryRun {
			fmt.Fprintf(&more, ", %s in %s", SizeText(r.Bytes), r.Took.Round(time.Millisecond))
		}
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&more, ", without %s whose names no repository takes", refsText(r.Skipped))
	}
	return word + " " + r.Job.Name + more.String()
}

// refsText is a number of refs for people.
func refsText(n int) string {
	if n == 1 {
		return "1 ref"
	}
	return fmt.Sprintf("%d refs", n)
}

// write replaces the bars by text and the bars as they are now. d.mu is held.
func (d *Display) write(text string) {
	var all strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&all, "\x1b[%dA\r\x1b[J", d.drawn)
	}
	all.WriteString(text)
	d.drawn = 0
	if d.width > 0 {
		for _, m := range d.running {
			all.WriteString(bar(m, d.width) + "\n")
			d.drawn++
		}
	}
	_, _ = io.WriteString(d.out, all.String()) // Close tells how all ended
}

// barWidth is the length of a bar in characters.
const barWidth = 20

// bar is one line about a job that runs, shorter than width.
func bar(m *Meter, width int) string {
	sent, total := m.Sent()
	text := strings.Repeat(" ", barWidth)
	if total > 0 {
		full := int(min(barWidth, barWidth*sent/total))
		text = strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
	}
	line := fmt.Sprintf("[%s] %9s %s", text, SizeText(sent), m.Job.Name)
	return line[:min(len(line), max(width-1, 0))]
}

// Close ends the bars, and returns what became of all jobs.
func (d *Display) Close() Summary {
	close(d.stop)
	d.drawing.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = nil
	if d.drawn > 0 {
		d.write("")
	}
	return d.sum
}

// SizeText is a number of bytes for people.
func SizeText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// Text is the report on count jobs that took some time.
func (s Summary) Text(count int, took time.Duration, dryRun bool) string {
	ended := s.Counts[Imported] + s.Counts[Updated] + s.Counts[Equal] + s.Counts[Failed]
	verb := ""
	if dryRun {
		verb = "would be "
	}
	noun := "repositories"
	if count == 1 {
		noun = "repository"
	}
	text := fmt.Sprintf("%d %s: %d %simported, %d %supdated, %d equal, %d failed",
		count, noun, s.Counts[Imported], verb, s.Counts[Updated], verb, s.Counts[Equal], s.Counts[Failed])
	if ended < count {
		text += fmt.Sprintf(", %d not begun", count-ended)
	}
	if !dryRun {
		rate := float64(s.Bytes) / max(took.Seconds(), 0.001)
		text += fmt.Sprintf("; %s in %s, %s a second", SizeText(s.Bytes), took.Round(time.Millisecond), SizeText(int64(rate)))
	}
	var all strings.Builder
	all.WriteString(text + "\n")
	for _, failed := range s.Failed {
		fmt.Fprintf(&all, "failed: %s from %s: %v\n", failed.Job.Name, failed.Job.From, failed.Err)
	}
	return all.String()
}
