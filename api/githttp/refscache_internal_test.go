package githttp

import (
	"bytes"
	"testing"

	"packhorse/refs"
)

// TestListingsAreBounded keeps more answers than there is room for: the ones used last stay.
func TestListingsAreBounded(t *testing.T) {
	t.Parallel()
	var c listings
	answer := bytes.Repeat([]byte("x"), listingBytesMax)
	key := func(i int) listingKey { return listingKey{repo: refs.RepoID{byte(i)}} }
	const count = 2 * listingsBytesMax / listingBytesMax
	for i := range count {
		c.put(&listing{key: key(i), sequence: 1, answer: answer})
		if c.get(key(0), 1) == nil {
			t.Fatalf("what is used all the time was gone after %d others", i)
		}
	}
	if c.bytes > listingsBytesMax || c.bytes < listingsBytesMax/2 || len(c.byKey) != c.order.Len() {
		t.Errorf("%d bytes in %d and %d answers", c.bytes, len(c.byKey), c.order.Len())
	}
	if c.get(key(1), 1) != nil || c.get(key(count-1), 1) == nil {
		t.Error("the oldest stayed, or the newest did not")
	}
}

// TestListingsKnowSequences gives answers of one sequence only, and keeps the newest.
func TestListingsKnowSequences(t *testing.T) {
	t.Parallel()
	var c listings
	key := listingKey{head: "refs/heads/main"}
	c.put(&listing{key: key, sequence: 5, answer: []byte("five")})
	c.put(&listing{key: key, sequence: 4, answer: []byte("four")})
	if got := c.get(key, 5); string(got) != "five" {
		t.Errorf("got %q, want five", got)
	}
	c.put(&listing{key: key, sequence: 6, answer: []byte("six")})
	if c.get(key, 5) != nil || c.get(key, 4) != nil || string(c.get(key, 6)) != "six" {
		t.Error("an answer of another sequence was given")
	}
	if other := (listingKey{head: "refs/heads/other"}); c.get(other, 6) != nil {
		t.Error("an answer to another question was given")
	}
	if c.bytes != (&listing{key: key, answer: []byte("six")}).cost() {
		t.Errorf("%d bytes are counted", c.bytes)
	}
}
