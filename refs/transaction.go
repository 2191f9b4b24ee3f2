package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// triesMax is how often a transaction is tried before it fails with [ErrBusy].
const triesMax = 16

// Change is the origin of a transaction and its permissions. The journal keeps Actor, Cause, Time
// and Options.
type Change struct {
	// Org is the organization whose feed tells the transaction; no feed does when it is empty. Name is
	// the repository's name, which the event of its deletion tells.
	Org, Name string

	Actor   string    // the actor named by the token
	Cause   string    // which operation, such as "push"
	Time    time.Time // when; the zero time is the time of the call
	Options []string  // push options

	// Names are stored names of refs that the transaction is going to look up or to change, valid or
	// not. They are read together, with the head; other names can be used as well, and are read one by
	// one.
	Names []string
	// Ahead, if not nil, is asked for each try what prepare is going to read beside refs, up to
	// [AheadMax] keys and ranges. It is read with the head, at the same instant. While Update waits,
	// another goroutine may call it.
	Ahead Ahead
	// Begun, if not nil, is what the request of the transaction has read before: see
	// [Store.SnapshotFor].
	Begun *Reading
	// Combiner, if not nil, lets the transaction share a batch with others. Whatever prepare reads
	// must then be refs of the Tx, rows that its batch requires as they were read, or what the
	// Combiner knows to be as the transactions before it leave it.
	Combiner Combiner

	// Policy bounds the permitted changes.
	Policy Policy
	// FastForward reports whether the history of the object after contains the object before. It is
	// called for refs under [NoForcePush]; without it such a ref can only be created.
	FastForward func(ctx context.Context, before, after object.ID) (bool, error)
	// Signed reports whether every commit that a change adds to its ref has a valid signature of a
	// registered key. It is called for refs under [VerifySig]; without it such a ref can only be
	// deleted.
	Signed func(ctx context.Context, move Move) (bool, error)
	// Check, if not nil, is asked about every ref that gets another value, in the order of the
	// changes. An error refuses that change.
	Check func(ctx context.Context, move Move) error
	// Receipt makes the transaction happen at most once; nil means that it was not asked for.
	Receipt *Receipt
	// DryRun ends the transaction behind its last check: Update returns what it would have come to,
	// and nothing is changed or announced. It leaves no receipt, and none replays it.
	DryRun bool
	// Announce adds rows to the batch of a transaction that changes refs, to announce its changes to
	// others. It is called for each try, and not for a replay; updates are valid during the call.
	Announce func(batch *kv.Batch, updates []Entry)
	// Announced is called when a transaction that changed refs is durable, before Update returns. It
	// must not block.
	Announced func()
}

// Ahead returns what is to be read with the head of a repository, and a function that takes what
// was found. A repository that does not exist, and a replay, have no use for it.
type Ahead func() (set kv.ReadSet, take func(rows kv.Rows))

// AheadMax bounds the keys and ranges of an [Ahead].
const AheadMax = 100

// Move is a change of one ref that leaves it in place.
type Move struct {
	Name string // as it is stored
	// Before is the previous object of the ref, peeled; zero for a new ref.
	Before object.ID
	After  object.ID
}

func (c *Change) check() error {
	if len(c.Options) > OptionsMax {
		return &LimitError{What: "push options", Max: OptionsMax}
	}
	if slices.ContainsFunc(c.Options, func(option string) bool { return len(option) > OptionBytesMax }) {
		return &LimitError{What: "size of a push option", Max: OptionBytesMax}
	}
	return nil
}

// entry returns an entry without a ref, with the fields that all entries of a transaction share. It
// leads from one head to the next by a mark.
func (c *Change) entry(prior, next *head, mark uint64) Entry {
	return Entry{
		Sequence: next.sequence, mark: mark, prior: prior, Actor: c.Actor, Time: next.time(), Cause: c.Cause,
		Options: c.Options,
	}
}

// Result is the result of a transaction.
type Result struct {
	// Sequence is that of the transaction, or of the repository when nothing was changed, as in a dry
	// run.
	Sequence uint64
	// Updates are the changes of refs, as the journal holds them.
	Updates []Entry
	// Replayed reports that an equal request was committed before, with Receipt as its result; prepare
	// was not needed.
	Replayed bool
	Receipt  []byte
}

