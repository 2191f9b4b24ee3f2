package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"packhorse/engine/revision"
	"packhorse/engine/upstream"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/revwalk"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Command is one ref update of a push: gitprotocol-pack(5), "Reference Update Request". The zero id
// is no value.
type Command struct {
	Name     string // as clients of the namespace see it
	Old, New object.ID
}

// PushRequest is the ref updates and options of a push.
type PushRequest struct {
	Namespace refs.Namespace
	// Import marks the push of an old history: it is no news to webhooks and upstreams.
	Import   bool
	Commands []Command
	// Pack is read to its end; nil when the push only deletes refs.
	Pack    io.Reader
	Atomic  bool
	Options []string
	// Shallow is the client's shallow boundary.
	Shallow []object.ID

	// upstream is set when the objects were fetched from an upstream, nil for a push.
	upstream *upstreamPull
}

// upstreamPull holds the differences between a fetch from an upstream and a push.
type upstreamPull struct {
	// stage adds rows to the batch of updates that are made.
	stage func(b *kv.Batch, moved []upstream.Update)
	// head is the ref that becomes the default branch when it is created, "" for none.
	head string
}

// PushResult is the outcome of a push: of its pack, and of each command in their order.
type PushResult struct {
	Unpack   error
	Commands []CommandResult
	Sequence uint64
	// Dangling is the default branch if it does not exist after the push while other branches do,
	// so that a clone would check nothing out. Else it is "".
	Dangling string
}

// CommandResult is what became of one command; Err is nil when it was carried out.
type CommandResult struct {
	Name string
	Err  error
	// Absent says that the ref to delete did not exist, as the client expected.
	Absent bool
}

// RefusalError is why a command of a push was not carried out, in the words in which git reports
// it.
type RefusalError string

func (r RefusalError) Error() string { return string(r) }

// Why commands are refused, apart from what package refs finds wrong with them.
//
//nolint:errname // they are no kinds of errors but words for the report of a push
const (
	// RefusedUnpacker says that the pack was refused, and all commands with it.
	RefusedUnpacker = RefusalError("unpacker error")
	// RefusedAtomic says that another command of an atomic push was refused.
	RefusedAtomic = RefusalError("atomic push failure")
	// RefusedMissing says that the new object is neither in the pack nor in the repository.
	RefusedMissing = RefusalError("missing necessary objects")
	// RefusedShallow says that the history behind the new object ends at commits whose parents the
	// repository does not have.
	RefusedShallow = RefusalError("shallow update not allowed")
	// RefusedTagChain says that the new object begins too long a chain of tag objects.
	RefusedTagChain = RefusalError("too many tag objects lead from one to the next")
	// RefusedDefault says that a clone would be left without a branch to check out.
	RefusedDefault = RefusalError("deletion of the current branch prohibited")
)

// Push is a push whose pack has been read into a quarantine.
type Push struct {
	repo    *Repository
	actor   Actor
	request PushRequest
	view    *odb.View
	ingest  *ingest.Ingest
	objects *odb.Quarantine
	unpack  error // error in the pack
	shallow bool  // the pack was refused because it starts at the boundary of the client's shallow history
	// signatures are those of the commits that it brings.
	signatures *signatures
}

// CommandCountMax returns the limit of ref updates in a push.
func (h *Host) CommandCountMax() int { return h.limits.CommandCountMax }

// CheckCommands returns a [LimitError] for more ref updates than one push may have. Callers check
// before they store another one.
func (h *Host) CheckCommands(count int) error {
	if limit := h.limits.CommandCountMax; count > limit {
		return &LimitError{Limit: "ref updates in one push", Max: int64(limit)}
	}
	return nil
}

