package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// quantity is a number of things, which one is the noun for: "1 repository", "2 repositories".
func quantity[N int | int64 | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, plural(one))
}

// plural is the plural of a regular noun.
func plural(one string) string {
	stem, ends := strings.CutSuffix(one, "y")
	switch {
	case ends && stem != "" && !strings.ContainsRune("aeiou", rune(stem[len(stem)-1])):
		return stem + "ies"
	case strings.HasSuffix(one, "ch"), strings.HasSuffix(one, "s"), strings.HasSuffix(one, "x"):
		return one + "es"
	}
	return one + "s"
}

// spanText is a time span in words, to one unit: "1 second", "90 minutes", "3 days".
func spanText(d time.Duration) string {
	d = d.Abs()
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if d >= 2*unit.size {
			return quantity(int64(d/unit.size), unit.name)
		}
	}
	return quantity(int64(d/time.Second), "second")
}

// moment is a time, and how far away it is.
func moment(at, now time.Time) string {
	text := at.UTC().Format("2006-01-02 15:04:05 UTC")
	if at.After(now) {
		return text + ", in " + spanText(at.Sub(now))
	}
	return text + ", " + spanText(now.Sub(at)) + " ago"
}

// escaped is a text with the escapes of Go's strings in the place of what is no printable
// character.
func escaped(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if strconv.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			out.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return out.String()
}

// printable is a text of somebody else, quoted if a terminal would do something with it.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
