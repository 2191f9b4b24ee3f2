//go:build clients

package clienttest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Keys of WebDriver that have no sign.
const (
	keyTab   = "\ue004"
	keyEnter = "\ue007"
	keyShift = "\ue008"
	keyRight = "\ue014"
)

// press presses a key several times, as a keyboard does, while others are held down.
func (c *console) press(key string, times int, held ...string) {
	c.t.Helper()
	type action map[string]string
	var actions []action
	for _, other := range held {
		actions = append(actions, action{"type": "keyDown", "value": other})
	}
	for range times {
		actions = append(actions, action{"type": "keyDown", "value": key}, action{"type": "keyUp", "value": key})
	}
	for _, other := range slices.Backward(held) {
		actions = append(actions, action{"type": "keyUp", "value": other})
	}
	c.call(http.MethodPost, "/actions", map[string]any{
		"actions": []any{map[string]any{"type": "key", "id": "keyboard", "actions": actions}},
	}, nil)
}

// listControls keeps what can be used in a page, in the order of its markup, which is the order of
// reading, and notes which of it gets the focus.
const listControls = `
window.controls = [...document.querySelectorAll("a[href], button, input, textarea, select, summary, [tabindex='0']")]
  .filter((e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0);
window.stops = [];
addEventListener("focusin", ({ target }) => {
  const { outlineStyle, outlineWidth } = getComputedStyle(target);
  window.stops.push({
    At: window.controls.indexOf(target), Is: target.outerHTML.slice(0, 200),
    Seen: outlineStyle !== "none" && parseFloat(outlineWidth) >= 1,
  });
});
return window.controls.length;`

// stop is an element that got the focus.
type stop struct {
	At   int // in the order of reading; -1 for what is no control
	Is   string
	Seen bool // it has an outline
}

// TestConsoleTabOrder walks through the controls of each kind of page by the key Tab, and back.
func TestConsoleTabOrder(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	c := openConsole(t, server, tokens...)
	for _, address := range []string{
		"#/", "#/repository?repo=team%2Fplain", "#/tree?repo=hostile", "#/file?repo=team%2Fplain&path=README.md",
		"#/blame?repo=team%2Fplain&path=README.md", "#/history?repo=hostile", "#/commit?repo=hostile&ref=main",
		"#/compare?repo=team%2Fplain&ref=topic&base=main~4", "#/search?repo=team%2Fplain&q=version", "#/events?repo=hostile",
		"#/operations",
	} {
		c.where = address
		c.open("about:blank")
		c.open(c.url + address) // the focus is at the beginning
		c.look(address)
		var count int
		c.run(&count, listControls)
		for _, way := range []string{"forth", "back"} {
			want := make([]int, 0, count)
			for i := range count {
				want = append(want, i)
			}
			if way == "forth" {
				c.press(keyTab, count)
			} else {
				slices.Reverse(want)
				want = want[1:] // the last one has the focus
				c.press(keyTab, count-1, keyShift)
			}
			var stops []stop
			c.run(&stops, `return window.stops.splice(0)`)
			var got []int
			for _, s := range stops {
				got = append(got, s.At)
				if s.At < 0 {
					t.Errorf("%s, %s: a stop at %s", address, way, s.Is)
				} else if !s.Seen {
					t.Errorf("%s, %s: nobody sees that the focus is at %s", address, way, s.Is)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: the stops are %v, want %v", address, way, got, want)
			}
		}
		if count < 5 {
			t.Errorf("%s has %d controls", address, count)
		}
	}
}

// TestConsoleKeys does with the keyboard alone what the pages offer.
func TestConsoleKeys(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	c := openConsole(t, server, tokens...)
	focus := func(selector string) {
		t.Helper()
		c.run(nil, `const e = document.querySelector(args[0]); if (!e) throw new Error("no " + args[0]); e.focus();`, selector)
	}
	// leads waits for the page that a key leads to.
	leads := func(key, to string) {
		t.Helper()
		c.run(nil, `document.getElementById("main").setAttribute("aria-busy", "true")`)
		c.press(key, 1)
		page := c.look(to)
		var hash string
		c.run(&hash, `return location.hash`)
		if hash != to || page.Focus != "h1" {
			t.Errorf("the key leads to %s with the focus on %s, want %s on its heading", hash, page.Focus, to)
		}
	}
	is := func(what, script string) {
		t.Helper()
		var text string
		c.run(&text, "return String("+script+")")
		if text != "true" {
			t.Errorf("%s: %s is %s", what, script, text)
		}
	}

	c.visit("#/")
	focus(".skip")
	c.press(keyEnter, 1)
	is("the link to the content", `document.activeElement.id === "main"`)
	focus("main tbody a")
	leads(keyEnter, "#/repository?repo=team%2Fplain")

	c.visit("#/tree?repo=team%2Fplain")
	focus("#ref")
	c.keys("topic")
	leads(keyEnter, "#/tree?repo=team%2Fplain&ref=topic")

	// A difference is closed and opened, and the list of files leads to it.
	c.visit("#/commit?repo=team%2Fplain&ref=main~2")
	for _, open := range []string{"false", "true"} {
		focus("details.file summary")
		c.press(keyEnter, 1)
		is("a file of a diff", `document.querySelector("details.file").open === `+open)
	}
	focus(".changed-files summary")
	c.press(keyEnter, 1)
	focus(".changed-files button")
	c.press(keyEnter, 1)
	is("the list of files", `document.activeElement === document.querySelector("details.file summary")`)

	// What is wider than its frame is scrolled by the arrows.
	c.visit("#/file?repo=hostile&path=" + strings.Repeat("long", 50) + ".js")
	focus(".code")
	c.press(keyRight, 3)
	c.run(nil, `const code = document.querySelector(".code");
		if (code.scrollLeft === 0) await new Promise((done) => code.addEventListener("scroll", done, { once: true }));`)

	c.visit("#/search?repo=team%2Fplain")
	is("the page of the search", `document.activeElement.id === "q"`)
	focus("#nocase")
	c.press(" ", 1)
	is("the box", `document.querySelector("#nocase").checked`)
	focus("#q")
	c.keys("LINE 39")
	leads(keyEnter, "#/search?repo=team%2Fplain&q=LINE+39&nocase=true")
	is("what is spoken", `/^\d+ files? found$/.test(document.getElementById("spoken").textContent)`)

	// The button below a listing that was cut gives the focus to what comes before it, once all is
	// there.
	c.visit("#/file?repo=hostile&path=many")
	for more := true; more; {
		focus(".more")
		c.press(keyEnter, 1)
		c.run(&more, `const button = document.querySelector(".more");
			if (document.getElementById("spoken").textContent === (window.said ?? "")) await new Promise((done) =>
				new MutationObserver((_, look) => { look.disconnect(); done(); }).observe(document.getElementById("spoken"), { childList: true }));
			window.said = document.getElementById("spoken").textContent;
			return !button.hidden;`)
	}
	is("all lines", `document.querySelectorAll(".code tbody tr").length === 4000`)
	is("the focus", `document.activeElement.className === "code"`)
}

// TestConsolePhone walks through all pages of a plain and of a hostile repository on a phone.
func TestConsolePhone(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server, tokens := worlds(t)
	c := openConsole(t, server, tokens...)
	c.size(390, 844, false)
	if all := c.crawl("#/"); len(all) < 50 {
		t.Errorf("%d pages only: %q", len(all), all)
	}
}
