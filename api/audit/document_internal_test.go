package audit

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// auditSection returns the section about the audit log of the page for operators.
func auditSection(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Audit log\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("the page has no section about the audit log")
	}
	return section
}

// docs/monitoring.md has a row for each field of a line, and for no other.
func TestDocumentedFields(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(auditSection(t), "\n| Field | Content |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	told := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			told[name[1]] = true
		}
	}
	fields := map[string]bool{"time": true}
	for field := range reflect.TypeFor[Record]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			fields[name] = true
		}
	}
	if !maps.Equal(told, fields) {
		t.Errorf("the page tells of %v, and a line has %v", slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(fields)))
	}
	for field := range reflect.TypeFor[Change]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !strings.Contains(auditSection(t), "`"+name+"`") {
			t.Errorf("the page says nothing of %s", name)
		}
	}
}

// The line on the page is one that a record makes.
func TestDocumentedLine(t *testing.T) {
	t.Parallel()
	_, example, _ := strings.Cut(auditSection(t), "```json\n")
	example, _, found := strings.Cut(example, "```\n")
	if !found {
		t.Fatal("no example")
	}
	var r Record
	var at struct{ Time string }
	if err := json.Unmarshal([]byte(example), &r); err != nil {
		t.Fatal(err)
	}
	err := json.Unmarshal([]byte(example), &at)
	if err == nil {
		r.Time, err = time.Parse(timeLayout, at.Time)
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := r.line(0); err != nil || !bytes.Equal(line, []byte(example)) {
		t.Errorf("%v, got\n%swant\n%s", err, line, example)
	}
}