// Receive reads a push to the end of its pack. Errors in the pack itself are kept for [Push.Finish]
// to report; returned errors are those of reading, of limits, and of the stores.
func (r *Repository) Receive(ctx context.Context, actor Actor, request PushRequest) (*Push, error) {
	if request.upstream == nil {
		if err := r.host.CheckCommands(len(request.Commands)); err != nil {
			return nil, err
		}
	}
	if err := r.host.space.Check(); err != nil {
		return nil, err
	}
	p := &Push{repo: r, actor: actor, request: request, signatures: r.newSignatures(actor.Policy)}
	var err error
	if p.view, err = r.writable(ctx, &p.actor, p.named()...); err != nil {
		return nil, err
	}
	if request.Pack == nil {
		p.objects = p.view.NewQuarantine(ctx)
		return p, nil
	}
	p.ingest, err = ingest.Read(ctx, p.view, r.host.space.Reader(request.Pack), ingest.Options{Shallow: request.Shallow})
	if ingest.IsBadPack(err) && request.upstream == nil {
		p.unpack = err
		// A client that is still sending would not read the refusal.
		_, err = io.Copy(io.Discard, request.Pack)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("receive pack: %w", err)
	}
	return p, nil
}

// Close discards an uncommitted push.
func (p *Push) Close() {
	if p.objects != nil {
		p.objects.Close()
	}
	if p.ingest != nil {
		p.ingest.Close()
	}
	p.view.Close()
	p.actor.hold.Release()
}

// Finish resolves and checks the pack and moves the refs; it returns when the result is durable.
// progress receives lines for the client. Errors of the client are in the result; a returned error
// is the server's.
func (p *Push) Finish(ctx context.Context, progress func(string)) (*PushResult, error) {
	if err := p.resolve(ctx, progress); err != nil {
		return nil, err
	}
	if p.unpack != nil {
		return p.refuseAll(RefusedUnpacker), nil
	}
	var results []CommandResult
	change := p.repo.change(&p.actor, p.cause(), p.named()...)
	change.Options = p.request.Options
	change.FastForward = p.fastForward
	change.Signed = p.signed
	if guard := p.repo.newPathGuard(p.actor.Paths); guard != nil {
		guard.bind(&change, p.objects.View)
	}
	if err := p.verify(ctx, &change); err != nil {
		return nil, err
	}
	if p.repo.creation != nil {
		return (&firstPush{Push: p, change: change}).finish(ctx)
	}
	var dangling string
	apply := func(ctx context.Context, tx *refs.Tx, now *Repository) error {
		var err error
		if results, err = p.apply(ctx, tx, now); err != nil {
			return err
		}
		dangling, err = p.settleDefault(ctx, tx, now)
		return err
	}
	done, err := p.repo.transact(ctx, &p.actor, change, p.objects, apply)
	if err != nil {
		return nil, err
	}
	if len(done.Updates) == 0 {
		return &PushResult{Commands: results, Sequence: done.Sequence}, nil
	}
	p.objects.Settled(ctx)
	return &PushResult{Commands: results, Sequence: done.Sequence, Dangling: dangling}, nil
}

// resolve turns the pack that was read into objects, or records the error in it.
func (p *Push) resolve(ctx context.Context, progress func(string)) error {
	if p.unpack != nil || p.objects != nil {
		return nil
	}
	objects, _, err := p.ingest.Resolve(ctx, narrate(progress))
	var missing *ingest.MissingError
	switch {
	case errors.As(err, &missing) && missing.Shallow:
		// As in git, refs that need nothing of the pack move nevertheless.
		p.shallow, p.objects = true, p.view.NewQuarantine(ctx)
	case ingest.IsBadPack(err), errors.Is(err, pack.ErrLimit):
		p.unpack = err
	case err != nil:
		return fmt.Errorf("resolve pack: %w", err)
	default:
		p.objects = objects
	}
	return nil
}

// named returns the stored names of the refs that the push looks up.
func (p *Push) named() []string {
	names := append(make([]string, 0, 1+len(p.request.Commands)), p.repo.defaultRef(refs.Main))
	for _, command := range p.request.Commands {
		names = append(names, p.request.Namespace.Full(command.Name))
	}
	return names
}

