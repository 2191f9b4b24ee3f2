//go:build clients

package clienttest_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/loopback"
	"packhorse/odb/odbtest"
)

// axeVersion is the release of axe-core, the checker of accessibility, that judges the pages.
const axeVersion = "4.14.1"

// consolePage is what a test looks at in a page of the console.
type consolePage struct {
	Title, Heading, Text string
	Focus                string   // the name of the element that has it
	Links                []string // addresses of the console in it
	Strange              []string // elements and attributes that the console does not make
	Raw                  bool     // a character that should be a sign is in the text
	Wider                int      // by how many pixels the page can be scrolled sideways
}

// readPage waits until a page is drawn, and describes it. What may be in a page is listed here: all
// else would have come from a repository.
const readPage = `
const main = document.getElementById("main");
const drawn = () => !document.querySelector("[aria-busy]") && main.querySelector("h1");
if (!drawn()) await new Promise((done) => {
  const look = new MutationObserver(() => { if (drawn()) { look.disconnect(); done(); } });
  look.observe(main, { attributes: true, childList: true, subtree: true });
});
const known = new Set(("a bdi body button circle code col colgroup dd details div dl dt form h1 h2 h3 head header html " +
  "img input label li link datalist main meta nav ol option p path pre script section span summary svg table tbody td " +
  "textarea th thead time title tr ul noscript").split(" "));
const strange = [];
for (const element of document.querySelectorAll("*")) {
  const name = element.localName;
  if (!known.has(name)) strange.push(name);
  if ((name === "img" || name === "script") && !element.src.startsWith(location.origin + "/console/")) strange.push(element.src);
  if (name === "a" && !/^#(\/|main$)/.test(element.getAttribute("href"))) strange.push(element.getAttribute("href"));
  for (const { name: attribute } of element.attributes) if (/^(on|style|src(?!$)|action)/.test(attribute)) strange.push(attribute);
}
for (const { name } of performance.getEntriesByType("resource")) if (!name.startsWith(location.origin + "/")) strange.push(name);
const text = document.body.textContent;
const root = document.documentElement;
return {
  Title: document.title, Heading: main.querySelector("h1").textContent, Text: text,
  Focus: document.activeElement.localName,
  Links: [...document.querySelectorAll("a")].map((a) => a.getAttribute("href")).filter((to) => to.startsWith("#/")),
  Strange: strange,
  Raw: /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/.test(
    [text, document.title, ...[...document.querySelectorAll("[title], [aria-label]")].map((e) => e.title + e.ariaLabel)].join()),
  Wider: root.scrollWidth - root.clientWidth,
};`

// console is a browser at the console of a server.
type console struct {
	*browser
	url string
}

// visit shows the page of an address, and fails the test for what no page may have.
func (c *console) visit(address string) consolePage {
	c.t.Helper()
	c.turnTo(address)
	page := c.look(address)
	if page.Focus == "body" {
		c.t.Errorf("%s: the focus is nowhere", address)
	}
	return page
}

// turnTo begins to show the page of an address, anew if it is shown already.
func (c *console) turnTo(address string) {
	c.t.Helper()
	c.where = address
	c.run(nil, `document.getElementById("main").setAttribute("aria-busy", "true");
		if (location.hash === args[0]) dispatchEvent(new HashChangeEvent("hashchange")); else location.hash = args[0];`, address)
}

// look reads the page that is shown.
func (c *console) look(address string) consolePage {
	c.t.Helper()
	if c.hasAlert() {
		c.t.Fatalf("%s: a dialog was opened", address)
	}
	var page consolePage
	c.run(&page, readPage)
	if len(page.Strange) > 0 {
		c.t.Errorf("%s: the page has %q", address, page.Strange)
	}
	if page.Raw {
		c.t.Errorf("%s: a control character is in the text as it is", address)
	}
	if !strings.HasSuffix(page.Title, " · Packhorse") || page.Heading == "" {
		c.t.Errorf("%s: title %q, heading %q", address, page.Title, page.Heading)
	}
	if page.Wider > 0 {
		c.t.Errorf("%s: the page can be scrolled sideways by %d pixels", address, page.Wider)
	}
	for _, message := range c.log() {
		// A name that is no UTF-8 cannot be asked for, and the page says so.
		if strings.Contains(address, "%EF%BF%BD") && strings.Contains(message, "404") &&
			strings.Contains(page.Text, "The name is not UTF-8") {
			continue
		}
		c.t.Errorf("%s: the browser logged %s", address, message)
	}
	return page
}

var oldRevision = regexp.MustCompile(`^[0-9a-f]{40}$`)

