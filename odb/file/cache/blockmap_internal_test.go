package cache

import (
	"testing"

	"pgregory.net/rapid"
)

// TestBlockMap compares a map with a set, and its text with what is parsed of it.
func TestBlockMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.Int64Range(0, 3*blockBytes), rapid.Int64Range(0, 200*blockBytes)).Draw(t, "size")
		m := newBlockMap(size)
		there := make(map[int64]bool)
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			if m.count == 0 {
				break
			}
			block := rapid.Int64Range(0, m.count-1).Draw(t, "block")
			if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
				m.set(block)
				there[block] = true
				continue
			}
			if bytes := m.clear(block, block); (bytes > 0) != there[block] {
				t.Fatalf("block %d takes %d bytes", block, bytes)
			}
			delete(there, block)
		}
		text := m.append(nil, "name")
		parsed, ok := parseMap(text, "name")
		if !ok || int64(len(text)) != mapBytes(size) {
			t.Fatalf("%d bytes are not parsed", len(text))
		}
		var end, bytes int64
		for block := range m.count {
			if m.has(block) != there[block] || parsed.has(block) != there[block] {
				t.Fatalf("block %d: %t, %t, want %t", block, m.has(block), parsed.has(block), there[block])
			}
			if there[block] {
				end = min((block+1)*blockBytes, size)
				bytes += m.cost(block)
			}
		}
		if parsed.end() != end || parsed.bytes() != bytes || parsed.complete() != (int64(len(there)) == m.count) {
			t.Fatalf("the end is %d, want %d; %d bytes, want %d", parsed.end(), end, parsed.bytes(), bytes)
		}
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		text[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, ok := parseMap(text, "name"); ok {
			t.Fatalf("damage at %d is not seen", at)
		}
		if _, ok := parseMap(m.append(nil, "name"), "other"); ok {
			t.Fatal("the map of another file is taken")
		}
	})
}
