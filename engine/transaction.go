package engine

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/span"
	"packhorse/refs"
)

// Limits of a transaction.
const (
	// StepCountMax bounds the operations of a transaction, and PartCountMax its repositories.
	StepCountMax = 1000
	PartCountMax = 16
	// namesMax bounds the refs of a repository that are read with its head.
	namesMax = 100
	// patchesHeldMax bounds the memory that waits for all patches of a transaction to end.
	patchesHeldMax = 4 << 20
	// aheadMax is how often a transaction is rehearsed before what it computes is computed in the
	// turns of its repositories, where nobody on this server can move a branch.
	aheadMax = 4
)

// Part is a repository of a transaction, and who acts there.
type Part struct {
	Repo  *Repository
	Actor Actor
}

// Step is an operation of a transaction on the repository of a part, by its index.
type Step struct {
	Part      int
	Operation Operation
}

// TransactionResult is the outcome of a transaction. An idempotency record stores it.
type TransactionResult struct {
	Outcomes []Outcome // of the operations
	// Sequences are the positions in the journals of the parts.
	Sequences   []uint64
	PackedBytes int64 // the stored size of the new objects
}

// StepError says which operation of a transaction failed, by its index, and why.
type StepError struct {
	Step int
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("operations[%d]: %v", e.Step, e.Err) }

// Unwrap returns the error of the operation.
func (e *StepError) Unwrap() error { return e.Err }

// Transaction is operations in one or several repositories that take effect together or not at all:
// docs/invariants.md 72. Contents of commits and patches arrive first. It is used by one goroutine,
// which closes it.
type Transaction struct {
	host    *Host
	parts   []*participant
	steps   []Step
	bringer map[string]int // the step that takes a content
	open    map[string]bool
	when    time.Time
}

// participant is a part of a transaction.
type participant struct {
	repo    *Repository
	actor   Actor
	view    *odb.View
	objects *odb.Quarantine
	names   *refs.Snapshot // only while operations begin
}

// NewTransaction begins a transaction. The repositories of the parts differ, and belong to one
// organization; the first actor's receipt is that of the transaction.
//
// Errors: a [StepError] for what can be judged without the contents; [LimitError]; space.ErrShort.
func (h *Host) NewTransaction(ctx context.Context, parts []Part, steps []Step) (_ *Transaction, err error) {
	switch {
	case len(steps) == 0:
		return nil, invalid("operations must not be empty")
	case len(steps) > StepCountMax:
		return nil, &LimitError{Limit: "operations", Max: StepCountMax}
	case len(parts) > PartCountMax:
		return nil, &LimitError{Limit: "repositories of a transaction", Max: PartCountMax}
	}
	if err := h.space.Check(); err != nil {
		return nil, err
	}
	t := &Transaction{
		host: h, steps: steps, bringer: make(map[string]int), open: make(map[string]bool), when: h.now(),
	}
	for i, step := range steps {
		if err := step.Operation.check(&parts[step.Part].Actor); err != nil {
			return nil, &StepError{Step: i, Err: err}
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for i := range parts {
		p := &participant{repo: parts[i].Repo, actor: parts[i].Actor}
		if p.view, err = p.repo.writable(ctx, &p.actor); err != nil {
			return nil, err
		}
		p.objects = p.view.NewQuarantine(ctx)
		t.parts = append(t.parts, p)
	}
	return t, t.begin(ctx)
}

// begin has the operations get ready for their contents.
func (t *Transaction) begin(ctx context.Context) (err error) {
	for _, p := range t.parts {
		if p.names, err = p.repo.visibleNames(ctx); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, p.names.Close())
			p.names = nil
		}()
	}
	patches, files := 0, 0
	for _, step := range t.steps {
		switch o := step.Operation.(type) {
		case *PatchOperation:
			patches++
		case *CommitOperation:
			files += len(o.Operations)
		}
	}
	if most := t.host.OperationCountMax(); files > most {
		return &LimitError{Limit: "files of all commits (--operations-max)", Max: int64(most)}
	}
	for i, step := range t.steps {
		if err := fair.Pause(ctx); err != nil {
			return err
		}
		if o, ok := step.Operation.(*PatchOperation); ok {
			o.HeldMax = min(heldMax, patchesHeldMax/patches)
		}
		if err := step.Operation.begin(ctx, t.parts[step.Part]); err != nil {
			return &StepError{Step: i, Err: err}
		}
		for _, id := range step.Operation.contents() {
			if other, taken := t.bringer[id]; taken {
				return &StepError{Step: i, Err: invalid("content_id %q is that of operations[%d], too", id, other)}
			}
			t.bringer[id] = i
		}
	}
	return nil
}

// Close discards an uncommitted transaction.
func (t *Transaction) Close() (err error) {
	for _, step := range t.steps {
		err = errors.Join(err, step.Operation.close())
	}
	for _, p := range t.parts {
		err = errors.Join(err, p.objects.Close(), p.view.Close())
		p.actor.hold.Release()
	}
	return err
}

