package main

import (
	"fmt"
	"strings"
)

// didYouMean returns "; did you mean X?" with the candidate that a word is a misspelling of, or "".
// In X it is written as show says. Underscores and capitals count as the hyphens and small letters
// of the names of flags.
func didYouMean(word string, candidates []string, show func(candidate string) string) string {
	word = strings.ReplaceAll(strings.ToLower(word), "_", "-")
	best, bound := "", len(word)/3+1 // more differences are another word
	for _, candidate := range candidates {
		if d := distance(word, candidate); d < bound || d == bound && best == "" && d < 3 {
			best, bound = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", show(best))
}

// distance is how many letters have to be inserted, removed, replaced or exchanged with the next
// one to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
