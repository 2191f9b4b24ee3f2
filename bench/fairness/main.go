// Command fairness measures the service that one tenant of a server gets while another one sends
// ten times as many requests.
//
// bench/README.md explains the numbers. Start at [takeTurn].
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// settings are the command's flags.
type settings struct {
	packhorse string
	admin     string   // address of the server's admin listener; "": none
	victim    string   // operation of the victim
	mixtures  []string // operations of the aggressor, one after the other
	repos     bool     // both are repositories of one organization
	clients   int      // of the victim; the aggressor has ten times as many
	window    time.Duration
	turns     int // of each mixture, each on a server of its own; the figures are medians
}

func main() {
	runtime.GOMAXPROCS(1) // each side's clients are one process and take one core at most
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s settings
	var mixtures string
	var attacks bool
	flag.StringVar(&s.packhorse, "packhorse", "bin/packhorse", "the packhorse `binary`")
	flag.StringVar(&s.admin, "admin", "", "`address` of the server's admin listener, for profiles; none by default")
	flag.StringVar(&s.victim, "victim", "everyday", "operations of the victim: everyday, or a `mixture`")
	flag.StringVar(&mixtures, "mixtures", "equal,reads,diffs,forks,pushes,clones,commits,hooks,all",
		"mixtures of the aggressor, a comma-separated `list`; none measures the victim alone")
	flag.BoolVar(&s.repos, "repos", false, "two repositories of one organization instead of two organizations")
	flag.IntVar(&s.clients, "clients", 8, "`number` of the victim's clients")
	flag.DurationVar(&s.window, "window", 4*time.Second, "duration of each measurement")
	flag.IntVar(&s.turns, "turns", 1, "`number` of measurements of each mixture, each on a new server; figures are medians")
	flag.BoolVar(&attacks, "attack", false, "run as the aggressor; its orders are read from standard input")
	flag.Parse()
	s.mixtures = strings.Split(mixtures, ",")

	err := func() (err error) {
		if attacks {
			return attack(ctx, os.Stdin, os.Stdout)
		}
		if s.packhorse, err = filepath.Abs(s.packhorse); err != nil {
			return err
		}
		return measure(ctx, s)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fairness:", err)
		os.Exit(1)
	}
}

// aggressorFactor is how many times the victim's clients the aggressor has.
const aggressorFactor = 10

// Of the whole of one organization's demands, two repositories of one organization owe each other
// half.
const (
	goodputMin, goodputReposMin = 0.80, 0.40
	slowdownMax, slowdownRepos  = 3.0, 6.0
)