// Chunk takes the next bytes of a content; with eof they are its last. data is only read. Errors: a
// [StepError]; [ErrInvalid] for a content that no operation names.
func (t *Transaction) Chunk(ctx context.Context, contentID string, data []byte, eof bool) error {
	step, ok := t.bringer[contentID]
	if !ok {
		return invalid("blob_chunk: no operation has the content_id %q", contentID)
	}
	if !eof && !t.open[contentID] && len(t.open) >= t.host.limits.OpenContentCountMax {
		return invalid("blob_chunk: more than %d contents have begun and not ended", t.host.limits.OpenContentCountMax)
	}
	if eof {
		delete(t.open, contentID)
	} else {
		t.open[contentID] = true
	}
	if err := t.steps[step].Operation.take(ctx, contentID, data, eof); err != nil {
		return &StepError{Step: step, Err: err}
	}
	return nil
}

// IsLarge reports whether applying a patch will hold more memory than the patch of a day's work
// does.
func (t *Transaction) IsLarge() bool {
	return slices.ContainsFunc(t.steps, func(s Step) bool {
		o, ok := s.Operation.(*PatchOperation)
		return ok && o.upload.text.Size() > heldMax
	})
}

// Finish runs the operations and returns when their changes are durable. The idempotency record, if
// there is one, is complete by now.
//
// What operations compute for long is computed before the turns of the repositories begin, and
// again when a branch has moved since.
//
// Errors: a [StepError] with the error of the operation that failed; [ErrNotFound] for a repository
// that is gone; refs.ErrLimit when the batch would be too large; refs.ErrBusy,
// refs.ErrReceiptMismatch.
func (t *Transaction) Finish(ctx context.Context) (TransactionResult, error) {
	for i, step := range t.steps {
		if err := step.Operation.ended(ctx); err != nil {
			return TransactionResult{}, &StepError{Step: i, Err: err}
		}
	}
	computes := slices.ContainsFunc(t.steps, func(s Step) bool { return s.Operation.computes() })
	for try := range moveTriesMax {
		ahead := computes && try < aheadMax
		if ahead {
			if err := t.rehearse(ctx); err != nil {
				return TransactionResult{}, err
			}
		}
		result, err := t.commit(ctx, ahead)
		if !errors.Is(err, errTargetMoved) {
			return result, err
		}
	}
	return TransactionResult{}, fmt.Errorf("transaction: %w", refs.ErrBusy)
}

// rehearse runs the operations on the refs as they are now. It leaves refusals to the transaction.
func (t *Transaction) rehearse(ctx context.Context) (err error) {
	writes := make([]*write, len(t.parts))
	for i, p := range t.parts {
		p.objects.Follow(nil) // nobody that a last try was on top of
		names, err := t.host.names.SnapshotWith(ctx, p.repo.record.ID, p.objects.ReadAhead, t.likely(i)...)
		if err != nil {
			return p.repo.gone(err)
		}
		defer names.Close()
		if err := p.objects.Refresh(ctx); err != nil {
			return fmt.Errorf("refresh objects: %w", err)
		}
		writes[i] = p.repo.write(newRehearsal(names), p.objects, t.when)
	}
	_, _ = t.run(ctx, writes, false)
	return ctx.Err()
}

// run runs the operations, each on the write of its part.
func (t *Transaction) run(ctx context.Context, writes []*write, ahead bool) (result TransactionResult, err error) {
	err = fair.Do(ctx, func(ctx context.Context) error {
		for i, step := range t.steps {
			if err := fair.Pause(ctx); err != nil {
				return err
			}
			outcome, err := step.Operation.run(ctx, writes[step.Part], ahead)
			if err != nil {
				return &StepError{Step: i, Err: err}
			}
			result.Outcomes = append(result.Outcomes, outcome)
		}
		return nil
	})
	return result, err
}

