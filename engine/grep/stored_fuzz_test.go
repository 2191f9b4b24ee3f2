package grep

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzStoredTrigrams stores the trigrams of a text, which come back as they were, and reads the
// text as if it were stored itself: what is not refused is a set that can be asked. It is a look
// inside: a search only tells which files it passes over.
func FuzzStoredTrigrams(f *testing.F) {
	f.Add([]byte("a horse of course, a horse of course\n"))
	f.Add([]byte("no\x00text"))
	f.Add([]byte("\u212a"))
	f.Add(append([]byte{storedForm}, bytes.Repeat([]byte{0x5a}, 16)...))
	f.Add(append([]byte{storedForm}, make([]byte, 24)...))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, ok := decodeTrigrams(StoredTrigrams(text))
		switch {
		case isBinary(text):
			if !ok || len(set) > 0 {
				t.Errorf("%d words of a binary file, %v", len(set), ok)
			}
		case hasFoldedSigns(text):
			if ok {
				t.Error("letters that fold to ASCII are stored")
			}
		case !ok || !slices.Equal(set, trigramsIn(text)):
			t.Errorf("%d words, %v, want those of the text", len(set), ok)
		}
		if set, ok := decodeTrigrams(text); ok && len(set) > 0 {
			set.hasAll([]uint32{0, 1<<setBitsLog - 1})
		}
	})
}