// Update runs a transaction on a repository and returns when it is durable.
//
// prepare decides the changes and makes them through tx. If another process commits in between,
// Update calls it again, up to 16 times, each time with a new Tx; prepare must then decide only
// from that Tx. An error of prepare ends the transaction and is returned; [ErrUnchanged], or a
// return without a change, ends it without an error. Update returns the result, and any error that
// says something about the repository, only when the state that they refer to is durable; that is
// the state at one instant. Transactions of one repository are prepared one after the other, in the
// order of the calls; they become durable together.
//
// Transactions with a [Combiner] that wait at the same time may share one batch. Each is still
// prepared by its own caller, with its own context.
//
// The context ends the wait for a turn; once the transaction is visible, Update completes it. When
// it returns an error other than those of prepare and those listed, such as that of ctx, nothing
// was changed, except after a failure of the store.
//
// Errors: [ErrRepositoryNotFound]; [ErrBusy]; [ErrReceiptMismatch], [ErrInvalidReceiptKey];
// [ErrLimit]; kv.ErrTooLarge.
func (s *Store) Update(
	ctx context.Context, repo RepoID, change Change, prepare func(ctx context.Context, tx *Tx) error,
) (Result, error) {
	if err := change.check(); err != nil {
		return Result{}, err
	}
	if change.DryRun {
		change.Receipt = nil
	}
	if change.Receipt != nil {
		if err := change.Receipt.Key.Check(); err != nil {
			return Result{}, err
		}
	}
	if change.Time.IsZero() {
		change.Time = s.options.Now()
	}
	result, commit, told, err := s.commit(ctx, repo, &change, prepare)
	if commit != nil {
		s.tellCommitted(ctx, repo, &change, result.Updates, false)
		err := commit.Wait(context.WithoutCancel(ctx))
		if err == nil && change.Announced != nil && len(result.Updates) > 0 {
			change.Announced()
		}
		if err == nil {
			s.placeSome(ctx, change.Org)
		}
		return result, err
	}
	if waitErr := s.kv.WaitDurable(ctx, told); waitErr != nil {
		return Result{}, waitErr
	}
	return result, err
}

func replay(stored StoredReceipt) Result {
	return Result{Sequence: stored.Sequence, Replayed: true, Receipt: stored.Result}
}

// commit tries the transaction until it is visible, or refused. Without a commit nothing was
// changed, and told is the key that the result or the error speaks of.
func (s *Store) commit(
	ctx context.Context, repo RepoID, change *Change, prepare func(ctx context.Context, tx *Tx) error,
) (result Result, commit kv.Commit, told []byte, err error) {
	told = headKey(repo)
	since := s.options.Now().Add(-s.options.ReceiptAge)
	if change.Receipt != nil && s.lines.isBusy(repo) {
		// Who has to wait looks for a receipt before: then the turn need not go through all buckets.
		now := s.options.Now()
		key, stored, err := s.findReceipt(ctx, change.Receipt)
		if key != nil {
			return replay(stored), nil, key, err
		}
		if err != nil {
			return Result{}, nil, told, err
		}
		since = now
	}
	p := newPlace(change, since)
	s.lines.enter(repo, p, s.options.CombineMax)
	defer s.lines.leave(repo, p)
	for p.tries < triesMax {
		g, err := p.await(ctx)
		if err == nil && g == nil {
			g, err = s.form(ctx, repo, p)
		}
		if err != nil {
			return Result{}, nil, told, err
		}
		t := s.try(ctx, g, p, prepare)
		switch t.next {
		case leaves:
			return t.result, nil, t.told, t.err
		case defers:
			s.lines.put(repo, p)
			continue
		case stays:
		}
		if s.lines.stay(repo, p) {
			rest(ctx, g.ready)
			s.conclude(ctx, g)
		} else {
			rest(ctx, g.done)
		}
		switch {
		case g.sendsBack(p):
		case g.verdict == failed:
			return Result{}, nil, told, g.err
		case p.changes:
			return t.result, g.commit, told, nil
		default:
			return t.result, nil, t.told, t.err
		}
	}
	return Result{}, nil, told, fmt.Errorf("commit to %s: %w", repo, ErrBusy)
}

// rest waits until done is closed.
func rest(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	default:
		_ = fair.Rest(ctx, func() error { <-done; return nil }) // the wait does not fail
	}
}

