package rest

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTextWriter writes texts in pieces of all sizes, with the same result as in one.
func TestTextWriter(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	for _, text := range []string{
		"", "plain", "\"quoted\" \\ \x00\x1f\n", "hörse 馬 🐎", "\xff", "cut \xf0\x9f", "\xe4\xf6\xfc and \xf0\x9f\x90\x8e",
		strings.Repeat("馬🐎é", 30_000),
	} {
		for range 20 {
			var got bytes.Buffer
			out := bufio.NewWriter(&got)
			w := textWriter{out: out}
			for rest := text; len(rest) > 0; {
				n := 1 + random.IntN(len(rest))
				if len(rest) < 40 {
					n = min(n, 1+random.IntN(3))
				}
				if _, err := w.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
			if err := out.Flush(); err != nil {
				t.Fatal(err)
			}
			if want := appendText(nil, text); `"`+got.String()+`"` != string(want) {
				t.Fatalf("%.100q is written as %.200s", text, got.String())
			}
			if w.size != int64(len(text)) || w.invalid == utf8.ValidString(text) {
				t.Errorf("%.100q: size %d, invalid %v", text, w.size, w.invalid)
			}
		}
	}
}

// TestStreamedText writes long texts in pieces, with the same result as the whole.
func TestStreamedText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "a", strings.Repeat("x", textPiece), strings.Repeat("x", textPiece+1), "x" +
			strings.Repeat("\xf0\x9f\x90\x8e", 3*textPiece),
		strings.Repeat("\xff", 2*textPiece), strings.Repeat("\"\n", 5*textPiece) + "\xe4",
	} {
		var got bytes.Buffer
		out := newJSONStream(&got)
		out.text(text)
		out.field("next")
		if err := out.end(); err != nil {
			t.Fatal(err)
		}
		if want := string(appendText(nil, text)) + `,"next":`; got.String() != want {
			t.Errorf("%.20q of %d bytes is written in %d bytes, want %d", text, len(text), got.Len(), len(want))
		}
		if cap(out.buffer) > 8*streamBytes {
			t.Errorf("the buffer has grown to %d bytes", cap(out.buffer))
		}
	}
}
