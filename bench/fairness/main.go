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
	rate := alone.goodput() / 10
	calm, err := w.open(ctx, victim, rate, s.window)
	if err != nil {
		return err
	}
	goodput, slowdown := goodputMin, slowdownMax
	if s.repos {
		goodput, slowdown = goodputReposMin, slowdownRepos
	}
	fmt.Printf("alone at %.0f/s: p99 %v; wanted beside others: goodput %.2f, p99 %.0f\n", rate, calm.p99(), goodput,
		slowdown)
	fmt.Printf("%-8s %9s %9s %9s %9s %9s %9s %8s %8s\n", "beside", "goodput", "/half", "/cpu half", "p99", "x alone",
		"calm p99", "x calm", "refused")
	for _, mixture := range s.mixtures {
		if err := w.beside(ctx, s, victim, mixture, rate, alone, calm); err != nil {
			return fmt.Errorf("%s: %w", mixture, err)
		}
	}
	return nil
}

// beside measures the victim while the aggressor is at work.
func (w *world) beside(
	ctx context.Context, s settings, victim order, mixture string, rate float64, alone, calm sample,
) (err error) {
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
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	got, err := w.closed(ctx, victim, s.window)
	if err != nil {
		return err
	}
	gentle, err := w.open(ctx, victim, rate, s.window)
	if err != nil {
		return err
	}
	// The goodput that half of the server's CPU time allows, at the cost of an operation alone.
	perOperation := alone.cpu.Seconds() / float64(alone.count)
	fromCPU := float64(got.count) / (got.cpu.Seconds() / 2 / perOperation)
	fmt.Printf("%-8s %7.0f/s %9.2f %9.2f %9v %9.1f %9v %8.1f %8d\n", mixture, got.goodput(),
		got.goodput()/(alone.goodput()/2), fromCPU,
		got.p99(), ratio(got.p99(), alone.p99()), gentle.p99(), ratio(gentle.p99(), calm.p99()), got.refused+gentle.refused)
	return nil
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, time.Microsecond)) }
