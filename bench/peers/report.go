package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"packhorse/bench/process"
)

// report is everything that one run found.
type report struct {
	source  source
	theirs  string // name of the other side
	runs    int
	machine string
	results []result
}

// measured is one figure of a job: the medians of both sides.
type measured struct {
	job, note    string // empty in the further lines of a job
	measure      string
	ours, theirs float64 // 0 when there is none
	format       func(float64) string
}

// ratio is ours over theirs, 0 when either is missing.
func (m measured) ratio() float64 {
	if m.theirs == 0 {
		return 0
	}
	return m.ours / m.theirs
}

// Names of the sides: ours, and what it is measured beside.
const (
	sideOurs    = "packhorse"
	sideGit     = "git http-backend"
	sideAgainst = "packhorse before"
)

// figures lists the measures in the order of the table.
func (r report) figures() []measured {
	measures := []struct {
		name   string
		of     func(sample) float64
		format func(float64) string
	}{
		{"wall", func(s sample) float64 { return float64(s.wall) }, formatTime},
		{"server CPU", func(s sample) float64 { return float64(s.cpu) }, formatTime},
		{"CPU afterwards", func(s sample) float64 { return float64(s.after) }, formatTime},
		{"first pack byte", func(s sample) float64 { return float64(s.firstByte) }, formatTime},
		{"peak memory", func(s sample) float64 { return float64(s.memory) }, formatBytes},
		{"memory added", func(s sample) float64 { return float64(s.added) }, formatBytes},
		{"pack", func(s sample) float64 { return float64(s.bytes) }, formatBytes},
		{"objects", func(s sample) float64 { return float64(s.objects) }, formatCount},
	}
	var list []measured
	for _, result := range r.results {
		job, note := result.job.name, result.job.note
		for _, measure := range measures {
			m := measured{
				job: job, note: note, measure: measure.name, format: measure.format,
				ours: medianOf(result.samples[sideOurs], measure.of), theirs: medianOf(result.samples[r.theirs], measure.of),
			}
			if m.ours == 0 && m.theirs == 0 {
				continue
			}
			list = append(list, m)
			job, note = "", ""
		}
	}
	return list
}

func medianOf(samples []sample, of func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return median(values)
}

// write writes <name>.md and <name>.svg into a folder.
func (r report) write(folder, name string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	figures := r.figures()
	text := r.markdown(name, figures)
	fmt.Println(text)
	if err := os.WriteFile(filepath.Join(folder, name+".md"), []byte(text), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".svg"), []byte(plot(name, r.theirs, figures)), 0o600)
}

func (r report) markdown(name string, figures []measured) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s: packhorse beside %s\n\n", name, r.theirs)
	fmt.Fprintf(&text, "%s.\n%d objects. Medians of %d rounds; the ratio is packhorse's figure over the peer's.\n\n",
		r.machine, r.source.objects, r.runs)
	fmt.Fprintf(&text, "![ratios](%s.svg)\n\n", name)
	fmt.Fprintf(&text, "| Job | Measure | %s | %s | ratio |\n|---|---|---:|---:|---:|\n", sideOurs, r.theirs)
	for _, m := range figures {
		job := m.job
		if job != "" {
			job = "**" + job + "** " + m.note
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |\n", job, m.measure, orDash(m.ours, m.format),
			orDash(m.theirs, m.format), orDash(m.ratio(), formatRatio))
	}
	return text.String()
}

func orDash(value float64, format func(float64) string) string {
	if value == 0 {
		return "–"
	}
	return format(value)
}

func formatRatio(v float64) string { return fmt.Sprintf("%.2f", v) }
func formatCount(v float64) string { return fmt.Sprintf("%.0f", v) }

func formatTime(v float64) string {
	switch d := time.Duration(v); {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	}
}

func formatBytes(v float64) string {
	switch {
	case v >= 1<<20:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	default:
		return fmt.Sprintf("%.1f KiB", v/(1<<10))
	}
}

// machine describes the machine of the run in one line.
func machine(ctx context.Context, packhorse string) string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimSpace(strings.TrimLeft(name, "\t: "))
				break
			}
		}
	}
	parts := []string{fmt.Sprintf("%d × %s", runtime.NumCPU(), model)}
	for _, cmd := range [][]string{{packhorse, "version"}, {"git", "--version"}} {
		out, err := process.Output(exec.CommandContext(ctx, cmd[0], cmd[1:]...))
		if err == nil {
			parts = append(parts, strings.TrimSpace(out))
		}
	}
	return strings.Join(parts, ", ") + time.Now().UTC().Format(", 2006-01-02")
}
