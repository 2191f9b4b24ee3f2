// Package refs keeps the names of a repository: its refs, the transactions that move them, and the
// journal of every move.
//
// A repository has one head row, a sequence number that every transaction requires and increments.
// All checks of a transaction (expected old values, directory/file conflicts, policies, limits)
// therefore still hold when it commits, whatever other writers do, in this process or another.
// Start at [Open], [Store.Update] to write and [Store.Snapshot] to read. The map, by file:
//
//	refs, repo, errors           a ref; a repository's ID; errors that callers decide on
//	store, head, guard           Store; the head row; turns of readers
//	watch, poll                  waiting for writes of this process, and of others
//	transaction                  Update, from the turn to the batch that makes changes visible
//	line, ask, combine, staged   turns of writers; what a try reads; one batch for several of them
//	yield                        a server that loses every race gets its turn
//	updateall                    one transaction on several repositories
//	tx, check, lookahead         the changes of one transaction, and what it refuses
//	park, restore                what was deleted or changed comes back
//	names, reponame              rules for the names of refs and repositories
//	namespace, policy            the two namespaces; what a token may do to which ref
//	snapshot, set, overlay,      reading: pages, cached refs, refs that were overtaken; rows that are
//	prefetch                     read together
//	journal, journalcursor,      the history of changes
//	journaltrim
//	moment, former, times        refs as of a moment of the past; their states by name; when it was
//	receipt                      results of requests with a key
//	feed, feedplace, feedrow,    the changes of all repositories of an organization in one order
//	feedread, feedtrim
//	historyfloor                 where the history begins that can be read
//	committed                    telling others in this process what was changed
//	keys, row, fsck, steady      tables and formats; checking them, for longer than a snapshot lives
//
// A change is visible before it is durable, so data must be made durable before it is sent to a
// client: Update does so for its results and its refusals, and a reader calls
// [Snapshot.WaitDurable]. Everything in the package may be used concurrently, except a [Tx].
package refs

import (
	"cmp"
	"time"

	"packhorse/pack/object"
)

// Limits that do not depend on [Options].
const (
	// NameBytesMax is the largest size of a refname, not counting the prefix of its namespace.
	NameBytesMax = 1024
	// UpdatesMax is how many refs one transaction may change: each takes four rows of a batch at most,
	// of kv.BatchCountMax, unless it is deleted and created again.
	UpdatesMax = 30_000
	// OptionsMax is how many push options a transaction may carry, and OptionBytesMax how large each
	// may be.
	OptionsMax     = 64
	OptionBytesMax = 1 << 10
)

// Ref is a ref as it is stored.
type Ref struct {
	// Name is the full name, with the prefix of its namespace.
	Name string
	// ID is the object that the ref points to.
	ID object.ID
	// Peeled is the object that the tag object ID leads to, and zero when ID is no tag object.
	Peeled object.ID
	// Created is the ref's place in the order of creation. An update keeps it.
	Created Creation

	createdMillis int64
}

// Target returns the peeled object of the ref: Peeled for a tag object, else ID.
func (r *Ref) Target() object.ID {
	if r.Peeled.IsZero() {
		return r.ID
	}
	return r.Peeled
}

// CreatedAt returns when the ref was created, to the millisecond, in UTC.
func (r *Ref) CreatedAt() time.Time { return time.UnixMilli(r.createdMillis).UTC() }

// Creation is a place in the order in which a repository's refs were created: the transaction, and
// the place within it.
type Creation struct {
	Sequence uint64
	Index    uint32
}

// compare orders places as the refs were created.
func (c Creation) compare(other Creation) int {
	return cmp.Or(cmp.Compare(c.Sequence, other.Sequence), cmp.Compare(c.Index, other.Index))
}
