//go:build clients

package clienttest_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/odbtest"
)

// requestLine is what the log of a server says about a request that has a trace.
var requestLine = regexp.MustCompile(`msg=request .* path=(\S+) status=(\d+) .* took=(\S+) .*trace_id=([0-9a-f]{32})`)

var release = regexp.MustCompile(`(?m)^v?[0-9]+\.[0-9].*$`)

// served is a request as the server's log tells it. Its time ends when the browser has the answer.
type served struct {
	path, status string
	took         time.Duration
}

// servedLog keeps the requests that have a trace, by its ID.
type servedLog struct {
	mu    sync.Mutex
	more  sync.Cond
	of    map[string][]served
	ended bool
}

func newServedLog() *servedLog {
	l := &servedLog{of: make(map[string][]served)}
	l.more.L = &l.mu
	return l
}

// line takes a line of the log.
func (l *servedLog) line(text string) {
	found := requestLine.FindStringSubmatch(text)
	if found == nil || strings.HasSuffix(found[1], "/events") { // a stream ends when the page is left
		return
	}
	took, err := time.ParseDuration(found[3])
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[found[4]] = append(l.of[found[4]], served{found[1], found[2], took})
	l.more.Broadcast()
}

// wait returns the requests of a trace when there are as many as a page has made.
func (l *servedLog) wait(t *testing.T, trace string, count int) []served {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended = true
		l.more.Broadcast()
	})
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.of[trace]) < count && !l.ended {
		l.more.Wait()
	}
	if l.ended {
		t.Fatalf("the server has logged %v, want %d requests", l.of[trace], count)
	}
	return l.of[trace]
}

// timePage shows the page of an address, and tells what it took until there was something to read
// or to use, and until the last request had come and was drawn. It gives the requests a trace.
const timePage = `
const [address, trace] = args;
const plain = window.plainFetch ??= window.fetch;
let asked = 0;
window.fetch = (input, options) => {
  if (!new URL(input, location.href).pathname.endsWith("/events")) asked++;
  return plain(input, { ...options, headers: { ...options?.headers, traceparent: "00-" + trace + "-00000000000000aa-00" } });
};
performance.setResourceTimingBufferSize(10000);
performance.clearResourceTimings();
const main = document.getElementById("main");
const until = (is) => new Promise((done) => {
  const look = () => is() ? done() : setTimeout(look, 4);
  look();
});
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
const answered = () => performance.getEntriesByType("resource").filter(({ initiatorType, name }) =>
  initiatorType === "fetch" && !new URL(name).pathname.endsWith("/events")).length;
main.setAttribute("aria-busy", "true");
const begun = performance.now();
if (location.hash === address) dispatchEvent(new HashChangeEvent("hashchange")); else location.hash = address;
await until(() => !main.hasAttribute("aria-busy") && main.querySelector("h1"));
await painted();
const usable = performance.now() - begun;
await until(() => !document.querySelector("[aria-busy]") && answered() >= asked);
await painted();
return { Usable: usable, Whole: performance.now() - begun, Requests: asked };`

// timed is what a page took.
type timed struct {
	Usable, Whole float64 // milliseconds
	Requests      int
	sum, longest  time.Duration // of the server
	slowest       string
	server        float64 // seconds of its processors
	browser       float64 // and of the thread that draws
}

// serverSeconds returns the time that the processors have given the server.
func serverSeconds(t *testing.T, server *packhorsetest.Server) (seconds float64) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nprocess_cpu_seconds_total ")
	if _, err := fmt.Sscan(rest, &seconds); err != nil {
		t.Fatalf("the metrics have no time of processors: %v", err)
	}
	return seconds
}

// threadSeconds returns the time that the processors have given the thread of the page.
func (c *console) threadSeconds() float64 {
	c.t.Helper()
	var answer struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	c.call(http.MethodPost, "/goog/cdp/execute", map[string]any{"cmd": "Performance.getMetrics", "params": map[string]any{}}, &answer)
	for _, metric := range answer.Metrics {
		if metric.Name == "TaskDuration" {
			return metric.Value
		}
	}
	c.t.Fatal("the browser tells no TaskDuration")
	return 0
}

// times shows a page and returns what it took.
func (c *console) times(server *packhorsetest.Server, log *servedLog, trace, address string) timed {
	c.t.Helper()
	c.where = address
	var page timed
	page.server, page.browser = -serverSeconds(c.t, server), -c.threadSeconds()
	c.run(&page, timePage, address, trace)
	page.server += serverSeconds(c.t, server)
	page.browser += c.threadSeconds()
	for _, request := range log.wait(c.t, trace, page.Requests) {
		page.sum += request.took
		if request.took > page.longest {
			page.longest, page.slowest = request.took, request.path
		}
	}
	c.look(address)
	return page
}

