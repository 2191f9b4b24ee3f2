package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"packhorse/engine/catalog"
	"packhorse/engine/organization"
	"packhorse/engine/upstream"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/span"
	"packhorse/refs"
)

// Repository is one repository as it was when it was opened; it holds nothing open. Its methods may
// be called concurrently and fail with [ErrNotFound] when the repository has since been deleted.
type Repository struct {
	host   *Host
	record record
	// stored is the record as it is stored, the precondition of writes that depend on it.
	stored []byte
	// state is how it stood to its upstream, if it has one, and busy whether a sync ran or was about
	// to just before that was read.
	state upstream.State
	busy  bool
	// past is the moment that it is at, nil for now.
	past *past
	// recalled says that it was not read yet, see [Host.Recall].
	recalled bool
	// creation is how a push creates it, nil when it exists; see [Host.ReceiveFirst].
	creation *CreateRequest
}

// Repository opens the repository that an organization calls name. Errors: [ErrNotFound].
func (h *Host) Repository(ctx context.Context, org, name string) (*Repository, error) {
	rec, stored, err := h.catalog.Open(ctx, org, name)
	if errors.Is(err, refs.ErrRepositoryNotFound) {
		err = fail(ErrRepositoryNotFound, "repository %q not found", name)
	}
	if err != nil {
		return nil, err
	}
	if rec.Name != name { // renamed in between
		return nil, fail(ErrRepositoryNotFound, "repository %q not found", name)
	}
	return h.opened(ctx, &rec, stored)
}

// Item describes the repository.
func (r *Repository) Item() Item {
	r.mustBeRead("Item")
	return r.record.item()
}

// Objects opens the repository's objects for reading; the caller closes the view.
func (r *Repository) Objects(ctx context.Context) (*odb.View, error) {
	var v *odb.View
	err := r.confirm(ctx, func(c *confirmation) (err error) {
		opening := r.host.objects.Opening(r.record.Pool)
		set, take := c.along(opening.ReadAhead)()
		rows, err := r.host.keys.Read(ctx, set)
		if err == nil {
			take(rows)
			err = c.err()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("open objects of repository %s: %w", r.record.ID, err), opening.Close())
		}
		v, err = r.view(ctx, opening)
		return err
	})
	return v, err
}

// view ends an opening.
func (r *Repository) view(ctx context.Context, opening *odb.Opening) (*odb.View, error) {
	v, err := opening.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("open objects of repository %s: %w", r.record.ID, err)
	}
	return v.For(r.record.Org), nil
}

// open is names and Objects, both as of one instant. The caller closes what it returns.
func (r *Repository) open(ctx context.Context, likely ...string) (*refs.Snapshot, *odb.View, error) {
	names, view, err := r.openVisible(ctx, likely...)
	if err != nil {
		return nil, nil, err
	}
	if err := r.waitDurable(ctx, names); err != nil {
		return nil, nil, errors.Join(err, names.Close(), view.Close())
	}
	return names, view, nil
}

// openVisible is open for values that may not be durable yet.
func (r *Repository) openVisible(
	ctx context.Context, likely ...string,
) (names *refs.Snapshot, view *odb.View, err error) {
	if r.past != nil {
		return r.past.open(ctx, r, likely)
	}
	err = r.confirm(ctx, func(c *confirmation) (err error) {
		opening := r.host.objects.Opening(r.record.Pool)
		names, view, err = r.openAt(ctx, c, r.host.names.SnapshotWith, opening, opening.ReadAhead, likely)
		return err
	})
	return names, view, err
}

// openForWrite is openVisible for a write of the actor to refs of these stored names. Where reads
// are round trips, the first try of the actor's transaction builds on what this reads.
func (r *Repository) openForWrite(
	ctx context.Context, actor *Actor, likely ...string,
) (names *refs.Snapshot, view *odb.View, err error) {
	if !r.host.recalls || r.past != nil {
		return r.openVisible(ctx, likely...)
	}
	snapshot := func(
		ctx context.Context, repo refs.RepoID, ahead refs.Ahead, likely ...string,
	) (names *refs.Snapshot, err error) {
		names, actor.begun, err = r.host.names.SnapshotFor(ctx, repo, actor.Receipt, ahead, likely...)
		return names, err
	}
	err = r.confirm(ctx, func(c *confirmation) (err error) {
		opening := r.host.objects.Opening(r.record.Pool)
		opening.ForWrite()
		ahead := func() (kv.ReadSet, func(kv.Rows)) { // what turn.ahead asks for
			set, take := opening.ReadAhead()
			count := len(set.Keys)
			if c == nil {
				set.Keys = append(set.Keys, catalog.RecordKey(r.record.ID))
			}
			if r.host.followOrg != nil {
				set.Keys = append(set.Keys, organization.Key(r.record.Org))
			}
			return set, func(rows kv.Rows) { take(kv.Rows{Values: rows.Values[:count], Pages: rows.Pages}) }
		}
		names, view, err = r.openAt(ctx, c, snapshot, opening, ahead, likely)
		return err
	})
	return names, view, err
}

