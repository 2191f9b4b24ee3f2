package refs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/kv"
)

// Part is what one transaction does to one of several repositories. The Change has no Receipt and
// no Combiner: the transaction has one receipt, and a batch of its own.
type Part struct {
	Repo   RepoID
	Change Change
}

// AllResult is the result of a transaction on several repositories.
type AllResult struct {
	Parts []Result // in the order of the parts; not of a replay
	// Replayed reports that an equal request was committed before, with Receipt as its result.
	Replayed bool
	Receipt  []byte
}

// AbsentError says that the repository of a part does not exist. It matches
// [ErrRepositoryNotFound].
type AbsentError struct {
	Part int // its index
}

func (e *AbsentError) Error() string { return ErrRepositoryNotFound.Error() }

// Is reports whether target is ErrRepositoryNotFound.
func (e *AbsentError) Is(target error) bool { return target == ErrRepositoryNotFound }

// UpdateAll is [Store.Update] on several different repositories in one batch, which requires the
// heads of all of them: whoever reads sees what it does to all of them, or to none. Each repository
// that changes gets an entry in its journal, which names those of the others, and the transaction
// is in the feed once for each.
//
// prepare makes the changes through a Tx for each part, in their order, and returns the content of
// the receipt. It is called again when another process has committed to one of the repositories. A
// transaction that changes nothing leaves no receipt. Turns are taken in the order of the
// repositories' IDs, and all are held until the batch is applied.
//
// Errors: [AbsentError], [ErrBusy], [ErrReceiptMismatch], [ErrInvalidReceiptKey]; [ErrLimit], also
// when the batch would be too large.
func (s *Store) UpdateAll(
	ctx context.Context, parts []Part, receipt *Receipt,
	prepare func(ctx context.Context, txs []*Tx) (result []byte, err error),
) (AllResult, error) {
	all := &allParts{store: s, receipt: receipt, prepare: prepare}
	for i := range parts {
		part := parts[i]
		if err := part.Change.check(); err != nil {
			return AllResult{}, err
		}
		if part.Change.Time.IsZero() {
			part.Change.Time = s.options.Now()
		}
		all.dry = all.dry || part.Change.DryRun
		all.parts = append(all.parts, &part)
	}
	if all.dry {
		all.receipt = nil
	}
	if all.receipt != nil {
		if err := all.receipt.Key.Check(); err != nil {
			return AllResult{}, err
		}
	}
	result, commit, err := all.run(ctx)
	if commit == nil {
		if waitErr := all.told(ctx); waitErr != nil {
			return AllResult{}, waitErr
		}
		return result, err
	}
	for i, part := range all.parts {
		s.tellCommitted(ctx, part.Repo, &part.Change, result.Parts[i].Updates, false)
	}
	if err := commit.Wait(context.WithoutCancel(ctx)); err != nil {
		return result, err
	}
	for i, part := range all.parts {
		if part.Change.Announced != nil && len(result.Parts[i].Updates) > 0 {
			part.Change.Announced()
		}
	}
	s.placeSome(ctx, all.parts[0].Change.Org)
	return result, nil
}

// allParts is a transaction on several repositories.
type allParts struct {
	store   *Store
	parts   []*Part
	receipt *Receipt
	dry     bool
	prepare func(ctx context.Context, txs []*Tx) ([]byte, error)
	replay  []byte // the key of the receipt that the result is from; nil for none
}

// told waits until what a result without a batch, or a refusal, speaks of is durable.
func (a *allParts) told(ctx context.Context) error {
	if a.replay != nil {
		return a.store.kv.WaitDurable(ctx, a.replay)
	}
	for _, part := range a.parts {
		if err := a.store.kv.WaitDurable(ctx, headKey(part.Repo)); err != nil {
			return err
		}
	}
	return nil
}

// run takes the turns, and tries until the batch is visible, or refused. Without a commit nothing
// was changed.
func (a *allParts) run(ctx context.Context) (AllResult, kv.Commit, error) {
	order := slices.Clone(a.parts)
	slices.SortFunc(order, func(x, y *Part) int { return cmp.Compare(string(x.Repo[:]), string(y.Repo[:])) })
	for _, part := range order {
		pass, err := a.store.takeTurn(ctx, part.Repo, &part.Change)
		if err != nil {
			return AllResult{}, nil, err
		}
		defer pass()
	}
	for range triesMax {
		result, commit, err := a.try(ctx)
		if !errors.Is(err, kv.ErrConflict) {
			return result, commit, err
		}
	}
	return AllResult{}, nil, fmt.Errorf("commit to %d repositories: %w", len(a.parts), ErrBusy)
}