// cause is the name of this kind of change in the journal.
func (p *Push) cause() string {
	switch {
	case p.request.Import:
		return causeImport
	case p.request.upstream != nil:
		return causePull
	default:
		return "push"
	}
}

func (p *Push) refuseAll(reason error) *PushResult {
	result := &PushResult{Unpack: p.unpack}
	for _, command := range p.request.Commands {
		result.Commands = append(result.Commands, CommandResult{Name: command.Name, Err: reason})
	}
	return result
}

// settleDefault chooses the default branch if this push is to do that. It returns the default
// branch that is missing while other branches are there, "" for none.
func (p *Push) settleDefault(ctx context.Context, tx *refs.Tx, now *Repository) (dangling string, err error) {
	up := p.request.upstream
	if up != nil && now.record.Chosen != chosenLater && slices.Contains(tx.Created(branchPrefix), up.head) {
		if err := now.putDefault(tx, strings.TrimPrefix(up.head, branchPrefix)); err != nil {
			return "", err
		}
	}
	if err := now.adopt(ctx, tx); err != nil || p.request.Namespace != refs.Main {
		return "", err
	}
	if missing, err := now.dangles(ctx, tx); err != nil || !missing {
		return "", err
	}
	return now.record.DefaultBranch, nil
}

// apply puts the commands that can be carried out, and the objects, into the transaction. now is
// the repository as the transaction finds it.
func (p *Push) apply(ctx context.Context, tx *refs.Tx, now *Repository) ([]CommandResult, error) {
	if err := p.objects.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("refresh objects: %w", err)
	}
	results := make([]CommandResult, len(p.request.Commands))
	var made []upstream.Update
	failed := false
	for _, i := range deletionsFirst(p.request.Commands) {
		command := p.request.Commands[i]
		err := p.command(ctx, tx, now, command)
		absent := errors.Is(err, refs.ErrNotFound)
		if absent {
			err = nil
		}
		if err != nil && !isRefusal(err) {
			return nil, err
		}
		results[i] = CommandResult{Name: command.Name, Err: err, Absent: absent}
		failed = failed || err != nil
		if err == nil && command.Old != command.New {
			made = append(made,
				upstream.Update{Name: p.request.Namespace.Full(command.Name), Old: command.Old, New: command.New})
		}
	}
	if failed && p.request.Atomic {
		for i := range results {
			if results[i].Err == nil {
				results[i].Err = RefusedAtomic
			}
		}
		return results, refs.ErrUnchanged
	}
	if len(made) == 0 {
		return results, refs.ErrUnchanged
	}
	p.remember(tx.Batch(), made)
	if err := p.objects.Stage(ctx, tx.Batch()); err != nil {
		return nil, fmt.Errorf("stage pushed objects: %w", err)
	}
	return results, nil
}

// remember adds to the batch the state of syncing for the updates made.
func (p *Push) remember(b *kv.Batch, made []upstream.Update) {
	switch {
	case p.request.upstream != nil:
		p.request.upstream.stage(b, made)
	case p.request.Import && p.repo.record.Upstream != nil:
		for _, u := range made {
			if upstream.Covers(u.Name) {
				upstream.Hold(b, p.repo.record.ID, u.Name, u.New)
			}
		}
	}
}

// deletionsFirst returns the indexes of commands in an order in which a deleted name makes room for
// a new one.
func deletionsFirst(commands []Command) []int {
	var deletions, others []int
	for i, command := range commands {
		if command.New.IsZero() {
			deletions = append(deletions, i)
		} else {
			others = append(others, i)
		}
	}
	return append(deletions, others...)
}

