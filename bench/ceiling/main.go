// Command ceiling checks that a server keeps to its --memory. It runs one in a control group that
// allows a quarter more, and lets clients send the most expensive requests, one kind after the
// other and all at once. It reports whether the server stayed alive, its memory, the time of health
// answers, and the answers of the clients.
//
// Start at main; seed.go makes the repositories, loads.go and bombs.go are the requests, health.go
// asks for health. It needs Linux, and the right to make a control group: it runs as root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	bin := flag.String("packhorse", "", "the packhorse `binary`; built if omitted")
	memory := flag.Int64("memory", 256, "--memory of the server, in MiB")
	lasts := flag.Duration("for", 10*time.Second, "duration of each load")
	only := flag.String("only", ".", "loads whose names match this `regexp`")
	watched := flag.String("health", "", "only watch the health of the server at this `URL`")
	flag.Parse()
	if *watched != "" {
		if err := watchHealth(*watched); err != nil {
			fmt.Fprintln(os.Stderr, "ceiling:", err)
			os.Exit(1)
		}
		return
	}
	ok, err := run(ctx, *bin, *memory<<20, *lasts, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ceiling:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run returns whether the server has stood every load.
func run(ctx context.Context, bin string, memory int64, lasts time.Duration, only string) (ok bool, err error) {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "packhorse-ceiling")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if bin == "" {
		if bin, err = packhorsetest.Build(ctx, dir); err != nil {
			return false, err
		}
	}
	g, err := newGroup(memory + memory/4)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, g.remove()) }()
	h := &house{bin: bin, dir: filepath.Join(dir, "server"), group: g, memory: memory}
	if err := h.start(ctx); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	if err := h.seed(ctx); err != nil {
		return false, fmt.Errorf("make the repositories: %w", err)
	}
	ok = true
	all := make([]load, 0, len(loads()))
	for _, l := range loads() {
		if !chosen.MatchString(l.name) {
			continue
		}
		all = append(all, l)
		stood, err := h.measure(ctx, l.name, []load{l}, lasts)
		if err != nil {
			return false, err
		}
		ok = ok && stood
	}
	if len(all) > 1 {
		stood, err := h.measure(ctx, "together", all, 2*lasts)
		if err != nil {
			return false, err
		}
		ok = ok && stood
	}
	return ok, nil
}
