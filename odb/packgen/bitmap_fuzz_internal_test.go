package packgen

import (
	"slices"
	"testing"
)

// wordsOfBitmap returns the bits of a stored bitmap.
func wordsOfBitmap(data []byte, wordCount int) ([]uint64, error) {
	b, err := parseBitmap(data, wordCount)
	if err != nil {
		return nil, err
	}
	words := make([]uint64, wordCount)
	b.WriteDenseTo(words)
	return words, nil
}

// FuzzBitmap checks that a parsed bitmap survives writing and parsing again, and that no other one
// is out of bounds.
func FuzzBitmap(f *testing.F) {
	for _, words := range [][]uint64{
		{}, {1, 1 << 63}, slices.Repeat([]uint64{^uint64(0)}, 2000), slices.Repeat([]uint64{0x5555}, 1200),
	} {
		data, err := encodeBitmap(words, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint16(len(words)))
	}
	f.Fuzz(func(t *testing.T, data []byte, wordCount uint16) {
		words, err := wordsOfBitmap(data, int(wordCount))
		if err != nil {
			return
		}
		again, err := encodeBitmap(words, nil)
		if err != nil {
			t.Fatal(err)
		}
		read, err := wordsOfBitmap(again, int(wordCount))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(words, read) {
			t.Errorf("%x reads as %x when it is written again", words, read)
		}
	})
}
