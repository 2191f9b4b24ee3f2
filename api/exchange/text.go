package exchange

import "unicode/utf8"

// Unfinished counts the bytes at the end of p that begin a character of UTF-8 without ending it.
func Unfinished(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if utf8.RuneStart(p[len(p)-n]) {
			if !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
