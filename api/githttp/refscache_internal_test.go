package githttp

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

func at(sequence uint64) refs.Version { return refs.Version{Sequence: sequence} }

// TestListingsAreBounded keeps more answers than there is room for: the ones used last stay.
func TestListingsAreBounded(t *testing.T) {
	t.Parallel()
	c := newListings()
	answer := bytes.Repeat([]byte("x"), listingBytesMax)
	key := func(i int) listingKey { return listingKey{repo: refs.RepoID{byte(i)}} }
	const count = 2 * listingsBytesMax / listingBytesMax
	for i := range count {
		c.put(key(i), at(1), answer)
		if c.get(key(0), at(1)) == nil {
			t.Fatalf("what is used all the time was gone after %d others", i)
		}
	}
	if bytes := c.cache.Bytes(); bytes > listingsBytesMax || bytes < listingsBytesMax/2 {
		t.Errorf("%d bytes in %d answers", bytes, c.cache.Len())
	}
	if c.get(key(1), at(1)) != nil || c.get(key(count-1), at(1)) == nil {
		t.Error("the oldest stayed, or the newest did not")
	}
}

// TestListingsKnowSequences gives answers of one sequence only, and keeps the newest.
func TestListingsKnowSequences(t *testing.T) {
	t.Parallel()
	c := newListings()
	key := listingKey{head: "refs/heads/main"}
	c.put(key, at(5), []byte("five"))
	c.put(key, at(4), []byte("four"))
	if got := c.get(key, at(5)); string(got) != "five" {
		t.Errorf("got %q, want five", got)
	}
	c.put(key, at(6), []byte("six"))
	if c.get(key, at(5)) != nil || c.get(key, at(4)) != nil || string(c.get(key, at(6))) != "six" {
		t.Error("an answer of another sequence was given")
	}
	if other := (listingKey{head: "refs/heads/other"}); c.get(other, at(6)) != nil {
		t.Error("an answer to another question was given")
	}
	if want := int64(len("six") + len(key.head) + listingCost); c.cache.Bytes() != want {
		t.Errorf("%d bytes are counted, want %d", c.cache.Bytes(), want)
	}
}

// TestListingsKnowHistories gives no answer of a state that has the same sequence in another
// history.
func TestListingsKnowHistories(t *testing.T) {
	t.Parallel()
	keys := odbtest.OpenKeys(t, vfs.NewMem())
	defer func() {
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
	}()
	store := refs.Open(keys, refs.Options{})
	var first [2]refs.Version // of two repositories, as if they were two histories of one
	for i := range first {
		batch, id := kv.NewBatch(), refs.NewRepoID()
		err := store.Create(batch, id, refs.Change{})
		if err == nil {
			_, err = keys.Apply(t.Context(), batch)
		}
		if err != nil {
			t.Fatal(err)
		}
		snapshot, err := store.Snapshot(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		first[i] = snapshot.Version()
		if err := snapshot.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c, key := newListings(), listingKey{}
	c.put(key, first[0], []byte("lost"))
	if got := c.get(key, first[1]); got != nil {
		t.Errorf("got %q of another history", got)
	}
	c.put(key, first[1], []byte("kept"))
	if c.get(key, first[0]) != nil || string(c.get(key, first[1])) != "kept" {
		t.Error("the answer of another history stayed")
	}
}