// likely returns stored names of refs that the operations on a part look up.
func (t *Transaction) likely(part int) (names []string) {
	for _, step := range t.steps {
		if step.Part != part {
			continue
		}
		for _, name := range step.Operation.likely(t.parts[part].repo) {
			if len(names) < namesMax && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// change describes the transaction to the journal of a part.
func (t *Transaction) change(part int) refs.Change {
	p := t.parts[part]
	change := p.repo.change(&p.actor, "transaction", t.likely(part)...)
	change.Time = t.when
	change.FastForward = forward(p.objects)
	return change
}

// commit runs the operations in the turns of their repositories, and applies what they make.
func (t *Transaction) commit(ctx context.Context, ahead bool) (TransactionResult, error) {
	if len(t.parts) > 1 {
		return t.commitAll(ctx, ahead)
	}
	p := t.parts[0]
	var result TransactionResult
	done, err := p.repo.transact(ctx, &p.actor, t.change(0), p.objects,
		func(ctx context.Context, tx *refs.Tx, now *Repository) (err error) {
			if err := p.objects.Refresh(ctx); err != nil {
				return fmt.Errorf("refresh objects: %w", err)
			}
			if result, err = t.run(ctx, []*write{now.write(tx, p.objects, t.when)}, ahead); err != nil {
				return err
			}
			result.PackedBytes = p.objects.PackedBytes()
			if !tx.Moves() {
				result.Sequences = []uint64{tx.Sequence()}
				return refs.ErrUnchanged
			}
			result.Sequences = []uint64{tx.After()}
			if err := p.objects.Stage(ctx, tx.Batch()); err != nil {
				return fmt.Errorf("stage objects: %w", err)
			}
			stored, err := result.encode()
			tx.SetResult(stored)
			return err
		})
	if err != nil {
		return TransactionResult{}, err
	}
	if done.Replayed {
		return decodeTransaction(done.Receipt)
	}
	return result, nil
}

// commitAll is commit for several repositories.
func (t *Transaction) commitAll(ctx context.Context, ahead bool) (TransactionResult, error) {
	ctx, s := span.Begin(ctx, "ref transaction")
	s.Text("packhorse.cause", "transaction")
	s.Count("packhorse.repositories", int64(len(t.parts)))
	turns := make([]*turn, len(t.parts))
	parts := make([]refs.Part, len(t.parts))
	for i, p := range t.parts {
		turns[i] = p.repo.turn(&p.actor, t.change(i), p.objects)
		t.host.causes.follow(ctx, &turns[i].change, p.repo.record.ID)
		parts[i] = refs.Part{Repo: p.repo.record.ID, Change: turns[i].change}
		parts[i].Change.Receipt = nil
	}
	var result TransactionResult
	done, err := t.host.names.UpdateAll(ctx, parts, t.parts[0].actor.Receipt,
		func(ctx context.Context, txs []*refs.Tx) (_ []byte, err error) {
			result, err = t.prepareAll(ctx, turns, txs, ahead)
			if err != nil {
				return nil, err
			}
			return result.encode()
		})
	for i := range turns {
		part := refs.Result{Replayed: done.Replayed}
		if i < len(done.Parts) {
			part = done.Parts[i]
		}
		turns[i].settle(ctx, part, err)
	}
	s.End(err)
	if absent, ok := errors.AsType[*refs.AbsentError](err); ok {
		return TransactionResult{}, t.parts[absent.Part].repo.gone(err)
	}
	if err != nil {
		return TransactionResult{}, err
	}
	if done.Replayed {
		return decodeTransaction(done.Receipt)
	}
	return result, nil
}

// prepareAll is one try of a transaction on several repositories.
func (t *Transaction) prepareAll(
	ctx context.Context, turns []*turn, txs []*refs.Tx, ahead bool,
) (TransactionResult, error) {
	writes := make([]*write, len(turns))
	for i, tx := range txs {
		now, err := turns[i].enter(ctx, tx)
		if err != nil {
			return TransactionResult{}, err
		}
		if err := t.parts[i].objects.Refresh(ctx); err != nil {
			return TransactionResult{}, fmt.Errorf("refresh objects: %w", err)
		}
		writes[i] = now.write(tx, t.parts[i].objects, t.when)
	}
	result, err := t.run(ctx, writes, ahead)
	if err != nil {
		return result, err
	}
	for i, tx := range txs {
		if !tx.Moves() {
			result.Sequences = append(result.Sequences, tx.Sequence())
			continue
		}
		result.Sequences = append(result.Sequences, tx.After())
		objects := t.parts[i].objects
		result.PackedBytes += objects.PackedBytes()
		if err := objects.Stage(ctx, tx.Batch()); err != nil {
			return result, fmt.Errorf("stage objects: %w", err)
		}
		if err := turns[i].leave(ctx); err != nil {
			return result, err
		}
	}
	return result, nil
}

// encode returns the result as an idempotency record keeps it: compressed, since there may be many
// outcomes. Errors: [LimitError].
func (r *TransactionResult) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode outcome: %w", err)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("encode outcome: %w", err)
	}
	if packed.Len() > kv.ValueBytesMax-kv.KeyBytesMax {
		return nil, &LimitError{Limit: "bytes of the outcomes of a transaction", Max: kv.ValueBytesMax - kv.KeyBytesMax}
	}
	return packed.Bytes(), nil
}

// decodeTransaction returns the outcome of an earlier equal request.
func decodeTransaction(stored []byte) (TransactionResult, error) {
	text, err := io.ReadAll(flate.NewReader(bytes.NewReader(stored)))
	if err != nil {
		return TransactionResult{}, fmt.Errorf("%w: idempotency record: %w", ErrCorrupt, err)
	}
	return decodeReceipt[TransactionResult](text)
}