// try is what one try of a transaction came to.
type try struct {
	next   step
	result Result
	told   []byte // the key that a result without a change, or err, speaks of
	err    error
}

// step says how a transaction goes on after a try.
type step int

const (
	stays  step = iota // until its group has ended, which decides whether the try counts
	leaves             // the group: the result speaks of nothing that the group changes
	defers             // to a later group
)

// try prepares a transaction whose turn it is, on what those before it in the group have left, and
// adds its batch to the group.
func (s *Store) try(
	ctx context.Context, g *group, p *place, prepare func(ctx context.Context, tx *Tx) error,
) (t try) {
	a, change := &p.ask, p.change
	p.changes = false
	t.told = headKey(g.repo)
	fail := func(err error) try { return try{next: leaves, told: t.told, err: err} }
	if a.err != nil {
		return fail(a.err)
	}
	replays := func(next step) (try, bool) {
		key, row := a.receipt()
		if key == nil {
			return try{}, false
		}
		stored, err := decodeReceipt(row, change.Receipt)
		return try{next: next, result: replay(stored), told: key, err: err}, true
	}
	if t, ok := replays(leaves); ok {
		return t
	}
	reader, staged := kv.Reader(s.kv), g.stage(s.kv)
	if staged != nil {
		reader = staged
		a.over(staged)
		if t, ok := replays(stays); ok {
			return t
		}
	}
	now, err := a.head()
	if err != nil {
		return fail(err)
	}
	if staged == nil {
		g.base = now
	}
	ahead := a.tell(change.Names)
	if change.Combiner != nil && !change.Combiner.Follow(g.before()) {
		t.next = defers
		return t
	}
	tx := newTx(s, g.repo, change, now)
	tx.reader, tx.ahead = reader, ahead
	t.result = Result{Sequence: now.sequence}
	if err = prepare(ctx, tx); err == nil {
		t.result, err = tx.seal()
	}
	if err == nil && change.DryRun {
		t.result.Sequence = now.sequence
	}
	switch {
	case err == nil && change.DryRun && (staged == nil || g.admits(tx)):
		// It stays, since it may build on transactions that are not committed yet.
	case err == nil && (staged == nil || g.admits(tx)):
		g.add(tx)
		p.changes = true
	case staged != nil && (err == nil || errors.Is(err, ErrAlone)):
		t.next = defers
	case ctx.Err() != nil:
		return fail(ctx.Err())
	case errors.Is(err, ErrUnchanged):
	default:
		t.result, t.err = Result{}, err
	}
	return t
}

func isPresent(value []byte) bool { return value != nil }

// seal adds the changes of the transaction to the batch. Errors: [ErrUnchanged].
func (tx *Tx) seal() (Result, error) {
	if err := tx.batch.Err(); err != nil {
		return Result{}, err
	}
	result := Result{Sequence: tx.head.sequence + 1}
	if tx.dropped {
		tx.head.require(tx.batch, tx.repo)
		Drop(tx.batch, tx.repo)
		if tx.next = tx.head; tx.park != nil {
			tx.next, tx.mark = tx.head.following(tx.change.Time)
			tx.putEntry(tx.shared())
		}
		tx.tell(&feedRow{
			kind: feedDeleted, repo: tx.repo, sequence: result.Sequence, count: 1, millis: tx.change.Time.UnixMilli(),
			actor: tx.change.Actor, cause: tx.change.Cause, name: tx.change.Name,
		})
		if tx.park != nil {
			if err := tx.park(tx.next.encode()); err != nil { // with the stamp of what was told
				return Result{}, err
			}
		}
		tx.putReceipt(result.Sequence)
		return result, tx.batch.Err()
	}
	tx.putChanges(&result)
	if count := len(result.Updates); count > 0 {
		tx.tell(&feedRow{
			kind: feedChanged, repo: tx.repo, sequence: result.Sequence, count: uint32(count),
			millis: tx.change.Time.UnixMilli(),
		})
	}
	if len(result.Updates) == 0 {
		if tx.batch.Count() == 0 {
			return Result{Sequence: tx.head.sequence}, ErrUnchanged
		}
		tx.putEntry(tx.shared())
	} else if tx.change.Announce != nil {
		tx.change.Announce(tx.batch, result.Updates)
	}
	tx.putReceipt(result.Sequence)
	tx.head.require(tx.batch, tx.repo)
	tx.batch.Put(headKey(tx.repo), tx.next.encode())
	return result, tx.batch.Err()
}

