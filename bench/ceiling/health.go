package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

const (
	healthPause = 50 * time.Millisecond
	healthMax   = time.Second // maximum time of a health answer
)

// health is how a server answered a load balancer.
type health struct {
	Asked, Unwell int // Unwell: answers that failed or were too late
	Slowest       time.Duration
}

// healthWatch is a process that asks a server for health. The thousands of goroutines that put a
// load on the server would keep one beside them waiting.
type healthWatch struct {
	cmd  *exec.Cmd
	ends io.Closer
	told io.Reader
}

func startHealth(ctx context.Context, server string) (*healthWatch, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &healthWatch{cmd: exec.CommandContext(ctx, self, "-health", server)}
	w.cmd.Stderr = os.Stderr
	if w.ends, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if w.told, err = w.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watch of health: %w", err)
	}
	return w, nil
}

// end ends the process and returns what it has seen.
func (w *healthWatch) end() (seen health, err error) {
	err = errors.Join(w.ends.Close(), json.NewDecoder(w.told).Decode(&seen), w.cmd.Wait())
	if err == nil && seen.Asked == 0 {
		err = errors.New("the watch of health has asked for nothing")
	}
	return seen, err
}

// watchHealth is that process. It asks on a new connection each time, as a load balancer does,
// until the standard input ends, and writes what it has seen.
func watchHealth(server string) error {
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * healthMax}
	var seen health
	for ticker := time.NewTicker(healthPause); !ended.Load(); <-ticker.C {
		began := time.Now()
		response, err := client.Get(server + "/healthz")
		took := time.Since(began)
		if err == nil {
			_ = response.Body.Close()
		}
		seen.Asked++
		seen.Slowest = max(seen.Slowest, took)
		if err != nil || response.StatusCode != http.StatusOK || took > healthMax {
			seen.Unwell++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}
