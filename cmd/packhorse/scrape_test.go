package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// metric is a family of a scrape.
type metric struct {
	kind   string                     // counter, gauge, histogram
	labels map[string]map[string]bool // the values that each label has in some series; le is not one
}

// scrapes is the metrics of one server that has had traffic; see [scrape].
var scrapes struct {
	once    sync.Once
	metrics map[string]*metric
}

// scrape returns the metrics that a server with TLS over embedded stores shows after git, the API
// and bad tokens have used it. All tests share one server.
func scrape(t *testing.T) map[string]*metric {
	t.Helper()
	scrapes.once.Do(func() { scrapes.metrics = scrapeTraffic(t) })
	if scrapes.metrics == nil {
		t.Fatal("the server could not be scraped: another test says why")
	}
	return scrapes.metrics
}

func scrapeTraffic(t *testing.T) map[string]*metric {
	t.Helper()
	server := start(t, packhorsetest.Options{TLS: true, Flags: []string{"--scrub-rate", "1GiB"}})
	client := trusting(t, server)
	token, err := server.Token(t.Context(), "web/site", "--scope", "repo:write,git:write,git:read")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, token, body string, want int) string {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != want {
			t.Fatalf("%s %s: %d %s, %v", method, path, response.StatusCode, text, err)
		}
		return string(text)
	}
	ask(http.MethodPost, "/api/v1/repos", token, "", http.StatusCreated)
	ask(http.MethodGet, "/api/v1/repos/branches", "no token", "", http.StatusUnauthorized)

	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 3, Commits: 5})
	remote := strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/web/site.git"
	ssl := []string{"-c", "http.sslCAInfo=" + server.CACert}
	run := func(args ...string) { git.Git(slices.Concat(ssl, args)...) }
	run("push", "--quiet", remote, "refs/heads/*:refs/heads/*")
	clone := t.TempDir()
	run("clone", "--quiet", "--bare", "--depth", "2", remote, clone)
	run("--git-dir", clone, "fetch", "--quiet", "--unshallow", remote, "+refs/heads/*:refs/heads/*")
	ask(http.MethodPost, "/api/v1/repos/archive", token, "{}", http.StatusOK)

	// The end of a streamed answer is counted a little after the client has it.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var metrics map[string]*metric
	for ctx.Err() == nil {
		metrics = parseMetrics(t, ask(http.MethodGet, "/metrics", "", "", http.StatusOK))
		if m := metrics["packhorse_git_operation_duration_seconds"]; m != nil && m.labels["operation"]["archive"] {
			break
		}
	}
	done := metrics["packhorse_git_operation_duration_seconds"].labels["operation"]
	want := []string{"archive", "capabilities", "clone", "fetch", "ls-refs", "push"}
	if got := slices.Sorted(maps.Keys(done)); !slices.Equal(got, want) {
		t.Fatalf("git operations %q, want %q", got, want)
	}
	return metrics
}

var (
	metricType   = regexp.MustCompile(`^# TYPE ([a-zA-Z_][a-zA-Z0-9_]*) ([a-z]+)$`)
	metricSeries = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)(?:\{(.*)\})? [^ ]+$`)
	metricLabel  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?`)
)

// parseMetrics reads the text format of Prometheus.
func parseMetrics(t *testing.T, text string) map[string]*metric {
	t.Helper()
	metrics := make(map[string]*metric)
	var current *metric
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if found := metricType.FindStringSubmatch(line); found != nil {
			current = &metric{kind: found[2], labels: make(map[string]map[string]bool)}
			metrics[found[1]] = current
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		series := metricSeries.FindStringSubmatch(line)
		if series == nil || current == nil {
			t.Fatalf("no series: %q", line)
		}
		for _, label := range metricLabel.FindAllStringSubmatch(series[2], -1) {
			if label[1] == "le" {
				continue
			}
			if current.labels[label[1]] == nil {
				current.labels[label[1]] = make(map[string]bool)
			}
			current.labels[label[1]][label[2]] = true
		}
	}
	return metrics
}

// Names and types of our metrics are as Prometheus wants them: counters end in _total, and no
// other; durations are in _seconds, and sizes in _bytes; no label has values without bound.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	bound := map[string]bool{
		"route": true, "method": true, "status": true, "status_class": true, "operation": true, "result": true, "reason": true,
		"op": true, "queue": true, "limit": true, "state": true, "tier": true, "version": true, "goversion": true,
	}
	units := regexp.MustCompile(`_(milli|micro|nano)?(sec|ms|minutes|hours|kb|mb|kib|mib|percent)(_|$)`)
	for name, m := range scrape(t) {
		if !strings.HasPrefix(name, "packhorse_") {
			continue
		}
		if strings.HasSuffix(name, "_total") != (m.kind == "counter") {
			t.Errorf("%s is a %s", name, m.kind)
		}
		if m.kind == "histogram" && !strings.HasSuffix(name, "_seconds") && !strings.HasSuffix(name, "_bytes") {
			t.Errorf("%s has no unit", name)
		}
		if units.MatchString(name) {
			t.Errorf("%s: the unit is no base unit", name)
		}
		for label, values := range m.labels {
			if !bound[label] {
				t.Errorf("%s has the label %s", name, label)
			}
			for value := range values {
				if strings.Contains(value, packhorsetest.Org) || strings.Contains(value, "site") {
					t.Errorf("%s names somebody: %s", name, fmt.Sprintf("%s=%q", label, value))
				}
			}
		}
	}
}