// crawl visits the pages that links lead to, each name of the hostile repository among them, and
// returns their addresses.
func (c *console) crawl(from ...string) []string {
	c.t.Helper()
	seen := make(map[string]bool)
	for i := 0; i < len(from); i++ {
		if seen[from[i]] {
			continue
		}
		seen[from[i]] = true
		if seen := len(seen); seen > 200 {
			c.t.Fatalf("more than %d pages", seen)
		}
		for _, link := range c.visit(from[i]).Links {
			_, query, _ := strings.Cut(link, "?")
			values, err := url.ParseQuery(query)
			if err != nil {
				c.t.Errorf("%s: %v", link, err)
			}
			kind, ref := strings.TrimPrefix(strings.Split(link, "?")[0], "#/"), values.Get("ref")
			switch {
			case values.Has("line"): // the same page
				continue
			case oldRevision.MatchString(ref) && (kind != "commit" || values.Get("repo") != "hostile"): // much the same
				continue
			case values.Has("path") && (kind == "blame" || kind == "history") && !strings.Contains(link, "script"):
				continue
			case values.Has("path") && ref != "" && (kind != "file" || !strings.HasPrefix(ref, "refs/heads/<")):
				continue
			}
			from = append(from, link)
		}
	}
	slices.Sort(from)
	return slices.Compact(from)
}

// openConsole signs in as a person does: with a token that is typed into the form.
func openConsole(t *testing.T, server *packhorsetest.Server, tokens ...string) *console {
	t.Helper()
	c := &console{openBrowser(t), server.URL + "/console"}
	c.size(1280, 900, false)
	c.open(c.url)
	for _, token := range tokens {
		c.visit("#/signin")
		c.keys(token + "\ue004") // tab
		c.run(nil, `document.getElementById("main").setAttribute("aria-busy", "true")`)
		c.keys("\ue007") // enter
		if page := c.look("after signing in"); strings.Contains(page.Text, "refuses the token") {
			t.Fatalf("signing in: %s", page.Text)
		}
	}
	return c
}

// worlds are a server with a plain repository and a hostile one, and tokens for both and for their
// organization.
func worlds(t *testing.T) (*packhorsetest.Server, []string) {
	t.Helper()
	server := start(t, packhorsetest.Options{})
	pushAll(t, seed(t), createRepository(t, server, "team/plain"))
	pushAll(t, hostile(t), createRepository(t, server, "hostile"))
	createRepository(t, server, "empty")
	var tokens []string
	for _, repo := range []string{"team/plain", "hostile", "empty"} {
		tokens = append(tokens, token(t, server, repo, "--scope", "git:read"))
	}
	return server, append(tokens, token(t, server, "org", "--scope", "org:read"))
}

// TestConsolePages walks through all pages of a plain and of a hostile repository.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	c := openConsole(t, server, tokens...)
	var stored string
	c.run(&stored, `return JSON.stringify([document.cookie, {...localStorage}, location.href, Object.keys(sessionStorage)])`)
	if want := fmt.Sprintf(`["",{},%q,["packhorse.tokens"]]`, c.url+"#/"); stored != want {
		t.Errorf("the tab keeps %s, want %s", stored, want)
	}

	all := c.crawl("#/")
	kinds := make(map[string]int)
	for _, address := range all {
		kind, _, _ := strings.Cut(address, "?")
		kinds[kind]++
	}
	for _, kind := range []string{
		"repository", "tree", "file", "blame", "history", "commit", "compare", "search", "events", "operations", "signin",
	} {
		if kinds["#/"+kind] == 0 {
			t.Errorf("no link leads to a page %s: %v", kind, kinds)
		}
	}
	t.Logf("%d pages: %v", len(all), kinds)

	hostile := "repo=hostile"
	shows := map[string][]string{
		"#/tree?" + hostile:    {"<script>alert(1)<_script>", "rtl⟨U+202E⟩gnp.exe", "esc⟨ESC⟩[31mred⟨BEL⟩.txt", "line⟨LF⟩feed"},
		"#/history?" + hostile: {"<b>second</b> ⟨U+202E⟩", markup, "&lt;b&gt;⟨U+202E⟩evil⟨ESC⟩[31m"},
		"#/file?" + url.Values{"repo": {"hostile"}, "path": {"esc\x1b[31mred\x07.txt"}}.Encode(): {"⟨ESC⟩[2J⟨ESC⟩]0;title⟨BEL⟩ red"},
		"#/search?" + hostile + "&q=alert":                {"<svg onload=alert(3)>"},
		"#/tree?repo=empty":                               {"no commit yet"},
		"#/repository?repo=none":                          {"packhorse token --org acme --key KEY.pem --repo none"},
		"#/repository?repo=" + url.QueryEscape("x; rm x"): {"Tokens"},
		"#/nowhere": {"No such page"},
		"#/file?repo=team%2Fplain&path=run.sh&line=2":     {"echo run"},
		"#/compare?repo=team%2Fplain&ref=topic&base=main": {"No file differs"},
		"#/commit?repo=team%2Fplain&ref=topic":            {"topic.txt", "+1"},
	}
	for address, texts := range shows {
		page := c.visit(address)
		for _, text := range texts {
			if !strings.Contains(page.Text, text) {
				t.Errorf("%s does not show %q", address, text)
			}
		}
	}
	if page := c.visit("#/repository?repo=" + url.QueryEscape("x; rm x")); strings.Contains(page.Text, "packhorse token") {
		t.Error("a name that a shell would run is put into a command")
	}
	// The button "back" leads to the page before, with its title.
	before := c.visit("#/tree?repo=team%2Fplain")
	c.visit("#/tree?repo=team%2Fplain&path=src")
	c.run(nil, `document.getElementById("main").setAttribute("aria-busy", "true"); history.back();`)
	if back := c.look("back"); back.Title != before.Title {
		t.Errorf("back leads to %q, want %q", back.Title, before.Title)
	}
	// Signing out forgets the tokens.
	c.run(nil, `document.getElementById("main").setAttribute("aria-busy", "true");
		[...document.querySelectorAll("button")].find((b) => b.textContent === "Sign out").click();`)
	c.look("after signing out")
	c.run(&stored, `return JSON.stringify({...sessionStorage})`)
	if stored != "{}" {
		t.Errorf("after signing out the tab keeps %s", stored)
	}
}

