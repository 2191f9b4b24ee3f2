package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"packhorse/bench/process"
)

// samplePause is the interval of memory samples while a job runs.
const samplePause = 5 * time.Millisecond

// usage is the resources taken by the processes of a server.
type usage struct {
	cpu       time.Duration // user and system
	anonymous int64         // peak of the processes' anonymous memory together, in bytes
	added     int64         // by how much that was more than when the job began
}

// measure runs job and returns the resources that the processes below root, root included, took
// during it. CPU time of processes that have ended counts through their parents, once these have
// waited for them; so measure waits until the tree is as small as it was.
func measure(ctx context.Context, root int, job func() error) (usage, error) {
	before, err := readTree(root)
	if err != nil {
		return usage{}, err
	}
	var peak atomic.Int64
	sampling, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(samplePause)
		defer ticker.Stop()
		for {
			if tree, err := readTree(root); err == nil {
				peak.Store(max(peak.Load(), tree.anonymous))
			}
			select {
			case <-sampling.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	err = job()
	stop()
	<-done
	if err != nil {
		return usage{}, err
	}
	after, err := settledTree(ctx, root, before.count)
	if err != nil {
		return usage{}, err
	}
	return usage{cpu: after.cpu - before.cpu, anonymous: peak.Load(), added: max(peak.Load()-before.anonymous, 0)}, nil
}

// settledTree waits up to five seconds for the processes of a job to end.
func settledTree(ctx context.Context, root, count int) (tree, error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		t, err := readTree(root)
		if err != nil || t.count <= count || time.Now().After(deadline) {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, ctx.Err()
		case <-time.After(samplePause):
		}
	}
}

// A server rests when it takes less than 4 % of a core: that is the limit of background work on
// stored data.
const (
	restPause = 500 * time.Millisecond
	restTicks = 2 // of CPU time in restPause
	restMax   = 2 * time.Minute
)

// rest waits until the processes below root are almost idle, so that leftover work of one job is
// not in the figures of the next. It looks once in each pause. It returns the CPU time that they
// took until then, 0 for less than a tenth of a second.
func rest(ctx context.Context, root int, pause time.Duration) (time.Duration, error) {
	began := time.Now()
	first, err := readTree(root)
	if err != nil {
		return 0, err
	}
	for before := first; ; {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(pause):
		}
		now, err := readTree(root)
		if err != nil {
			return 0, err
		}
		if now.cpu-before.cpu > restTicks*process.Tick && time.Since(began) < restMax {
			before = now
			continue
		}
		if used := now.cpu - first.cpu; used >= 10*process.Tick {
			return used, nil
		}
		return 0, nil
	}
}

// tree is a process and all below it.
type tree struct {
	count     int
	cpu       time.Duration // of the processes, and of their children that have ended
	anonymous int64
}

// readTree reads /proc. A process that ends during the reading is left out.
func readTree(root int) (tree, error) {
	var t tree
	var visit func(pid int) error
	visit = func(pid int) error {
		cpu, err := process.CPU(pid)
		if err != nil {
			return err
		}
		t.count++
		t.cpu += cpu
		if held, err := process.Anonymous(pid); err == nil { // or it has ended
			t.anonymous += held
		}
		for _, child := range childrenOf(pid) {
			_ = visit(child) // it has ended
		}
		return nil
	}
	return t, visit(root)
}

// childrenOf returns the children of every thread of a process.
func childrenOf(pid int) []int {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	var children []int
	for _, thread := range threads {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
