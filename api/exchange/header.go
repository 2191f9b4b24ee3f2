package exchange

import "strings"

// IsMediaType reports whether a Content-Type, or an item of Accept, is want, whatever its
// parameters.
func IsMediaType(value, want string) bool {
	media, _, _ := strings.Cut(value, ";")
	return strings.EqualFold(strings.TrimSpace(media), want)
}

// TagAmong reports whether a list of entity tags, as in If-None-Match, contains etag. Weak
// comparison ignores the W/ of a tag.
func TagAmong(list, etag string, weak bool) bool {
	for tag := range strings.SplitSeq(list, ",") {
		tag = strings.TrimSpace(tag)
		if weak {
			tag = strings.TrimPrefix(tag, "W/")
		}
		if tag == "*" || tag == etag {
			return true
		}
	}
	return false
}
