package main

import (
	"fmt"
	"strings"
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
