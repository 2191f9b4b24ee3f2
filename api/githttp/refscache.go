package githttp

import (
	"packhorse/odb/lru"
	"packhorse/refs"
)

// Bounds of the cached listings of refs.
const (
	listingsBytesMax = 16 << 20 // of all
	listingBytesMax  = 1 << 20  // of one: some 15,000 refs
	listingCost      = 512      // of one, beside its bytes
	listingAskMax    = 1 << 10  // bytes of prefixes
)

// listingKey is a repository and the options of a listing.
type listingKey struct {
	repo                  refs.RepoID
	space                 refs.Namespace
	moment                uint64 // a position of the journal; 0 is now
	head                  string // the ref that HEAD leads to
	peel, symrefs, unborn bool
	prefixes              string
}

// listing is the answer to a listing of refs, in a state of the repository.
type listing struct {
	version refs.Version
	answer  []byte // never changed
}

// listings keeps the answers that were given last, the newest of each question. Its methods may be
// called concurrently.
type listings struct {
	cache lru.Cache[listingKey, listing]
}

func newListings() listings {
	return listings{lru.New[listingKey, listing](listingsBytesMax, listingsBytesMax)}
}

// get returns the answer in a state, nil when it is not cached.
func (c listings) get(key listingKey, version refs.Version) []byte {
	l, ok := c.cache.Get(key)
	if !ok || l.version != version {
		return nil
	}
	return l.answer
}

// put keeps an answer, unless a later one is there.
func (c listings) put(key listingKey, version refs.Version, answer []byte) {
	cost := int64(len(answer)+len(key.head)+len(key.prefixes)) + listingCost
	c.cache.PutUnless(key, listing{version, answer}, cost, func(old listing) bool {
		return old.version == version || old.version.Sequence > version.Sequence
	})
}
