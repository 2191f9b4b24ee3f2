package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgress tells of phases with and without a total, by a clock of the test.
func TestProgress(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	p := &progress{out: &out, now: func() time.Time { return clock }}
	for _, test := range []struct {
		later time.Duration
		step  step
		want  string // "" if nothing is printed
	}{
		{0, step{phase: "one", done: 5, total: 200}, "one: 5 of 200 (2 %)"},
		{100 * time.Millisecond, step{phase: "one", done: 50, total: 200}, ""},
		{400 * time.Millisecond, step{phase: "one", done: 51, total: 200}, "one: 51 of 200 (25 %)"},
		{1500 * time.Millisecond, step{phase: "one", done: 105, total: 200}, "one: 105 of 200 (52 %), 50/s, 1 second left"},
		{8 * time.Second, step{phase: "one", done: 200, total: 200}, "one: 200 of 200 (100 %), 19/s"},
		{time.Second, step{phase: "one", done: 300, total: 200}, "one: 300 of 200 (100 %), 26/s"},
		{time.Second, step{phase: "two", text: "a and b", done: 1 << 20, unit: bytesOf}, "a and b: 1.0 MiB"},
		{2 * time.Second, step{phase: "two", text: "a and b", done: 5 << 20, unit: bytesOf}, "a and b: 5.0 MiB, 2.0 MiB/s"},
		{
			time.Second,
			step{phase: "two", done: 5 << 20, total: 1 << 40, unit: bytesOf},
			"two: 5.0 MiB of 1.0 TiB (0 %), 1.3 MiB/s, 9 days left",
		},
		{time.Second, step{phase: "two", done: 3}, "two: 3"}, // it begins anew
		{time.Second, step{phase: "two", done: 3, total: 10}, "two: 3 of 10 (30 %)"},
	} {
		clock = clock.Add(test.later)
		out.Reset()
		p.tell(test.step)
		want := test.want
		if want != "" {
			want = progressMark + want + "\n"
		}
		if out.String() != want {
			t.Errorf("%+v: %q, want %q", test.step, out.String(), want)
		}
	}
	if strings.Contains(out.String(), "NaN") {
		t.Error(out.String())
	}
}
