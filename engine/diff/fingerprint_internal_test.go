package diff

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestFingerprintStream feeds contents in pieces of all sizes, which must come to the same as in
// one.
func TestFingerprintStream(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 2))
	filling := strings.Repeat("a line of text\r\nanother\rone\n", 600)
	for _, content := range []string{
		filling, "\x00" + filling, filling + "\r", filling + "\r\n\r\r\n", filling + strings.Repeat("\r", 200),
	} {
		for range 30 {
			c := &counter{}
			s := &fingerprintStream{counter: c, size: int64(len(content))}
			for rest := content; len(rest) > 0; {
				n := min(1+random.IntN(200), len(rest))
				if _, err := s.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			got, want := c.finish(int64(len(content))), NewFingerprint([]byte(content))
			byKind := func(a, b span) int { return cmp.Compare(a.kind, b.kind) }
			slices.SortFunc(got.spans, byKind)
			slices.SortFunc(want.spans, byKind)
			if !slices.Equal(got.spans, want.spans) {
				t.Fatalf("in pieces %v, at once %v", got.spans, want.spans)
			}
		}
	}
}
