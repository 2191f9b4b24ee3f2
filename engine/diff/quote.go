package diff

// appendQuoted appends the prefix and the path as git shows them (core.quotePath being on):
// together in double quotes, with backslashes, if the path holds a double quote, a backslash, a
// control byte, or a byte from 0x80 on; as they are otherwise.
func appendQuoted(dst []byte, prefix, path string) []byte {
	if !mustQuote(path) {
		return append(append(dst, prefix...), path...)
	}
	dst = append(append(dst, '"'), prefix...)
	for i := range len(path) {
		switch c := path[i]; {
		case escapes[c] != 0:
			dst = append(dst, '\\', escapes[c])
		case isOdd(c):
			dst = append(dst, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

func mustQuote(path string) bool {
	for i := range len(path) {
		if isOdd(path[i]) {
			return true
		}
	}
	return false
}

func isOdd(c byte) bool { return c < ' ' || c >= 0x7f || c == '"' || c == '\\' }

// escapes holds the letter for a byte behind a backslash; other bytes are written in octal.
var escapes = [256]byte{
	'\a': 'a', '\b': 'b', '\t': 't', '\n': 'n', '\v': 'v', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\',
}