// command puts one ref update into the transaction. An error that [isRefusal] knows concerns this
// command alone; refs.ErrNotFound says that there is nothing to delete.
func (p *Push) command(ctx context.Context, tx *refs.Tx, now *Repository, command Command) error {
	if err := refs.CheckName(command.Name); err != nil {
		return err
	}
	ns := p.request.Namespace
	full := ns.Full(command.Name)
	if command.New.IsZero() {
		if full == now.defaultRef(refs.Main) {
			return RefusedDefault
		}
		return tx.Delete(ctx, full, &command.Old)
	}
	view := p.objects.View()
	info, err := view.Stat(ctx, command.New)
	switch {
	case errors.Is(err, odb.ErrNotFound) && p.shallow:
		return RefusedShallow
	case errors.Is(err, odb.ErrNotFound):
		return RefusedMissing
	case err != nil:
		return fmt.Errorf("read new tip %s: %w", command.New, err)
	case info.Type != object.TypeCommit && strings.HasPrefix(command.Name, "refs/heads/"):
		return &BranchTypeError{Name: command.Name, ID: command.New, Type: info.Type}
	}
	var peeled object.ID
	if info.Type == object.TypeTag {
		if peeled, _, err = revision.Follow(ctx, view, command.New); errors.Is(err, revision.ErrTagChain) {
			return RefusedTagChain
		} else if err != nil {
			return err
		}
	}
	return tx.Set(ctx, full, &command.Old, command.New, peeled)
}

// fastForward reports whether to contains from. An object that is not a commit contains only
// itself.
func (p *Push) fastForward(ctx context.Context, from, to object.ID) (bool, error) {
	view := p.objects.View()
	for _, id := range []*object.ID{&from, &to} {
		commit, err := revision.Peel(ctx, view, *id)
		if errors.Is(err, revwalk.ErrNotCommit) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		*id = commit
	}
	return revwalk.IsAncestor(ctx, view, from, to)
}

// signed reports whether the new commits of a move are signed.
func (p *Push) signed(ctx context.Context, move refs.Move) (bool, error) {
	return p.signatures.signed(ctx, p.objects.View(), move)
}

// verify checks signatures and paths before the push waits for its turn.
func (p *Push) verify(ctx context.Context, change *refs.Change) error {
	for _, command := range p.request.Commands {
		name := p.request.Namespace.Full(command.Name)
		if command.New.IsZero() || change.Check == nil && !change.Policy.Ops(name).Has(refs.VerifySig) {
			continue
		}
		before, err := p.repo.targetOf(ctx, name)
		if err != nil {
			return err
		}
		if err := verifyAhead(ctx, change, refs.Move{Name: name, Before: before, After: command.New}); err != nil {
			return err
		}
	}
	return nil
}

// targetOf returns the current target of the ref of a stored name, the zero ID if it does not
// exist.
func (r *Repository) targetOf(ctx context.Context, name string) (object.ID, error) {
	names, err := r.visibleNames(ctx, name)
	if err != nil {
		return object.ZeroID, err
	}
	defer names.Close()
	ref, err := names.Lookup(ctx, name)
	if errors.Is(err, refs.ErrNotFound) {
		return object.ZeroID, nil
	}
	if err != nil {
		return object.ZeroID, fmt.Errorf("look up %s: %w", name, err)
	}
	return ref.Target(), nil
}

// isRefusal reports whether err is about one ref update, and not about the stores.
func isRefusal(err error) bool {
	var refusal RefusalError
	var branch *BranchTypeError
	return errors.As(err, &refusal) || errors.As(err, &branch) ||
		errors.Is(err, refs.ErrStale) || errors.Is(err, refs.ErrNameConflict) || errors.Is(err, refs.ErrInvalidName) ||
		errors.Is(err, refs.ErrDenied) || errors.Is(err, refs.ErrLimit)
}

// BranchTypeError says that a branch would point to an object that is not a commit.
type BranchTypeError struct {
	Name string
	ID   object.ID
	Type object.Type
}

func (e *BranchTypeError) Error() string {
	return fmt.Sprintf("branch %s cannot point to %s: it is a %s, not a commit", e.Name, e.ID, e.Type)
}

// Is reports whether target is [ErrInvalid].
func (e *BranchTypeError) Is(target error) bool { return target == ErrInvalid }
