package object

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// shattered is the first half of a published collision (shattered.io): 320 bytes whose hash another
// file of that beginning has too.
const shattered = `
255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f4865696768742033203020522f547970652034203020522f
537562747970652035203020522f46696c7465722036203020522f436f6c6f7253706163652037203020522f4c656e6774682038203020522f42697473506572
436f6d706f6e656e7420383e3e0a73747265616d0affd8fffe00245348412d3120697320646561642121212121852fec092339759c39b1a1c63c4c97e1fffe01
7f46dc93a6b67e013b029aaa1db2560b45ca67d688c7f84b8c4c791fe02b3df614f86db1690901c56b45c1530afedfb76038e972722fe7ad728f0e4904e046c2
30570fe9d41398abe12ef5bc942be33542a4802d98b5d70f2a332ec37fac3514e74ddc0f2cc1a874cd0c78305a21566461309789606bd0bf3f98cda8044629a1`

// TestCollisionIsRefused hashes without the header of an object, since no colliding objects have
// been published.
func TestCollisionIsRefused(t *testing.T) {
	t.Parallel()
	data, err := hex.DecodeString(strings.ReplaceAll(shattered, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	h := newHasher()
	h.sha.Reset()
	h.rest = int64(len(data))
	if _, err := h.Write(data); err != nil {
		t.Fatal(err)
	}
	if id, err := h.Sum(); !errors.Is(err, ErrCollision) || id != ZeroID {
		t.Errorf("%s, %v", id, err)
	}
	h.Reset(TypeBlob, 0)
	if _, err := h.Sum(); err != nil {
		t.Errorf("after Reset: %v", err)
	}
}
