package grep_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"packhorse/engine/grep"
)

// TestLinesOfAutomata holds the lines that patterns without a literal match against package regexp:
// what each of them decides at the beginning and the end of a line, at words, and beyond ASCII; and
// one that has more states than an automaton may.
func TestLinesOfAutomata(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	var text strings.Builder
	for range 2000 {
		for range random.IntN(60) {
			text.WriteString([]string{
				"a", "b", "a", "b", "A", "_", "7", " ", "\r", "\u00e9", "\u212a", "\u017f", "\xff", "\xe2\x84", "\U0001f40e",
			}[random.IntN(15)])
		}
		if random.IntN(20) > 0 {
			text.WriteByte('\n')
		}
	}
	for range 5000 {
		text.WriteByte("ab"[random.IntN(2)])
	}
	all := text.String()
	for pattern, costly := range map[string]bool{
		`^[ab]`: false, `[ab]$`: false, `^[ab]*$`: false, `^$`: false, `$^`: false, `^$|^[ab]{5}`: false, `\A[^ab]\b.\B`: false,
		`\b[ab]\b`: false, `\B_\B|\B[0-9]$`: false, `(?i)[k-s]{2}`: false, `(?i)k|s`: false, `\pL{9}`: false, `[^\x00-\x7f]{3}`: false,
		`\x{fffd}$`: false, `[^a-z]{4}\z`: false, `(?:a|ab)(?:c|bcd|[7_])(?:d*)`: false, `x*`: false, `[^\x00-\x{10ffff}]`: false,
		`(?s)^..$`: false, `(?m)^.[ab]$`: false, `(?:^|_)[ab]+(?:$|_)`: false, `[ab]*a[ab]{40}[7_]`: true,
	} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			p, err := grep.Compile(pattern, false)
			if err != nil {
				t.Fatal(err)
			}
			expr, number := regexp.MustCompile(pattern), int64(0)
			var want []string
			for line := range strings.Lines(all) {
				number++
				if line = strings.TrimSuffix(line, "\n"); expr.MatchString(line) {
					want = append(want, fmt.Sprintf("%d:%s", number, line))
				}
			}
			lines, _, err := grep.Text(t.Context(), []byte(all), grep.Options{Pattern: p})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range lines {
				got = append(got, fmt.Sprintf("%d:%s", l.Number, l.Text))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Error(firstDifference(strings.Join(got, "\n"), strings.Join(want, "\n")))
			}
			if p.IsCostly() != costly {
				t.Errorf("costly: %t, want %t", p.IsCostly(), costly)
			}
		})
	}
}
