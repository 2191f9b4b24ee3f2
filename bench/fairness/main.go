// Command fairness measures the service that one tenant of a server gets while another one sends
// ten times as many requests.
//
// bench/README.md explains the numbers. Start at [measure].
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
	victim    string   // operation of the victim
	mixtures  []string // operations of the aggressor, one after the other
	repos     bool     // both are repositories of one organization
	clients   int      // of the victim; the aggressor has ten times as many
	window    time.Duration
	turns     int // of each mixture, the figures of which are medians
}

func main() {
	runtime.GOMAXPROCS(1) // each side's clients are one process and take one core at most
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s settings
	var mixtures string
	var attacks bool
	flag.StringVar(&s.packhorse, "packhorse", "bin/packhorse", "the packhorse `binary`")
	flag.StringVar(&s.victim, "victim", "everyday", "operations of the victim: everyday, or a `mixture`")
	flag.StringVar(&mixtures, "mixtures", "equal,reads,diffs,forks,pushes,clones,hooks,all",
		"mixtures of the aggressor, a comma-separated `list`; none measures the victim alone")
	flag.BoolVar(&s.repos, "repos", false, "two repositories of one organization instead of two organizations")
	flag.IntVar(&s.clients, "clients", 8, "`number` of the victim's clients")
	flag.DurationVar(&s.window, "window", 4*time.Second, "duration of each measurement")
	flag.IntVar(&s.turns, "turns", 1, "`number` of measurements of each mixture, alone and beside it in turns; figures are medians")
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

// measure starts a server and prints a line for each mixture.
func measure(ctx context.Context, s settings) (err error) {
	dir, err := os.MkdirTemp("", "packhorse-fairness-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := openWorld(ctx, s, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	victim := w.order(w.victim, s.victim, s.clients)
	if _, err := w.closed(ctx, victim, time.Second); err != nil { // warms up
		return err
	}
	alone, err := w.closed(ctx, victim, s.window)
	if err != nil {
		return err
	}
	fmt.Printf("alone: %.0f/s, p99 %v, %.2f cores of the server, %v of them each\n", alone.goodput(), alone.p99(),
		alone.cores(),
		(alone.cpu / time.Duration(max(alone.count, 1))).Round(time.Microsecond))
	if slices.Equal(s.mixtures, []string{"none"}) {
		return nil
	}
	rate, calm, err := w.calm(ctx, s, victim, alone)
	if err != nil {
		return err
	}
	goodput, slowdown := goodputMin, slowdownMax
	if s.repos {
		goodput, slowdown = goodputReposMin, slowdownRepos
	}
	fmt.Printf("alone at %.0f/s: p99 %v; wanted beside others: goodput %.2f, p99 %.0f\n", rate, calm.p99(), goodput,
		slowdown)
	fmt.Printf("%-8s %9s %9s %9s %9s %9s %9s %8s %8s %6s\n", "beside", "goodput", "/half", "/cpu half", "p99", "x alone",
		"calm p99", "x calm", "refused", "goals")
	for _, mixture := range s.mixtures {
		var turns []figures
		for turn := range max(1, s.turns) {
			if turn > 0 { // the machine may have another speed now
				if alone, err = w.closed(ctx, victim, s.window); err != nil {
					return err
				}
				if rate, calm, err = w.calm(ctx, s, victim, alone); err != nil {
					return err
				}
			}
			f, err := w.beside(ctx, s, victim, mixture, rate, alone, calm)
			if err != nil {
				return fmt.Errorf("%s: %w", mixture, err)
			}
			turns = append(turns, f)
		}
		f := medians(turns)
		met := "met"
		if f[besideHalf] < goodput || f[besideAlone] > slowdown {
			met = "missed"
		}
		fmt.Printf("%-8s %7.0f/s %9.2f %9.2f %7.1fms %9.1f %7.1fms %8.1f %8.0f %6s\n", mixture, f[goodputOf], f[besideHalf],
			f[besideCPU], f[p99Of], f[besideAlone], f[calmP99], f[besideCalm], f[refusedOf], met)
	}
	return nil
}

// calm measures the victim without an aggressor at a tenth of what it can do.
func (w *world) calm(
	ctx context.Context, s settings, victim order, alone sample,
) (rate float64, calm sample, err error) {
	rate = alone.goodput() / 10
	calm, err = w.open(ctx, victim, rate, s.window)
	return rate, calm, err
}

// figures are those of a line.
type figures [8]float64

const (
	goodputOf   = iota
	besideHalf  // goodput over half of that alone
	besideCPU   // goodput over what half of the CPU time allows
	p99Of       // in milliseconds
	besideAlone // p99 over that alone
	calmP99
	besideCalm
	refusedOf
)

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

// beside measures the victim while the aggressor is at work.
func (w *world) beside(
	ctx context.Context, s settings, victim order, mixture string, rate float64, alone, calm sample,
) (_ figures, err error) {
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
		return figures{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	got, err := w.closed(ctx, victim, s.window)
	if err != nil {
		return figures{}, err
	}
	gentle, err := w.open(ctx, victim, rate, s.window)
	if err != nil {
		return figures{}, err
	}
	// The goodput that half of the server's CPU time allows, at the cost of an operation alone.
	perOperation := alone.cpu.Seconds() / float64(alone.count)
	return figures{
		goodputOf:   got.goodput(),
		besideHalf:  got.goodput() / (alone.goodput() / 2),
		besideCPU:   float64(got.count) / (got.cpu.Seconds() / 2 / perOperation),
		p99Of:       milliseconds(got.p99()),
		besideAlone: ratio(got.p99(), alone.p99()),
		calmP99:     milliseconds(gentle.p99()),
		besideCalm:  ratio(gentle.p99(), calm.p99()),
		refusedOf:   float64(got.refused + gentle.refused),
	}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, time.Microsecond)) }