// tell adds the transaction to the feed of its organization, see [Store.applyTold].
func (tx *Tx) tell(row *feedRow) {
	tx.told = row
	tx.store.enqueue(tx.batch, tx.change, &tx.next, row)
}

// checkFenced checks that the batch requires the head under which the transaction was prepared, and
// that nothing else moves it: docs/invariants.md 2.
func (tx *Tx) checkFenced(under head) {
	key, fenced, moved := headKey(tx.repo), false, 0
	for p := range tx.batch.Preconditions() {
		fenced = fenced || bytes.Equal(p.Key, key) && bytes.Equal(p.Value, under.encode()) && !p.Absent
	}
	for op := range tx.batch.Operations() {
		if op.Kind == kv.OperationPut && bytes.Equal(op.Key, key) {
			moved++
		}
	}
	invariants.Check(fenced, "refs: a batch of %s does not require its head", tx.repo)
	invariants.Check(moved == 1 || tx.dropped && moved == 0,
		"refs: a batch of %s moves its head %d times", tx.repo, moved)
}

// checkCounted checks the head that the accepted batch has put. A batch that is refused may count
// refs of different instants.
func (tx *Tx) checkCounted() {
	if tx.dropped {
		return
	}
	invariants.Check(tx.next.count == uint64(tx.count),
		"refs: %s has %d refs, its head says %d", tx.repo, tx.count, tx.next.count)
	invariants.Check(tx.next.count > 0 || tx.next.nameBytes == 0,
		"refs: %s has no refs, and %d bytes of names", tx.repo, tx.next.nameBytes)
}

// shared returns an entry with the shared fields of the transaction.
func (tx *Tx) shared() *Entry {
	entry := tx.change.entry(&tx.head, &tx.next, tx.mark)
	entry.Elsewhere = tx.also
	return &entry
}

// putChanges adds the changes of refs to the batch and to result, and counts the head that follows.
func (tx *Tx) putChanges(result *Result) {
	tx.next, tx.mark = tx.head.following(tx.change.Time)
	for _, name := range tx.order {
		before, after := tx.stored[name], tx.changed[name]
		if before == nil && after == nil || before != nil && after != nil && *before == *after {
			continue
		}
		entry := *tx.shared()
		entry.Index, entry.Ref = uint32(len(result.Updates)), name
		if invariants.Enabled && before == nil {
			invariants.Check(after.Created.Sequence == tx.next.sequence,
				"refs: %s is created by %d as of %d", name, tx.next.sequence, after.Created.Sequence)
		}
		if before != nil {
			entry.before, entry.Before = before, before.ID
			tx.next.count--
			tx.next.nameBytes -= uint64(len(name))
		}
		if after != nil {
			entry.after, entry.After = after, after.ID
			tx.next.count++
			tx.next.nameBytes += uint64(len(name))
		}
		tx.putRef(name, before, after)
		if before != nil {
			tx.batch.Put(formerKey(tx.repo, name, entry.Sequence, entry.Index), encodeFormer(before))
		}
		result.Updates = append(result.Updates, entry)
	}
	for i := range result.Updates {
		tx.putEntry(&result.Updates[i])
	}
}

func (tx *Tx) putRef(name string, before, after *Ref) {
	ns, short := SplitNamespace(name)
	branch := len(short) > len(branchPrefix) && short[:len(branchPrefix)] == branchPrefix
	moved := before == nil || after == nil || before.Created != after.Created
	if before != nil && branch && moved {
		tx.batch.Delete(creationKey(tx.repo, ns, before.Created))
	}
	if after == nil {
		tx.batch.Delete(refKey(tx.repo, name))
		return
	}
	tx.batch.Put(refKey(tx.repo, name), encodeRow(after))
	if branch && moved {
		tx.batch.Put(creationKey(tx.repo, ns, after.Created), []byte(name))
	}
}

func (tx *Tx) putEntry(entry *Entry) {
	tx.batch.Put(journalKey(tx.repo, entry.Sequence, entry.Index), encodeEntry(entry))
}

func (tx *Tx) putReceipt(sequence uint64) {
	if tx.change.Receipt != nil {
		tx.store.PutReceipt(tx.batch, tx.change.Receipt, StoredReceipt{Sequence: sequence, Result: tx.result})
	}
}
