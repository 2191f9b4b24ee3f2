// Command fairness measures the service that one tenant of a server gets while another one sends
// ten times as many requests.
//
// bench/README.md explains the numbers. Start at [measureMixture].
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
	"strings"
	"syscall"
	"time"
)

// settings are the command's flags.
type settings struct {
	packhorse string
	alone     string   // the packhorse binary that the victim has for itself
	admin     string   // address of the admin listener of the server with both; "": none
	victim    string   // operation of the victim
	mixtures  []string // operations of the aggressor, one after the other
	repos     bool     // both are repositories of one organization
	clients   int      // of the victim; the aggressor has ten times as many
	window    time.Duration
	rounds    int // of windows alone and beside
}

func main() {
	runtime.GOMAXPROCS(1) // each side's clients are one process and take one core at most
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s settings
	var mixtures string
	var attacks bool
	flag.StringVar(&s.packhorse, "packhorse", "bin/packhorse", "the packhorse `binary`")
	flag.StringVar(&s.alone, "alone", "", "the `binary` that serves the victim alone; by default the same")
	flag.StringVar(&s.admin, "admin", "",
		"`address` of the admin listener of the server with both, for profiles; none by default")
	flag.StringVar(&s.victim, "victim", "everyday", "operations of the victim: everyday, or a `mixture`")
	flag.StringVar(&mixtures, "mixtures", "equal,reads,diffs,forks,pushes,clones,commits,hooks,all",
		"mixtures of the aggressor, a comma-separated `list`; none compares the victim alone on two servers")
	flag.BoolVar(&s.repos, "repos", false, "two repositories of one organization instead of two organizations")
	flag.IntVar(&s.clients, "clients", 8, "`number` of the victim's clients")
	flag.DurationVar(&s.window, "window", 500*time.Millisecond, "duration of each measurement in a round")
	flag.IntVar(&s.rounds, "rounds", 20, "`number` of rounds of each mixture")
	flag.BoolVar(&attacks, "attack", false, "run as the aggressor; its orders are read from standard input")
	flag.Parse()
	s.mixtures = strings.Split(mixtures, ",")
	if s.alone == "" {
		s.alone = s.packhorse
	}

	err := func() (err error) {
		if attacks {
			return attack(ctx, os.Stdin, os.Stdout)
		}
		if s.window > windowMax {
			return fmt.Errorf("-window is %v, want at most %v", s.window, windowMax)
		}
		return measure(ctx, s)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fairness:", err)
		os.Exit(1)
	}
}

// windowMax keeps a server from noticing that it is stopped meanwhile: after a second without a
// turn it lets all requests go on.
const windowMax = 800 * time.Millisecond

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
	fmt.Printf("%-8s %9s %8s %6s %9s %6s %6s %9s %9s %8s %6s %9s %7s %8s %6s\n", "beside", "alone", "p99", "cores",
		"goodput", "/half", "+-", "/cpu half", "p99", "x alone", "cores", "calm p99", "x calm", "refused", "goals")
	for _, mixture := range s.mixtures {
		m, err := measureMixture(ctx, s, history, mixture, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", mixture, err)
		}
		met := "met"
		switch {
		case mixture == nobody:
			met = ""
		case m.ofHalf() < goodput || ratio(m.beside.p99(), m.alone.p99()) > slowdown:
			met = "missed"
		}
		fmt.Printf("%-8s %7.0f/s %6.1fms %6.2f %7.0f/s %6.2f %6.2f %9.2f %7.1fms %8.1f %6.2f %7.1fms %7.1f %8d %6s\n",
			mixture, m.alone.goodput(), milliseconds(m.alone.p99()), m.alone.cores(), m.beside.goodput(), m.ofHalf(),
			m.uncertainty(), m.ofHalfCPU(), milliseconds(m.beside.p99()), ratio(m.beside.p99(), m.alone.p99()),
			m.beside.cores(), milliseconds(m.calmBeside.p99()), ratio(m.calmBeside.p99(), m.calmAlone.p99()),
			m.beside.refused+m.calmBeside.refused, met)
	}
	return nil
}

// nobody is the mixture of no aggressor.
const nobody = "none"

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, time.Microsecond)) }