// openAt opens refs by a method of [refs.Store], and with what that reads ahead objects.
func (r *Repository) openAt(
	ctx context.Context, c *confirmation, open snapshotter, opening *odb.Opening, ahead refs.Ahead, likely []string,
) (*refs.Snapshot, *odb.View, error) {
	names, err := r.refsWith(ctx, c, open, ahead, likely)
	if err != nil {
		return nil, nil, errors.Join(err, opening.Close())
	}
	view, err := r.view(ctx, opening)
	if err != nil {
		return nil, nil, errors.Join(err, names.Close())
	}
	return names, view, nil
}

// snapshotter is a method of [refs.Store] that opens refs.
type snapshotter func(
	ctx context.Context, repo refs.RepoID, ahead refs.Ahead, likely ...string,
) (*refs.Snapshot, error)

// refsWith opens refs by a method of [refs.Store], with the confirmation.
func (r *Repository) refsWith(
	ctx context.Context, c *confirmation, open snapshotter, ahead refs.Ahead, likely []string,
) (*refs.Snapshot, error) {
	names, err := open(ctx, r.record.ID, c.along(ahead), likely...)
	if err != nil {
		return nil, r.gone(err)
	}
	if err := c.err(); err != nil {
		return nil, errors.Join(err, names.Close())
	}
	return names, nil
}

// writable is Objects for a write of the actor to refs of these stored names: what quarantines over
// it hold is held of the quotas. The caller closes the view and releases the actor's hold.
func (r *Repository) writable(ctx context.Context, actor *Actor, likely ...string) (*odb.View, error) {
	if r.creation != nil {
		return r.begin(ctx, actor)
	}
	view, err := r.objectsForWrite(ctx, actor, likely)
	if err != nil {
		return nil, err
	}
	if err := r.hold(ctx, actor, view); err != nil {
		return nil, errors.Join(err, view.Close())
	}
	return view, nil
}

// objectsForWrite is Objects, and openForWrite if that helps a write to refs of these stored names.
func (r *Repository) objectsForWrite(ctx context.Context, actor *Actor, likely []string) (*odb.View, error) {
	if !r.host.recalls || len(likely) == 0 || len(likely) > begunMax {
		return r.Objects(ctx)
	}
	names, view, err := r.openForWrite(ctx, actor, likely...)
	if err != nil {
		return nil, err
	}
	if err := names.Close(); err != nil {
		return nil, errors.Join(err, view.Close())
	}
	return view, nil
}

// begunMax bounds the refs of a write that are read before its transaction: with more of them there
// is little to win by one read less.
const begunMax = 64

// hold makes what quarantines over a view hold be held of the quotas. The caller releases the
// actor's hold.
func (r *Repository) hold(ctx context.Context, actor *Actor, view *odb.View) (err error) {
	if err := r.writes(); err != nil {
		return err
	}
	actor.hold, err = r.host.quotas.Begin(ctx, r.counted())
	if err == nil && actor.hold != nil {
		view.Limit(actor.hold.Grow)
	}
	return err
}

// heldMax is the size in bytes up to which a [file.SpillBuffer] of a request stays in memory.
const heldMax = 1 << 20

// NewSpillBuffer returns an empty buffer for what one request reads back later; the caller closes
// it.
func (r *Repository) NewSpillBuffer() *file.SpillBuffer {
	return file.NewSpillBuffer(r.host.files, heldMax)
}

// visibleNames opens a snapshot of the repository's refs, which the caller closes. Its values may
// not be durable yet. It is for looking up refs of these stored names, among others.
func (r *Repository) visibleNames(ctx context.Context, likely ...string) (*refs.Snapshot, error) {
	if r.past != nil {
		return r.past.names(ctx, r, nil, likely)
	}
	if r.creation != nil {
		return r.host.names.Nothing(r.record.ID), nil
	}
	var names *refs.Snapshot
	err := r.confirm(ctx, func(c *confirmation) (err error) {
		names, err = r.refsWith(ctx, c, r.host.names.SnapshotWith, nil, likely)
		return err
	})
	return names, err
}