// measure prints a line for each mixture.
func measure(ctx context.Context, s settings) (err error) {
	dir, err := os.MkdirTemp("", "packhorse-fairness-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	history, err := generate(ctx, filepath.Join(dir, "source.git"))
	if err != nil {
		return err
	}
	goodput, slowdown := goodputMin, slowdownMax
	if s.repos {
		goodput, slowdown = goodputReposMin, slowdownRepos
	}
	fmt.Printf("wanted beside others: goodput %.2f of the half, p99 %.0f times\n", goodput, slowdown)
	fmt.Printf("%-8s %9s %8s %6s %9s %6s %9s %8s %8s %6s %9s %7s %8s %6s\n", "beside", "alone", "p99", "cores", "goodput",
		"/half", "/cpu half", "p99", "x alone", "cores", "calm p99", "x calm", "refused", "goals")
	for _, mixture := range s.mixtures {
		var turns []figures
		for range max(1, s.turns) {
			f, err := takeTurn(ctx, s, history, mixture, filepath.Join(dir, "server"))
			if err != nil {
				return fmt.Errorf("%s: %w", mixture, err)
			}
			turns = append(turns, f)
		}
		f := medians(turns)
		fmt.Printf("%-8s %7.0f/s %6.1fms %6.2f ", mixture, f[aloneOf], f[aloneP99], f[aloneCores])
		if mixture == nobody {
			fmt.Println()
			continue
		}
		met := "met"
		if f[besideHalf] < goodput || f[besideAlone] > slowdown {
			met = "missed"
		}
		fmt.Printf("%7.0f/s %6.2f %9.2f %6.1fms %8.1f %6.2f %7.1fms %7.1f %8.0f %6s\n", f[goodputOf], f[besideHalf],
			f[besideCPU], f[p99Of], f[besideAlone], f[besideCores], f[calmP99], f[besideCalm], f[refusedOf], met)
	}
	return nil
}

// nobody is the mixture of no aggressor.
const nobody = "none"

// takeTurn measures the victim alone and beside a mixture, on a server that has done nothing else:
// one that still maintains what an earlier aggressor has written is slower for everybody.
func takeTurn(ctx context.Context, s settings, history order, mixture, dir string) (f figures, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := openWorld(ctx, s, history, mixture, dir)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	victim := w.order(w.victim, s.victim, s.clients)
	victim.prepare()
	if _, err := w.closed(ctx, victim, warming); err != nil {
		return f, err
	}
	alone, err := w.closed(ctx, victim, s.window)
	if err != nil {
		return f, err
	}
	if mixture == nobody {
		return figuresOf(alone, sample{}, sample{}, sample{}), nil
	}
	rate := alone.goodput() / 10
	calm, err := w.open(ctx, victim, rate, s.window)
	if err != nil {
		return f, err
	}
	got, gentle, err := w.beside(ctx, s, victim, mixture, rate)
	return figuresOf(alone, calm, got, gentle), err
}

// warming is how long the victim is at work before it is measured.
const warming = time.Second

// figures are those of a line.
type figures [12]float64

const (
	aloneOf    = iota // goodput of the victim alone
	aloneP99          // in milliseconds
	aloneCores        // of the server
	goodputOf
	besideHalf  // goodput over half of that alone
	besideCPU   // goodput over what half of the CPU time allows
	p99Of       // in milliseconds
	besideAlone // p99 over that alone
	besideCores
	calmP99
	besideCalm
	refusedOf
)

// figuresOf compares the victim beside others, with all its clients and at a rate, with the victim
// alone.
func figuresOf(alone, calm, got, gentle sample) figures {
	// The goodput that half of the server's CPU time allows, at the cost of an operation alone.
	perOperation := alone.cpu.Seconds() / float64(alone.count)
	return figures{
		aloneOf:     alone.goodput(),
		aloneP99:    milliseconds(alone.p99()),
		aloneCores:  alone.cores(),
		goodputOf:   got.goodput(),
		besideHalf:  got.goodput() / (alone.goodput() / 2),
		besideCPU:   float64(got.count) / (got.cpu.Seconds() / 2 / perOperation),
		p99Of:       milliseconds(got.p99()),
		besideAlone: ratio(got.p99(), alone.p99()),
		besideCores: got.cores(),
		calmP99:     milliseconds(gentle.p99()),
		besideCalm:  ratio(gentle.p99(), calm.p99()),
		refusedOf:   float64(got.refused + gentle.refused),
	}
}

// medians returns the median of each figure.
func medians(turns []figures) (m figures) {
	for i := range m {
		var all []float64
		for _, f := range turns {
			all = append(all, f[i])
		}
		slices.Sort(all)
		m[i] = all[len(all)/2]
	}
	return m
}

// beside measures the victim while the aggressor is at work: with all its clients, and at a rate.
func (w *world) beside(
	ctx context.Context, s settings, victim order, mixture string, rate float64,
) (got, gentle sample, err error) {
	count := aggressorFactor * s.clients
	kind := mixture
	if mixture == "equal" { // another tenant with the same load
		count, kind = s.clients, s.victim
	}
	side := w.aggressor
	if hooks(mixture) {
		side = w.hooked
	}
	stop, err := w.startAttack(ctx, w.order(side, kind, count))
	if err != nil {
		return got, gentle, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if got, err = w.closed(ctx, victim, s.window); err != nil {
		return got, gentle, err
	}
	gentle, err = w.open(ctx, victim, rate, s.window)
	return got, gentle, err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, time.Microsecond)) }
