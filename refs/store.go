package refs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/lru"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// Options are the settings of a [Store]; the zero value takes every default.
type Options struct {
	// CacheBytes bounds the memory of the refs that are kept decoded, over all repositories; 64 MiB by
	// default. A repository whose refs would take more than a quarter of it is read in pages instead.
	CacheBytes int64
	// RefsMax bounds the refs of a repository; 1,000,000 by default.
	RefsMax int
	// ReceiptAge is the life of an idempotency record; 24 hours by default.
	ReceiptAge time.Duration
	// CombineMax is how many waiting transactions of a repository may share a batch; 1 by default. A
	// store that shows batches before they are durable gains nothing by more.
	CombineMax int
	// Now is the clock; time.Now by default.
	Now func() time.Time
	// Shared says that other processes write to the same store.
	Shared bool
	// Committed, if not nil, is told of each transaction of this store that gave a ref another value,
	// once, when its batch is visible and before the caller of the transaction hears of it. ctx is the
	// caller's. No turn of a repository is held, and it may block the caller.
	Committed func(ctx context.Context, done Committed)
}

// Store is the refs of all repositories of a key-value store. Any number of stores, in any number
// of processes, may share one; for feeds and for waits that are complete each of them has to be
// [Options.Shared] then.
type Store struct {
	kv      kv.Store
	options Options
	token   [16]byte                // of this store among the others, random
	lines   lines                   // in whose order the transactions of a repository run
	loaders guards                  // one reader decodes the refs of a repository for all
	cache   lru.Cache[setKey, *set] // of the repositories and moments that were read last
	watch   watchers[RepoID]
	moves   moves
	polls   poller // of what other processes write
	feed    feed   // positions in the feeds of organizations
}

// Open returns the refs that are kept in store.
func Open(store kv.Store, options Options) *Store {
	options.CacheBytes = cmp.Or(options.CacheBytes, 64<<20)
	options.RefsMax = cmp.Or(options.RefsMax, 1_000_000)
	options.CombineMax = max(options.CombineMax, 1)
	options.ReceiptAge = cmp.Or(options.ReceiptAge, 24*time.Hour)
	if options.Now == nil {
		options.Now = time.Now
	}
	s := &Store{
		kv: store, options: options, cache: lru.New[setKey, *set](options.CacheBytes, options.CacheBytes),
		polls: poller{keys: store},
	}
	_, _ = rand.Read(s.token[:]) // does not fail
	return s
}

// Head returns the sequence of the repository's last transaction. It may not be durable yet.
//
// Errors: [ErrRepositoryNotFound].
func (s *Store) Head(ctx context.Context, repo RepoID) (uint64, error) {
	head, err := s.head(ctx, repo)
	return head.sequence, err
}

func (s *Store) head(ctx context.Context, repo RepoID) (head, error) {
	return readHead(ctx, s.kv, repo)
}

func readHead(ctx context.Context, reader kv.Reader, repo RepoID) (head, error) {
	row, err := reader.Get(ctx, headKey(repo))
	if errors.Is(err, kv.ErrNotFound) {
		return head{}, ErrRepositoryNotFound
	}
	if err != nil {
		return head{}, fmt.Errorf("read head of %s: %w", repo, err)
	}
	return decodeHead(row)
}

// WaitDurable returns when the repository's head, as it is at the call, is durable with all that it
// followed upon.
func (s *Store) WaitDurable(ctx context.Context, repo RepoID) error {
	return s.kv.WaitDurable(ctx, headKey(repo))
}

// Create adds to batch the creation of a repository without refs, at sequence 1. The batch fails
// with kv.ErrConflict when repo exists. With an organization, [Store.ApplyCreation] applies it.
func (s *Store) Create(batch *kv.Batch, repo RepoID, change Change) error {
	if err := change.check(); err != nil {
		return err
	}
	if change.Time.IsZero() {
		change.Time = s.options.Now()
	}
	batch.RequireAbsent(headKey(repo))
	none := head{}
	first, mark := none.following(change.Time)
	s.enqueue(batch, &change, &first, createdRow(repo, &change, 0))
	batch.Put(headKey(repo), first.encode())
	putShared(batch, repo, &change, &none, &first, mark)
	return nil
}

// putShared adds the journal entry of a transaction that changes no ref to batch: it leads from one
// head to the next.
func putShared(batch *kv.Batch, repo RepoID, change *Change, prior, next *head, mark uint64) {
	entry := change.entry(prior, next, mark)
	batch.Put(journalKey(repo, next.sequence, 0), encodeEntry(&entry))
}

// CreateWith is [Store.Create] with refs that exist from the first transaction on, created in their
// order. Of each, Name, ID and Peeled count, as for [Tx.Set]. change.Policy applies to them. It
// returns them as the journal holds them.
//
// Errors: [ErrLimit] for more refs than a transaction can change or a repository hold, and
// otherwise those of [Tx.Set].
func (s *Store) CreateWith(
	ctx context.Context, batch *kv.Batch, repo RepoID, change Change, refs []Ref,
) ([]Entry, error) {
	if len(refs) == 0 {
		return nil, s.Create(batch, repo, change)
	}
	return s.CreateBy(ctx, batch, repo, change, func(ctx context.Context, tx *Tx) error {
		for i := range refs {
			if err := tx.Set(ctx, refs[i].Name, &object.ZeroID, refs[i].ID, refs[i].Peeled); err != nil {
				return err
			}
		}
		return nil
	})
}

// CreateBy is [Store.CreateWith] for refs that prepare creates through tx, whose batch is batch. It
// returns them as the journal holds them, and announces them as [Store.Update] does, up to the call
// of change.Announced, which is the caller's when the batch is durable.
//
// Errors: those of prepare, [ErrUnchanged] when it has created none, [ErrLimit].
func (s *Store) CreateBy(
	ctx context.Context, batch *kv.Batch, repo RepoID, change Change, prepare func(ctx context.Context, tx *Tx) error,
) ([]Entry, error) {
	if err := change.check(); err != nil {
		return nil, err
	}
	if change.Time.IsZero() {
		change.Time = s.options.Now()
	}
	tx := newTx(s, repo, &change, head{})
	tx.batch = batch
	if err := prepare(ctx, tx); err != nil {
		return nil, err
	}
	var created Result
	if tx.putChanges(&created); len(created.Updates) == 0 {
		return nil, ErrUnchanged
	}
	if invariants.Enabled {
		tx.checkCounted()
	}
	s.enqueue(batch, &change, &tx.next, createdRow(repo, &change, len(created.Updates)))
	if change.Announce != nil {
		change.Announce(batch, created.Updates)
	}
	batch.RequireAbsent(headKey(repo))
	batch.Put(headKey(repo), tx.next.encode())
	return created.Updates, nil
}

// Drop adds to batch the removal of a repository's head, in any state: without it none of its refs
// and nothing of its journal is found. [Tx.Drop] does so in a transaction. What [Leftovers] selects
// is removed later.
func Drop(batch *kv.Batch, repo RepoID) { batch.Delete(headKey(repo)) }

// Leftovers selects the refs, the order of their creation, the journal, the former states of a
// repository, the floor of its history, and who asks others to yield in it. Once its head is gone
// nobody reads them, and nobody adds to them: an id is never used again.
func Leftovers(repo RepoID) []kv.ScanOptions {
	var left []kv.ScanOptions
	for _, table := range []byte{refTable, creationTable, journalTable, formerTable, historyTable, yieldTable} {
		start := tableKey(table, repo, 0)
		left = append(left, kv.ScanOptions{Start: start, End: kv.PrefixEnd(start)})
	}
	return left
}