// realPages are pages of a repository by what they show: what is largest and busiest in it.
func realPages(git *oracle.Repository, repo string) [][2]string {
	changed := make(map[string]int) // how many commits changed each file
	var widest string               // the commit of most files
	most := 0
	for part := range strings.SplitSeq(git.Git("-c", "core.quotePath=false", "log", "--no-renames", "--no-merges", "--format=%x00%H", "--name-only", "HEAD"), "\x00") {
		id, names, _ := strings.Cut(part, "\n\n")
		paths := strings.Split(strings.TrimSpace(names), "\n")
		for _, name := range paths {
			changed[name]++
		}
		if len(paths) > most {
			widest, most = strings.TrimSpace(id), len(paths)
		}
	}
	entries := make(map[string]int) // files by folder
	sizes := make(map[string]int)
	for line := range strings.SplitSeq(git.Git("-c", "core.quotePath=false", "ls-tree", "-r", "-l", "HEAD"), "\n") {
		about, name, _ := strings.Cut(line, "\t")
		entries[path.Dir(name)]++
		var size int
		if _, err := fmt.Sscan(strings.Fields(about)[3], &size); err == nil { // "-" for a submodule
			sizes[name] = size
		}
	}
	greatest := func(of map[string]int, in func(string) bool) string {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(of)), func(name string) bool { return !in(name) })
		return slices.MaxFunc(names, func(x, y string) int { return cmp.Compare(of[x], of[y]) })
	}
	present := func(name string) bool { return sizes[name] > 0 }
	busiest := greatest(changed, present)
	page := func(kind string, parameters ...string) string {
		values := url.Values{"repo": {repo}}
		for i := 0; i < len(parameters); i += 2 {
			values.Set(parameters[i], parameters[i+1])
		}
		return "#/" + kind + "?" + values.Encode()
	}
	pages := [][2]string{
		{"repositories", "#/"},
		{"overview", page("repository")},
		{"root", page("tree")},
		{"busiest folder", page("tree", "path", path.Dir(busiest))},
		{"widest folder", page("tree", "path", greatest(entries, func(string) bool { return true }))},
		{"busiest file", page("file", "path", busiest)},
		{"largest file", page("file", "path", greatest(sizes, present))},
		{"history", page("history")},
		{"history of a folder", page("history", "path", path.Dir(busiest))},
		{"history of a file", page("history", "path", busiest)},
		{"commit", page("commit", "ref", git.Git("rev-list", "--no-merges", "-1", "HEAD"))},
		{"widest commit", page("commit", "ref", widest)},
		{"blame", page("blame", "path", busiest)},
		{"search, many", page("search", "q", "return")},
		{"search, none", page("search", "q", "no line has this text")},
		{"events", page("events", "past", "1")},
		{"operations", "#/operations"},
	}
	if releases := release.FindAllString(git.Git("tag", "--sort=-creatordate"), -1); len(releases) > 1 {
		pages = append(pages, [2]string{"compare", page("compare", "ref", releases[0], "base", releases[1])},
			[2]string{"compare, far", page("compare", "ref", releases[0], "base", releases[len(releases)/2])})
	}
	return pages
}

// TestConsoleOfRepository shows a real history: each kind of page of what is largest and busiest in
// it, on a desk, in the dark and on a phone. It logs what the first sight of each page took, and
// the second one.
func TestConsoleOfRepository(t *testing.T) {
	t.Parallel()
	git := oracle.Real(t)
	need(t, "chromium", "chromium-browser")
	axe := axeScript(t)
	// Times are those of a release.
	bin, err := packhorsetest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := newServedLog()
	dir := t.TempDir()
	server := start(t, packhorsetest.Options{Bin: bin, Dir: dir, Flags: []string{"--log-level", "info"}, Log: log.line})
	const repo = "real/history"
	pushAll(t, git.Dir, createRepository(t, server, repo, git.Git("symbolic-ref", "--short", "HEAD")))
	if !odbtest.Shared() { // the server is to have had the time for what it does behind a push
		if out, err := exec.CommandContext(t.Context(), bin, "gc", "--data", filepath.Join(dir, "data")).CombinedOutput(); err != nil {
			t.Fatalf("gc: %v\n%s", err, out)
		}
	}
	c := openConsole(t, server, token(t, server, repo, "--scope", "git:read"), token(t, server, "org", "--scope", "org:read"))
	c.loadAxe(axe)
	c.devtools("Performance.enable", map[string]any{"timeDomain": "threadTicks"})

	pages := realPages(git, repo)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "page\tsight\trequests\tserver sum\tserver max\tof\tusable\twhole\tserver CPU\tpage CPU")
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
	for i, page := range pages {
		for sight := range 2 {
			c.visit("#/signin") // so that each page is drawn anew
			took := c.times(server, log, fmt.Sprintf("%031x%d", i+1, sight+1), page[1])
			_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%.0f ms\t%.0f ms\t%.0f ms\t%.0f ms\n", page[0], sight+1, took.Requests,
				ms(took.sum), ms(took.longest), strings.TrimPrefix(took.slowest, "/api/v1/"), took.Usable, took.Whole,
				1000*took.server, 1000*took.browser)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf(`server sum, max: "took" of its log, which ends when the browser has the answer
usable: the page is drawn; whole: all of its requests are answered and drawn
CPU: of the server, whatever it did; of the thread that draws, to the end
%s`, &table)

	for number, window := range windows {
		c.size(window.width, 900, window.dark)
		for i, page := range pages {
			c.times(server, log, fmt.Sprintf("%031x%d", i+1, 3+number), page[1]) // to the end
			c.access(window.name, page[0], window.dark)
			c.keepPicture("real-" + window.name + "-" + page[0])
		}
	}
}
