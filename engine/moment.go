package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/engine/revision"
	"packhorse/odb"
	"packhorse/refs"
)

// Moment names a state that a repository was in.
type Moment = revision.Moment

// ParseMoment reads the moment in a field of a request: docs/api.md, "Conventions". Errors:
// [ErrInvalid].
func ParseMoment(field, text string) (Moment, error) {
	moment, err := revision.ParseMoment(text)
	if err != nil {
		err = invalid("%s: %v", field, err)
	}
	return moment, err
}

// PastError says that a moment lies before the history that can be read. It matches [ErrPast].
type PastError struct {
	// Oldest is the first position that can be read, and Since when it was reached, or from when on it
	// can be read.
	Oldest uint64
	Since  time.Time
	// Transaction was to be taken back, and what was before it is not kept; 0 for a moment.
	Transaction uint64
}

// Error names the oldest moment in both forms.
func (e *PastError) Error() string {
	what := "the history of that moment"
	if e.Transaction != 0 {
		what = fmt.Sprintf("what was before transaction %d", e.Transaction)
	}
	return fmt.Sprintf("%s is not kept any more: the oldest is seq:%d, from %s on", what, e.Oldest,
		e.Since.Format(time.RFC3339Nano))
}

// Is reports whether target is [ErrPast].
func (e *PastError) Is(target error) bool { return target == ErrPast }

// At returns the repository as it was at a moment: all that is read of it are the refs of then, and
// what they reach. Nothing can be written to it: [ErrReadOnly].
//
// Errors: [ErrPast]; [ErrNotFound] for a moment before the creation; [ErrInvalid] for one that has
// not come, and for a repository that is at a moment already.
func (r *Repository) At(ctx context.Context, moment Moment) (*Repository, error) {
	then, err := r.visibleAt(ctx, moment)
	if err != nil { // it tells the state that was read
		return nil, errors.Join(err, r.host.names.WaitDurable(ctx, r.record.ID))
	}
	return then, nil
}

// visibleAt is At for a caller that makes sure itself that what it tells is durable.
func (r *Repository) visibleAt(ctx context.Context, moment Moment) (*Repository, error) {
	r.mustBeRead("At")
	if r.past != nil {
		return nil, invalid("a moment is given twice: by at, and by @{%.60s}", moment)
	}
	window, err := r.host.names.Window(ctx, r.record.ID)
	if err != nil {
		return nil, r.gone(err)
	}
	sequence := moment.Sequence
	if !moment.BySequence {
		if sequence, err = r.sequenceAt(ctx, moment.Time, window); err != nil {
			return nil, err
		}
	}
	switch {
	case sequence == 0:
		return nil, fail(ErrBeforeCreation, "seq:0 is before the repository was created, at seq:1")
	case sequence > window.Head:
		return nil, fail(ErrFuture, "%.60s has not come: the journal is at seq:%d", moment, window.Head)
	case window.Below(sequence):
		return nil, r.outside(ctx)
	}
	then := *r
	then.past = &past{sequence: sequence}
	then.record.DefaultBranch = r.record.defaultAt(sequence)
	return &then, nil
}

// sequenceAt returns the position that the journal had at a time.
func (r *Repository) sequenceAt(ctx context.Context, at time.Time, window refs.Window) (uint64, error) {
	now, created := r.host.now().UTC(), r.record.Created.Truncate(time.Millisecond)
	switch {
	case at.After(now):
		return 0, fail(ErrFuture, "%s has not come: it is %s", at.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
	case at.Before(created):
		return 0, fail(ErrBeforeCreation, "%s is before the repository was created, at %s", at.Format(time.RFC3339Nano),
			created.Format(time.RFC3339Nano))
	case at.Before(window.Since):
		return 0, r.outside(ctx)
	}
	sequence, err := r.host.names.SequenceAt(ctx, r.record.ID, at)
	if errors.Is(err, refs.ErrTrimmed) {
		return 0, r.outside(ctx)
	}
	return max(sequence, window.Sequence), r.gone(err)
}

// outside is the error for a moment before the readable history.
func (r *Repository) outside(ctx context.Context) error {
	window, err := r.host.names.Window(ctx, r.record.ID)
	if err != nil {
		return r.gone(err)
	}
	past := &PastError{Oldest: window.Sequence, Since: window.Since}
	if window.Sequence == 0 {
		if past.Oldest, past.Since, err = r.host.names.Oldest(ctx, r.record.ID); err != nil {
			return r.gone(err)
		}
	}
	return past
}

// past is the moment that a repository is at.
type past struct {
	sequence uint64
}

// names opens the refs of the moment, which may not be durable, to look up these among others. Rows
// that are read with them may be nil.
func (p *past) names(
	ctx context.Context, r *Repository, ahead refs.Ahead, likely []string,
) (*refs.Snapshot, error) {
	names, err := r.host.names.SnapshotAtWith(ctx, r.record.ID, p.sequence, ahead, likely...)
	if errors.Is(err, refs.ErrTrimmed) {
		return nil, r.outside(ctx)
	}
	return names, r.gone(err)
}

// open opens the refs of the moment and the objects. The floor is read last: if it is not above the
// moment, no maintenance had removed anything that the refs reach when the view was made.
func (p *past) open(ctx context.Context, r *Repository, likely []string) (*refs.Snapshot, *odb.View, error) {
	opening := r.host.objects.Opening(r.record.Pool)
	names, err := p.names(ctx, r, opening.ReadAhead, likely)
	if err != nil {
		return nil, nil, errors.Join(err, opening.Close())
	}
	view, err := opening.View(ctx)
	if err != nil {
		err = fmt.Errorf("open objects of repository %s: %w", r.record.ID, err)
		return nil, nil, errors.Join(r.gone(err), names.Close())
	}
	floor, err := r.host.names.Floor(ctx, r.record.ID)
	if err == nil && floor.Below(p.sequence) {
		err = r.outside(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, names.Close(), view.Close())
	}
	return names, view.For(r.record.Org), nil
}

// MomentSequence returns the position of the journal that the repository is at; 0 if it is as it is
// now.
func (r *Repository) MomentSequence() uint64 {
	if r.past == nil {
		return 0
	}
	return r.past.sequence
}

// writes refuses to change a repository at a moment. Errors: [ErrReadOnly].
func (r *Repository) writes() error {
	if r.past == nil {
		return nil
	}
	return &failure{kind: ErrReadOnly, text: fmt.Sprintf(
		"the repository as it was at seq:%d is read-only", r.past.sequence)}
}
