package console_test

import (
	"math"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"packhorse/api/console"
)

// files are the texts of all files by path.
func files(t *testing.T) map[string]string {
	t.Helper()
	all, err := console.Files()
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, f := range all {
		texts[f.Path] = string(f.Body)
	}
	return texts
}

// No script can make markup of a text, run a text, or keep a token beyond the tab. Only dom.js
// makes elements.
func TestScriptsAreHarmless(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|setHTML|document\.write|DOMParser|srcdoc|` +
		`createContextualFragment|\beval\(|\bFunction\(|setTimeout\(["'\x60]|javascript:|localStorage|indexedDB|\.cookie|` +
		`document\.domain|postMessage|import\(|XMLHttpRequest|new EventSource|WebSocket|sendBeacon`)
	makes := regexp.MustCompile(`createElement|createElementNS|\.cloneNode|<template`)
	remote := regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z]{2,}`)
	for name, text := range files(t) {
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s has %s", name, found)
		}
		if found := makes.FindString(text); found != "" && name != console.Path+"/dom.js" {
			t.Errorf("%s has %s, which only dom.js may", name, found)
		}
		for _, found := range remote.FindAllString(text, -1) {
			if found != "http://www.w3.org" { // the name space of SVG, which nobody fetches
				t.Errorf("%s names another server: %s", name, found)
			}
		}
	}
}

// The page has no inline script, style or handler, which its policy would refuse.
func TestPageHasNothingInline(t *testing.T) {
	t.Parallel()
	page := files(t)[console.Path]
	inline := regexp.MustCompile(`<style|<script(?:[^>]*)>[^<]|\sstyle=|\son[a-z]+=`)
	if found := inline.FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
}

// Every file that the page and the scripts name is there, and none is there in vain.
func TestFilesAreLinked(t *testing.T) {
	t.Parallel()
	texts := files(t)
	used := map[string]bool{console.Path: true}
	linked := regexp.MustCompile(`(?:href|src)="(console/[^"]+)"`)
	for _, found := range linked.FindAllStringSubmatch(texts[console.Path], -1) {
		used["/"+found[1]] = true
	}
	imported := regexp.MustCompile(`(?m)^import [^;"]* from "(\.[^"]+)";$`)
	for name, text := range texts {
		for _, found := range imported.FindAllStringSubmatch(text, -1) {
			used[path.Join(path.Dir(name), found[1])] = true
		}
		if begun := strings.Count("\n"+text, "\nimport "); strings.HasSuffix(name, ".js") &&
			begun != len(imported.FindAllString(text, -1)) {
			t.Errorf("%s has %d imports, not all of them of a file", name, begun)
		}
	}
	for name := range used {
		if _, ok := texts[name]; !ok {
			t.Errorf("%s is named and not there", name)
		}
	}
	for name := range texts {
		if !used[name] {
			t.Errorf("%s is there and not named", name)
		}
	}
}

// The page for operators asks for metrics that there are: docs/monitoring.md lists them, and a test
// of the server compares.
func TestMetricsAreKnown(t *testing.T) {
	t.Parallel()
	listed, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`packhorse_[a-z_]+`).FindAllString(files(t)[console.Path+"/pages/operations.js"], -1)
	for _, name := range asked {
		if !strings.Contains(string(listed), "| `"+strings.TrimSuffix(name, "_count")+"` |") {
			t.Errorf("no document lists %s", name)
		}
	}
	if len(asked) < 20 {
		t.Errorf("the page asks for %q only", asked)
	}
}

// Code is no wider than 120 columns, as the rest of the project.
func TestWidths(t *testing.T) {
	t.Parallel()
	for name, text := range files(t) {
		if strings.HasSuffix(name, ".svg") {
			continue
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			if size := len([]rune(strings.TrimSuffix(line, "\n"))); size > 120 {
				t.Errorf("%s:%d: %d columns", name, number, size)
			}
		}
	}
}

// Text is readable on what may be behind it, light and dark: a contrast of at least 4.5 (WCAG 2,
// AA). On what has changed within a line all text is ink.
func TestContrasts(t *testing.T) {
	t.Parallel()
	texts := files(t)
	if !regexp.MustCompile(`(?s)\.add \.changed,\s*\.del \.changed \{\s*color: var\(--ink\)`).MatchString(texts[console.Path+"/code.css"]) {
		t.Error("what has changed is not ink")
	}
	light, dark, _ := strings.Cut(texts[console.Path+"/colors.css"], "@media")
	colour := regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6})`)
	for theme, text := range map[string]string{"light": light, "dark": dark} {
		colours := make(map[string]float64) // relative luminances
		for _, found := range colour.FindAllStringSubmatch(text, -1) {
			var channels [3]float64
			for i := range channels {
				n, err := strconv.ParseUint(found[2][2*i:2*i+2], 16, 8)
				if err != nil {
					t.Fatal(err)
				}
				channels[i] = float64(n) / 255 / 12.92
				if n > 10 {
					channels[i] = math.Pow((float64(n)/255+0.055)/1.055, 2.4)
				}
			}
			colours[found[1]] = 0.2126*channels[0] + 0.7152*channels[1] + 0.0722*channels[2]
		}
		for back, fronts := range map[string]string{
			"paper": "ink dim accent good warn bad", "panel": "ink dim accent comment string number keyword",
			"sunk": "ink dim accent good warn bad", "accent-soft": "ink accent comment string number keyword",
			"add": "ink comment string number keyword", "del": "ink comment string number keyword",
			"add-strong": "ink", "del-strong": "ink",
		} {
			for front := range strings.FieldsSeq(fronts) {
				lighter, darker := max(colours[front], colours[back]), min(colours[front], colours[back])
				if contrast := (lighter + 0.05) / (darker + 0.05); contrast < 4.5 {
					t.Errorf("%s: %s on %s has a contrast of %.2f", theme, front, back, contrast)
				}
			}
		}
	}
}
