package githttp

import (
	"bytes"
	"testing"

	"packhorse/refs"
)

// TestListingsAreBounded keeps more answers than there is room for: the ones used last stay.
func TestListingsAreBounded(t *testing.T) {
	t.Parallel()
	c := newListings()
	answer := bytes.Repeat([]byte("x"), listingBytesMax)
	key := func(i int) listingKey { return listingKey{repo: refs.RepoID{byte(i)}} }
	const count = 2 * listingsBytesMax / listingBytesMax
	for i := range count {
		c.put(key(i), 1, answer)
		if c.get(key(0), 1) == nil {
			t.Fatalf("what is used all the time was gone after %d others", i)
		}
	}
	if bytes := c.cache.Bytes(); bytes > listingsBytesMax || bytes < listingsBytesMax/2 {
		t.Errorf("%d bytes in %d answers", bytes, c.cache.Len())
	}
	if c.get(key(1), 1) != nil || c.get(key(count-1), 1) == nil {
		t.Error("the oldest stayed, or the newest did not")
	}
}

// TestListingsKnowSequences gives answers of one sequence only, and keeps the newest.
func TestListingsKnowSequences(t *testing.T) {
	t.Parallel()
	c := newListings()
	key := listingKey{head: "refs/heads/main"}
	c.put(key, 5, []byte("five"))
	c.put(key, 4, []byte("four"))
	if got := c.get(key, 5); string(got) != "five" {
		t.Errorf("got %q, want five", got)
	}
	c.put(key, 6, []byte("six"))
	if c.get(key, 5) != nil || c.get(key, 4) != nil || string(c.get(key, 6)) != "six" {
		t.Error("an answer of another sequence was given")
	}
	if other := (listingKey{head: "refs/heads/other"}); c.get(other, 6) != nil {
		t.Error("an answer to another question was given")
	}
	if want := int64(len("six") + len(key.head) + listingCost); c.cache.Bytes() != want {
		t.Errorf("%d bytes are counted, want %d", c.cache.Bytes(), want)
	}
}