// names is visibleNames for values that are durable.
func (r *Repository) names(ctx context.Context, likely ...string) (*refs.Snapshot, error) {
	snapshot, err := r.visibleNames(ctx, likely...)
	if err != nil {
		return nil, err
	}
	return r.durable(ctx, snapshot)
}

// allNames is names for a walk over the refs.
func (r *Repository) allNames(ctx context.Context, likely ...string) (*refs.Snapshot, error) {
	if r.past != nil {
		return r.names(ctx, likely...)
	}
	var names *refs.Snapshot
	err := r.confirm(ctx, func(c *confirmation) (err error) {
		names, err = r.refsWith(ctx, c, r.host.names.SnapshotAll, nil, likely)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.durable(ctx, names)
}

// durable returns a snapshot when its values are durable.
func (r *Repository) durable(ctx context.Context, snapshot *refs.Snapshot) (*refs.Snapshot, error) {
	if err := r.waitDurable(ctx, snapshot); err != nil {
		return nil, errors.Join(err, snapshot.Close())
	}
	return snapshot, nil
}

func (r *Repository) waitDurable(ctx context.Context, names *refs.Snapshot) error {
	if err := names.WaitDurable(ctx); err != nil {
		return fmt.Errorf("wait for refs of repository %s: %w", r.record.ID, err)
	}
	return nil
}

// Sequence returns the repository's journal position.
func (r *Repository) Sequence(ctx context.Context) (uint64, error) {
	r.mustBeRead("Sequence")
	sequence, err := r.host.names.Head(ctx, r.record.ID)
	if err != nil {
		return 0, r.gone(err)
	}
	return sequence, nil
}

// Await returns when the journal has reached sequence, or with the error of ctx.
func (r *Repository) Await(ctx context.Context, sequence uint64) error {
	r.mustBeRead("Await")
	return r.gone(r.host.names.Await(ctx, r.record.ID, sequence))
}

// defaultRef is the stored name of the default branch in a namespace.
func (r *Repository) defaultRef(ns refs.Namespace) string {
	return ns.Full("refs/heads/" + r.record.DefaultBranch)
}

// causeImport is the cause of changes through `+import`: old history, which is not announced.
const causeImport = "import"

// change describes a transaction of the actor, on refs of these stored names, to the journal, and
// announces it to the listeners.
func (r *Repository) change(actor *Actor, cause string, names ...string) refs.Change {
	change := refs.Change{
		Org:     r.record.Org,
		Name:    r.record.Name,
		Actor:   actor.Subject,
		Cause:   cause,
		Names:   names,
		Begun:   actor.begun,
		Policy:  actor.Policy,
		Receipt: actor.Receipt,
		DryRun:  actor.DryRun,
		Signed:  r.storedSigned(actor.Policy),
		Time:    r.host.now(),
	}
	if cause != causeImport {
		r.host.outbox.Follow(&change, r.record.ID, &r.record)
	}
	return change
}

// transact runs a transaction of the actor on the repository, as [refs.Store.Update] does, which
// lists the errors. prepare is given the repository as this try finds it; it may refresh objects,
// which may be nil, and stage them. The first branch becomes the default branch in the same batch.
// Objects of a batch that was applied are settled.
func (r *Repository) transact(
	ctx context.Context, actor *Actor, change refs.Change, objects *odb.Quarantine, prepare func(
		ctx context.Context, tx *refs.Tx, now *Repository,
	) error,
) (refs.Result, error) {
	r.mustBeRead("a transaction")
	if err := r.writes(); err != nil {
		return refs.Result{}, err
	}
	ctx, s := span.Begin(ctx, "ref transaction")
	if s != nil {
		s.Text(spanRepository, r.record.ID.String())
		s.Text("packhorse.cause", change.Cause)
	}
	t := r.turn(actor, change, objects)
	r.host.causes.follow(ctx, &t.change, r.record.ID)
	combine(&t.change, actor, objects)
	done, err := r.host.names.Update(ctx, r.record.ID, t.change, func(ctx context.Context, tx *refs.Tx) error {
		now, err := t.enter(ctx, tx)
		if err != nil {
			return err
		}
		if err := prepare(ctx, tx, now); errors.Is(err, odb.ErrUncommitted) {
			return refs.ErrAlone
		} else if err != nil {
			return err
		}
		return t.leave(ctx)
	})
	t.settle(ctx, done, err)
	s.End(err)
	return done, r.gone(err)
}

// spanRepository is the attribute of spans that names a repository, by its ID.
const spanRepository = "packhorse.repository.id"

// turn is one repository's part in a transaction of an actor: what is read with its head, and what
// surrounds the changes of each try.
type turn struct {
	repo    *Repository
	actor   *Actor
	objects *odb.Quarantine // nil without new objects
	change  refs.Change

	stored, org []byte // the rows of the repository and of its organization as this try finds them
	tx          *refs.Tx
	now         *Repository
}

// turn returns the part of a change, bound by the actor's path policies.
func (r *Repository) turn(actor *Actor, change refs.Change, objects *odb.Quarantine) *turn {
	t := &turn{repo: r, actor: actor, objects: objects, change: change}
	if guard := r.newPathGuard(actor.Paths); guard != nil && change.Check == nil {
		if objects == nil {
			guard.bindStored(&t.change)
		} else {
			guard.bind(&t.change, objects.View)
		}
	}
	t.change.Ahead = t.ahead
	return t
}

// ahead asks for the rows that each try begins with.
func (t *turn) ahead() (kv.ReadSet, func(kv.Rows)) {
	set, take := kv.ReadSet{}, func(kv.Rows) {}
	if t.objects != nil {
		set, take = t.objects.ReadAhead()
	}
	host, record := t.repo.host, &t.repo.record
	count := len(set.Keys)
	set.Keys = append(set.Keys, catalog.RecordKey(record.ID))
	if host.followOrg != nil {
		set.Keys = append(set.Keys, organization.Key(record.Org))
	}
	return set, func(rows kv.Rows) {
		t.stored = rows.Values[count]
		if host.followOrg != nil {
			t.org = rows.Values[count+1]
		}
		take(kv.Rows{Values: rows.Values[:count], Pages: rows.Pages})
	}
}

// enter begins a try, and returns the repository as it finds it.
func (t *turn) enter(ctx context.Context, tx *refs.Tx) (now *Repository, err error) {
	t.tx = tx
	if host := t.repo.host; host.followOrg != nil {
		if err := host.followOrg(ctx, t.repo.record.Org, t.org); err != nil {
			return nil, err
		}
	}
	t.now, err = t.repo.guard(tx, t.actor, t.stored)
	return t.now, err
}

// leave ends a try behind its changes.
func (t *turn) leave(ctx context.Context) error {
	if err := t.now.adopt(ctx, t.tx); err != nil {
		return err
	}
	return t.actor.hold.Stage(ctx, t.tx.Batch())
}

// settle tells quotas and objects what became of the transaction.
func (t *turn) settle(ctx context.Context, done refs.Result, err error) {
	switch {
	case t.actor.DryRun && t.objects != nil:
		t.objects.Unstage()
	case err == nil && !done.Replayed && !t.actor.DryRun:
		t.actor.hold.Settle()
		if t.objects != nil && done.Sequence == t.tx.After() {
			t.objects.Settled(ctx)
		}
	}
}

// guard makes a transaction depend on the repository being there as its record says that was read
// with the head, nil for none, and on room on the disk and the token being good to the last moment.
// It returns the repository as it is there.
func (r *Repository) guard(tx *refs.Tx, actor *Actor, stored []byte) (*Repository, error) {
	if stored == nil {
		return nil, fail(ErrRepositoryNotFound, "repository %q not found", r.record.Name)
	}
	tx.Batch().Require(catalog.RecordKey(r.record.ID), stored)
	now := *r
	if !bytes.Equal(stored, r.stored) {
		rec, err := decodeRecord(r.record.ID, stored)
		if err != nil {
			return nil, err
		}
		if rec.Name != r.record.Name { // whoever opened it by its old name has no right to the new one
			return nil, fail(ErrRepositoryNotFound, "repository %q not found", r.record.Name)
		}
		now.stored = stored
		now.record.follow(&rec)
	}
	if err := r.host.space.Check(); err != nil {
		return nil, err
	}
	return &now, actor.recheck()
}

// recheck is the actor's for what begins without a transaction: it goes by the row of the
// organization as it is now.
func (r *Repository) recheck(ctx context.Context, actor *Actor) error {
	if err := r.writes(); err != nil {
		return err
	}
	if r.host.followOrg != nil {
		if err := r.host.readOrg(ctx, r.record.Org); err != nil {
			return err
		}
	}
	return actor.recheck()
}

// gone turns the absence of a repository's refs or pool into its own.
func (r *Repository) gone(err error) error {
	if errors.Is(err, refs.ErrRepositoryNotFound) || errors.Is(err, odb.ErrNoPool) {
		return fail(ErrRepositoryNotFound, "repository %q not found", r.record.Name)
	}
	return err
}
