package odbtest

import (
	"testing"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Depth returns how many deltas lie between an object and the whole base of its chain.
func Depth(tb testing.TB, v *odb.View, id object.ID) int {
	tb.Helper()
	for depth := 0; ; depth++ {
		e, err := v.Entry(tb.Context(), id)
		Must(tb, err)
		if !e.Delta() {
			return depth
		}
		id = e.Base
	}
}

// SummaryCount returns how many segments a view has, and how many of them have a summary.
func SummaryCount(tb testing.TB, v *odb.View) (segments, summaries int) {
	tb.Helper()
	for _, l := range v.Segments() {
		g, err := l.Acquire(tb.Context())
		Must(tb, err)
		_, ok, err := g.Summary(tb.Context())
		l.Release(g)
		Must(tb, err)
		segments++
		if ok {
			summaries++
		}
	}
	return segments, summaries
}