// TestConsoleIsFresh changes a file that had been as it was for decades, which a browser takes for
// a reason not to ask again, and sees the change.
func TestConsoleIsFresh(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	c := openConsole(t, server, tokens...)
	const address = "#/file?repo=hostile&path=constructor"
	if page := c.visit(address); strings.Contains(page.Text, "changed now") {
		t.Fatalf("the file is %q", page.Text)
	}
	body := strings.NewReader(`{"metadata": {"target_branch": "main", "commit_message": "change", "author": ` +
		`{"name": "a", "email": "a@example.com"}, "files": [{"path": "constructor", "content_id": "1"}]}}` + "\n" +
		`{"blob_chunk": {"content_id": "1", "data": "Y2hhbmdlZCBub3cK", "eof": true}}` + "\n")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/repos/commit-pack", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token(t, server, "hostile"))
	request.Header.Set("Content-Type", "application/x-ndjson")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%s, %v", response.Status, err)
	}
	c.visit("#/")
	if page := c.visit(address); !strings.Contains(page.Text, "changed now") {
		t.Error("the page shows the file as it was")
	}
}

// TestConsoleEvents sees a write while the page of events is open.
func TestConsoleEvents(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	c := openConsole(t, server, tokens...)
	for _, address := range []string{"#/events", "#/events?repo=team%2Fplain"} {
		c.visit(address)
		c.run(nil, `const live = document.querySelector(".live");
			if (live.textContent !== "live") await new Promise((done) => new MutationObserver((_, look) => {
				if (live.textContent === "live") { look.disconnect(); done(); }
			}).observe(live, { childList: true, characterData: true, subtree: true }));`)
		name := "made/" + strings.ToLower(strings.Trim(strings.NewReplacer("?", "", "%", "", "/", "", "=", "").Replace(address), "#"))
		body := strings.NewReader(fmt.Sprintf(`{"name": %q, "ref": "main"}`, name))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/repos/tags", body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token(t, server, "team/plain"))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
			t.Fatalf("%s, %v", response.Status, err)
		}
		var text string
		c.run(&text, `const list = document.querySelector("[role=log] ol");
			if (!list.childElementCount) await new Promise((done) => new MutationObserver((_, look) => {
				look.disconnect(); done();
			}).observe(list, { childList: true }));
			return list.textContent;`)
		if !strings.Contains(text, name+" created at") {
			t.Errorf("%s shows %q", address, text)
		}
	}
}

