package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"packhorse/bench/process"
)

// load is a request that some clients repeat at once.
type load struct {
	name    string
	clients int
	ask     func(h *house, client int) ask
}

const (
	mib         = 1 << 20
	samplePause = 10 * time.Millisecond
)

// figures are the measurements of a load.
type figures struct {
	mu      sync.Mutex // guards the fields below
	answers map[int]int
	cut     int
	reasons map[string]int
	wrong   map[string]int // refusals that none should be
	peak    int64          // anonymous memory
	group   int64          // memory of the control group
	health  health
}

// measure runs clients for a time, and reports whether the server withstood them.
func (h *house) measure(ctx context.Context, name string, all []load, lasts time.Duration) (stood bool, err error) {
	f := &figures{answers: make(map[int]int), reasons: make(map[string]int), wrong: make(map[string]int)}
	asking, stop := context.WithTimeout(ctx, lasts)
	defer stop()
	well, err := startHealth(ctx, h.server.URL)
	if err != nil {
		return false, err
	}
	watching, end := context.WithCancel(ctx)
	var watchers, clients sync.WaitGroup
	watchers.Go(func() { h.watchMemory(watching, f) })
	for _, l := range all {
		for i := range l.clients {
			clients.Go(func() {
				for asking.Err() == nil {
					got, err := h.do(asking, l.ask(h, i))
					if asking.Err() != nil {
						return
					}
					f.note(l.name, got, err)
					if got.status == http.StatusServiceUnavailable {
						rest(asking)
					}
				}
			})
		}
	}
	clients.Wait()
	end()
	watchers.Wait()
	if f.health, err = well.end(); err != nil {
		return false, err
	}
	alive := h.alive(ctx)
	f.print(name, h, alive)
	if !alive {
		return false, fmt.Errorf("the server ended during %q:\n%s", name, h.server.Output())
	}
	return f.health.Unwell == 0 && len(f.wrong) == 0, ctx.Err()
}

// rest waits for as long as a refusal asks for, about.
func rest(ctx context.Context) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
}

// note counts an answer. A refusal is 4xx or 503, with a reason.
func (f *figures) note(name string, got told, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[got.status]++
	if got.cut {
		f.cut++
	}
	if got.status == 0 || got.status >= http.StatusBadRequest {
		f.reasons[fmt.Sprintf("%d %.100s", got.status, got.reason)]++
	}
	if err != nil || got.status >= 500 && got.status != http.StatusServiceUnavailable ||
		got.status >= 400 && got.reason == "" {
		f.wrong[fmt.Sprintf("%s: %d %q %v", name, got.status, got.reason, err)]++
	}
}

func (f *figures) print(name string, h *house, alive bool) {
	state := "stands"
	if !alive {
		state = "ENDED"
	}
	fmt.Printf("%-24s %-6s  anonymous %4d MiB (%3d %% of --memory), group %4d of %d MiB, health at most %v", name, state,
		f.peak/mib, f.peak*100/h.memory, f.group/mib, h.group.limit/mib, f.health.Slowest.Round(time.Millisecond))
	if f.health.Unwell > 0 {
		fmt.Printf(", UNWELL %d of %d times", f.health.Unwell, f.health.Asked)
	}
	fmt.Print("; ")
	for _, status := range slices.Sorted(maps.Keys(f.answers)) {
		fmt.Printf(" %d x %d", f.answers[status], status)
	}
	fmt.Printf(", %d cut\n", f.cut)
	for _, reason := range slices.Sorted(maps.Keys(f.reasons)) {
		fmt.Printf("    %6d  %s\n", f.reasons[reason], reason)
	}
	for _, wrong := range slices.Sorted(maps.Keys(f.wrong)) {
		fmt.Printf("    WRONG %6d  %s\n", f.wrong[wrong], wrong)
	}
}

func (h *house) watchMemory(ctx context.Context, f *figures) {
	ticker := time.NewTicker(samplePause)
	defer ticker.Stop()
	for {
		own, ownErr := process.Anonymous(h.server.PID())
		used, usedErr := h.group.used()
		f.mu.Lock()
		if ownErr == nil {
			f.peak = max(f.peak, own)
		}
		if usedErr == nil {
			f.group = max(f.group, used)
		}
		f.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// alive reports whether the server answers once the load is over.
func (h *house) alive(ctx context.Context) bool {
	for range 50 {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.server.URL+"/healthz", http.NoBody)
		if err != nil {
			return false
		}
		if response, err := h.client.Do(request); err == nil {
			_ = response.Body.Close()
			return response.StatusCode == http.StatusOK
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}
