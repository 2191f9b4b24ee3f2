package patch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// numbered is a text of so many lines.
func numbered(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	return text.String()
}

// placeAll applies hunks to an image, each at the line where it is wanted.
func placeAll(m *image, hunks []string, wanted []int) error {
	for i, hunk := range hunks {
		e := newEdit([]byte(hunk))
		at, gone, ok, err := m.find(context.Background(), e, wanted[i], false, false)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("hunk %d has no place", i)
		}
		m.replace(at, gone, e)
	}
	return nil
}

// TestImageWork holds that what hunks cost is bounded, in whatever order they come and however long
// their lines are.
func TestImageWork(t *testing.T) {
	t.Parallel()
	const lines, step = 40_000, 8
	text := numbered(lines)
	var hunks []string
	var wanted []int
	for i := step; i < lines; i += step {
		hunks = append(hunks, fmt.Sprintf(" line %d\n-line %d\n+changed\n line %d\n", i-1, i, i+1))
		wanted = append(wanted, i-1)
	}
	backwards := slices.Clone(hunks)
	slices.Reverse(backwards)
	wantedBackwards := slices.Clone(wanted)
	slices.Reverse(wantedBackwards)
	long := strings.Repeat("x", len(text)/10)
	ragged := "-" + long + "\n-y\n\\ No newline at end of file\n+z\n"
	tests := map[string]struct {
		hunks  []string
		wanted []int
		err    error
	}{
		"in order":                      {hunks, wanted, nil},
		"backwards":                     {backwards, wantedBackwards, ErrTooLarge},
		"a long line that is not there": {[]string{ragged}, []int{0}, ErrTooLarge},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newImage([]byte(text), int64(20*len(text)))
			if err := placeAll(m, test.hunks, test.wanted); !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
		})
	}
}
