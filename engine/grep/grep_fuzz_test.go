package grep_test

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"packhorse/engine/grep"
)

// FuzzGrep: despite all shortcuts, a search returns the lines that match one by one, with their
// context, each once. It never passes over a text with such a line.
func FuzzGrep(f *testing.F) {
	f.Add("horse|mule", "a horse\nno\na mule\n", false, byte(0))
	f.Add("(?i:K)elvin|s+", "\u212aelvin\nno\n\u017f\n", true, byte(0x11))
	f.Add("x{2,}y|^$|[^a]", "xxy\r\n\na\xff\nxy", false, byte(0x23))
	f.Add("kelvins", "a\n\u212aelvin\u017f", true, byte(0))
	f.Add("(?i:horse|MULE)s@", "my HorSES@\n", false, byte(0))
	f.Add("a\nb|\ufffd", "a\nb\n\xff", true, byte(0x30))
	f.Fuzz(func(t *testing.T, pattern, text string, ignoreCase bool, around byte) {
		if len(text) > 1<<12 || len(pattern) > 1<<8 {
			return
		}
		p, err := grep.Compile(pattern, ignoreCase)
		source := pattern
		if ignoreCase {
			source = "(?i)" + pattern
		}
		expr, regexpErr := regexp.Compile(source)
		if err != nil {
			if !errors.Is(err, grep.ErrPattern) {
				t.Fatalf("%q: %v", pattern, err)
			}
			return
		}
		if regexpErr != nil {
			t.Fatalf("%q is no pattern: %v", pattern, regexpErr)
		}
		before, after := int(around>>4), int(around&0xf)
		var want []grep.Line
		if !strings.Contains(text, "\x00") && text != "" {
			lines := bytes.Split(bytes.TrimSuffix([]byte(text), []byte("\n")), []byte("\n"))
			last := -1 // the last line that some match wants
			for i, line := range lines {
				matches := expr.Match(line)
				if matches {
					last = i + after
				}
				wanted := i <= last || slices.ContainsFunc(lines[i:min(i+before+1, len(lines))], expr.Match)
				if wanted {
					want = append(want, grep.Line{Number: int64(i + 1), Text: string(line), Match: matches})
				}
			}
		}
		if len(want) > 0 && !p.MayMatch([]byte(text)) {
			t.Fatalf("%q would not be looked for in %q", pattern, text)
		}
		options := grep.Options{Pattern: p, Before: before, After: after}
		got, more, err := grep.Text(t.Context(), []byte(text), options)
		if err != nil || more || !slices.Equal(got, want) {
			t.Fatalf("%q in %q: %v, %v\ngot  %+v\nwant %+v", pattern, text, more, err, got, want)
		}
		for next := int64(0); len(want) > 0; want = want[1:] { // the same, a line at a time
			options.LinesMax, options.From.Line = 1, next
			got, more, err := grep.Text(t.Context(), []byte(text), options)
			if err != nil || more != (len(want) > 1) || !slices.Equal(got, want[:1]) {
				t.Fatalf("%q in %q after line %d: %+v, %v, %v", pattern, text, next, got, more, err)
			}
			next = got[0].Number
		}
	})
}