// TestConsoleOperators shows the page for operators at the listener of --admin-listen, and says at
// the public one where it is.
func TestConsoleOperators(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	admin := loopback.FreeAddress(t)
	server := start(t, packhorsetest.Options{Flags: []string{"--admin-listen", admin}})
	c := &console{openBrowser(t), server.URL + "/console"}
	c.size(1280, 900, false)
	c.open(c.url)
	c.run(nil, `document.getElementById("main").setAttribute("aria-busy", "true"); location.hash = "#/operations";`)
	var page consolePage
	c.run(&page, readPage)
	if !strings.Contains(page.Text, "not served at this address") {
		t.Errorf("the public listener shows %q", page.Text)
	}
	if log := c.log(); len(log) != 1 || !strings.Contains(log[0], "/metrics") {
		t.Errorf("the browser logged %q, want the missing metrics alone", log)
	}
	c.open("http://" + admin + "/console#/operations")
	page = c.look("operations")
	if !strings.Contains(page.Text, "Free disk") || !strings.Contains(page.Text, "ready") {
		t.Errorf("the listener for operators shows %q", page.Text)
	}
	var seen []string
	c.run(&seen, `return [...document.querySelectorAll("h2, h3")].filter((e) => e.offsetParent).map((e) => e.textContent);`)
	for _, name := range []string{"Database and bucket", "Round trips", "99th percentile of these", "Among the servers", "Duties"} {
		if slices.Contains(seen, name) != odbtest.Shared() {
			t.Errorf("over shared stores %t, %q is in %q", odbtest.Shared(), name, seen)
		}
	}
}

// axeScript is the script of axe-core, from the registry of npm.
func axeScript(t *testing.T) string {
	t.Helper()
	npm, dir := need(t, "npm"), t.TempDir()
	if out, err := try(t, dir, nil, npm, "pack", "--silent", "axe-core@"+axeVersion); err != nil {
		t.Skipf("skipped: npm pack axe-core: %v\n%s", err, out)
	}
	command(t, dir, nil, "tar", "-xzf", "axe-core-"+axeVersion+".tgz", "package/axe.min.js")
	script, err := os.ReadFile(filepath.Join(dir, "package", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// TestConsoleAccess holds each kind of page against axe-core, light and dark, on a desk and on a
// phone. PACKHORSE_PICTURES names a folder for pictures of them.
func TestConsoleAccess(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	axe := axeScript(t)
	server, tokens := worlds(t)
	c := openConsole(t, server, tokens...)
	c.loadAxe(axe)
	pages := map[string]string{
		"repositories": "#/", "overview": "#/repository?repo=team%2Fplain", "tree": "#/tree?repo=hostile",
		"file": "#/file?repo=hostile&path=__proto__.js", "blame": "#/blame?repo=team%2Fplain&path=README.md",
		"history": "#/history?repo=team%2Fplain", "commit": "#/commit?repo=team%2Fplain&ref=main~1",
		"hostile": "#/commit?repo=hostile&ref=main~1", "compare": "#/compare?repo=team%2Fplain&ref=main&base=main~3",
		"search": "#/search?repo=team%2Fplain&q=line+3", "events": "#/events?repo=team%2Fplain&past=1",
		"operations": "#/operations", "tokens": "#/signin",
	}
	for _, window := range windows {
		c.size(window.width, 900, window.dark)
		for name, address := range pages {
			c.visit(address)
			c.access(window.name, name, window.dark)
			c.keepPicture(window.name + "-" + name)
		}
	}
}

// windows are where pages are looked at.
var windows = []struct {
	name  string
	width int
	dark  bool
}{{"desk", 1280, false}, {"dark", 1280, true}, {"phone", 390, false}}

// loadAxe puts the script of axe-core into the page.
func (c *console) loadAxe(script string) {
	c.t.Helper()
	c.call(http.MethodPost, "/execute/sync", map[string]any{"script": script, "args": []any{}}, nil)
}

// access holds the page that is shown against axe-core; of contrasts only when it is shown again in
// other colours. Serious findings are errors.
func (c *console) access(window, name string, onlyContrast bool) {
	c.t.Helper()
	var found []struct {
		ID, Impact, Help string
		Nodes            []string
	}
	rules := map[string]any{}
	if onlyContrast {
		rules["runOnly"] = []string{"color-contrast"} // all that differs
	}
	c.run(&found, `const { violations } = await axe.run(document, args[0]);
		return violations.map((v) => ({ ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.map((n) => n.html) }));`, rules)
	for _, f := range found {
		if f.Impact == "serious" || f.Impact == "critical" {
			c.t.Errorf("%s, %s: %s (%s): %.300q", window, name, f.Help, f.ID, f.Nodes)
		} else {
			c.t.Logf("%s, %s: %s: %s: %.200q", window, name, cmp.Or(f.Impact, "no impact"), f.Help, f.Nodes)
		}
	}
}

// keepPicture writes a picture of the window into the folder PACKHORSE_PICTURES, if one is named.
func (c *console) keepPicture(name string) {
	c.t.Helper()
	dir := os.Getenv("PACKHORSE_PICTURES")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), c.picture(), 0o600); err != nil {
		c.t.Fatal(err)
	}
}