// try is one try. Errors: [kv.ErrConflict] when another one has to follow.
func (a *allParts) try(ctx context.Context) (AllResult, kv.Commit, error) {
	if a.receipt != nil {
		key, stored, err := a.store.findReceipt(ctx, a.receipt)
		if key != nil {
			a.replay = key
			return AllResult{Replayed: true, Receipt: stored.Result}, nil, err
		}
		if err != nil {
			return AllResult{}, nil, err
		}
	}
	txs, err := a.begin(ctx)
	if err != nil {
		return AllResult{}, nil, err
	}
	kept, err := a.prepare(ctx, txs)
	var result AllResult
	var batch *kv.Batch
	moves := false
	if err == nil {
		result, batch, moves, err = a.seal(txs)
	}
	if err != nil || !moves || a.dry {
		if ctx.Err() != nil {
			return AllResult{}, nil, ctx.Err()
		}
		if stood := a.stood(ctx, txs); stood != nil {
			return AllResult{}, nil, stood
		}
		if err != nil {
			return AllResult{}, nil, err
		}
		return result, nil, nil
	}
	if a.receipt != nil {
		a.store.PutReceipt(batch, a.receipt, StoredReceipt{Result: kept})
		if err := batchLimit(batch); err != nil {
			return AllResult{}, nil, err
		}
	}
	commit, err := a.apply(ctx, txs, batch)
	return result, commit, err
}

// begin reads what all parts begin with, at one instant if that is little enough.
func (a *allParts) begin(ctx context.Context) ([]*Tx, error) {
	s := a.store
	asks, all, together := make([]*ask, len(a.parts)), newQuestions(), true
	for i, part := range a.parts {
		q := s.ask(part.Repo, &part.Change, s.options.Now())
		if q.err != nil {
			return nil, q.err
		}
		asks[i] = &q
		together = together && all.add(&q)
	}
	if together {
		if err := all.read(ctx, s.kv, asks); err != nil {
			return nil, fmt.Errorf("read heads: %w", err)
		}
	}
	txs := make([]*Tx, len(a.parts))
	for i, part := range a.parts {
		if !together {
			if err := asks[i].read(ctx, s.kv); err != nil {
				return nil, fmt.Errorf("read head of %s: %w", part.Repo, err)
			}
		}
		now, err := asks[i].head()
		if errors.Is(err, ErrRepositoryNotFound) {
			return nil, &AbsentError{Part: i}
		}
		if err != nil {
			return nil, err
		}
		txs[i] = newTx(s, part.Repo, &part.Change, now)
		txs[i].ahead = asks[i].tell(part.Change.Names)
	}
	return txs, nil
}

// seal makes one batch of all parts. A part that moves no ref only requires what it was decided on.
func (a *allParts) seal(txs []*Tx) (result AllResult, batch *kv.Batch, moves bool, err error) {
	batch = kv.NewBatch()
	crossReference(txs)
	for i, tx := range txs {
		done := Result{Sequence: tx.head.sequence}
		if tx.Moves() {
			if done, err = tx.seal(); err != nil {
				return AllResult{}, nil, false, limited(err)
			}
			moves = true
		} else {
			tx.head.require(tx.batch, tx.repo)
		}
		if a.dry {
			done.Sequence = tx.head.sequence
		}
		result.Parts = append(result.Parts, done)
		batch.Append(txs[i].batch)
	}
	return result, batch, moves, batchLimit(batch)
}

// crossReference tells each part that moves a ref where the others do.
func crossReference(txs []*Tx) {
	var at []Position
	for _, tx := range txs {
		if tx.Moves() {
			at = append(at, Position{tx.repo, tx.head.sequence + 1})
		}
	}
	for _, tx := range txs {
		tx.also = slices.DeleteFunc(slices.Clone(at), func(p Position) bool { return p.Repo == tx.repo })
	}
}

// Moves reports whether the transaction gives a ref another value.
func (tx *Tx) Moves() bool {
	return slices.ContainsFunc(tx.order, func(name string) bool {
		before, after := tx.stored[name], tx.changed[name]
		return (before == nil) != (after == nil) || before != nil && *before != *after
	})
}

// batchLimit says in words for clients that a batch is too large.
func batchLimit(batch *kv.Batch) error { return limited(batch.Err()) }

func limited(err error) error {
	limit, ok := errors.AsType[*kv.LimitError](err)
	switch {
	case ok && limit.What == "batch size":
		return &LimitError{What: "bytes of small objects and refs in one transaction", Max: limit.Max}
	case ok && limit.What == "batch count":
		return &LimitError{What: "rows that one transaction changes", Max: limit.Max}
	}
	return err
}

// stood makes sure that the repositories are as they were when a refusal was decided. Errors:
// [kv.ErrConflict].
func (a *allParts) stood(ctx context.Context, txs []*Tx) error {
	for _, tx := range txs {
		now, err := a.store.head(ctx, tx.repo)
		if errors.Is(err, ErrRepositoryNotFound) || err == nil && now != tx.head {
			return kv.ErrConflict
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apply applies the batch of all parts. Errors: [kv.ErrConflict].
func (a *allParts) apply(ctx context.Context, txs []*Tx, batch *kv.Batch) (kv.Commit, error) {
	told := make([]telling, 0, len(txs))
	for _, tx := range txs {
		told = append(told, telling{tx.change.Org, tx.told})
	}
	commit, err := a.store.applyTold(ctx, batch, told...)
	if err != nil {
		return nil, limited(fmt.Errorf("commit to %d repositories: %w", len(txs), err))
	}
	for _, tx := range txs {
		if tx.told == nil { // it moves nothing
			continue
		}
		a.store.moved(tx.repo)
	}
	return commit, nil
}
