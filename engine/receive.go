package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Command is one ref update of a push: gitprotocol-pack(5), "Reference Update Request". The zero id is no value.
type Command struct {
	Name     string // as clients of the namespace see it
	Old, New object.ID
}

// PushRequest is what a git client sends.
type PushRequest struct {
	Namespace refs.Namespace
	// Import marks the push of an old history: it is no news to webhooks and upstreams.
	Import   bool
	Commands []Command
	// Pack is read to its end; nil when nothing but deletions was asked for.
	Pack    io.Reader
	Atomic  bool
	Options []string
	// Shallow is the client's shallow boundary.
	Shallow []object.ID
}

// PushResult is what becomes of a push: of its pack, and of each command in the order in which they came.
type PushResult struct {
	Unpack   error
	Commands []CommandResult
	Sequence uint64
}

// CommandResult is what became of one command; Err is nil when it was carried out.
type CommandResult struct {
	Name string
	Err  error
}

// Refusal is why a command of a push was not carried out, in the words in which git reports it.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// Reasons of refusals that several places give.
const (
	refusedUnpacker = Refusal("unpacker error")
	refusedAtomic   = Refusal("atomic push failed")
	refusedMissing  = Refusal("missing necessary objects")
	refusedShallow  = Refusal("shallow update not allowed")
	refusedHead     = Refusal("refusing to delete the default branch")
)

// Push is a push whose pack has been read and stored where nobody sees it.
type Push struct {
	repo    *Repository
	actor   Actor
	request PushRequest
	view    *odb.View
	ingest  *odb.Ingest
	unpack  error
	objects *odb.Quarantine
}

// Receive reads a push to the end of its pack. What is wrong with the pack itself is kept for [Push.Finish] to report;
// errors are those of reading, of limits, and of the stores.
func (r *Repository) Receive(ctx context.Context, actor Actor, request PushRequest) (*Push, error) {
	if limit := r.host.limits.CommandCountMax; len(request.Commands) > limit {
		return nil, &LimitError{Limit: "ref updates in one push", Max: int64(limit)}
	}
	view, err := r.Objects(ctx)
	if err != nil {
		return nil, err
	}
	p := &Push{repo: r, actor: actor, request: request, view: view}
	if request.Pack == nil {
		p.objects = view.NewQuarantine(ctx)
		return p, nil
	}
	p.ingest, err = view.Ingest(ctx, request.Pack, odb.IngestOptions{Shallow: request.Shallow})
	if odb.IsBadPack(err) {
		p.unpack = err
		return p, nil
	}
	if err != nil {
		view.Close()
		return nil, fmt.Errorf("receive pack: %w", err)
	}
	return p, nil
}

// Close gives up what was not committed.
func (p *Push) Close() {
	if p.objects != nil {
		p.objects.Close()
	}
	if p.ingest != nil {
		p.ingest.Close()
	}
	p.view.Close()
}

// Finish resolves and checks the pack and moves the refs; it returns when the result is durable. progress hears lines for
// the client. What the client did wrong is in the result; an error is ours.
func (p *Push) Finish(ctx context.Context, progress func(string)) (*PushResult, error) {
	if p.unpack == nil && p.objects == nil {
		objects, _, err := p.ingest.Resolve(ctx, narrate(progress))
		switch {
		case odb.IsBadPack(err):
			p.unpack = err
		case err != nil:
			return nil, fmt.Errorf("resolve pack: %w", err)
		}
		p.objects = objects
	}
	if p.unpack != nil {
		return p.refuseAll(p.unpackReason()), nil
	}
	var results []CommandResult
	change := p.repo.change(&p.actor, p.cause())
	change.Options = p.request.Options
	change.FastForward = p.fastForward
	done, err := p.repo.host.names.Update(ctx, p.repo.record.ID, change, func(ctx context.Context, tx *refs.Tx) error {
		var err error
		results, err = p.apply(ctx, tx)
		return err
	})
	if err != nil && !errors.Is(err, refs.ErrUnchanged) {
		return nil, p.repo.gone(err)
	}
	p.objects.Settled(ctx)
	return &PushResult{Commands: results, Sequence: done.Sequence}, nil
}

// cause is what the journal calls this kind of change.
func (p *Push) cause() string {
	if p.request.Import {
		return "import"
	}
	return "push"
}

func (p *Push) unpackReason() Refusal {
	if len(p.request.Shallow) > 0 && odb.IsMissing(p.unpack) {
		return refusedShallow
	}
	return refusedUnpacker
}

func (p *Push) refuseAll(reason error) *PushResult {
	result := &PushResult{Unpack: p.unpack}
	for _, command := range p.request.Commands {
		result.Commands = append(result.Commands, CommandResult{Name: command.Name, Err: reason})
	}
	return result
}

// apply puts the commands that can be carried out, and the objects, into the transaction.
func (p *Push) apply(ctx context.Context, tx *refs.Tx) ([]CommandResult, error) {
	if err := p.repo.guard(tx, &p.actor); err != nil {
		return nil, err
	}
	results := make([]CommandResult, len(p.request.Commands))
	failed, moved := false, false
	for _, i := range deletionsFirst(p.request.Commands) {
		command := p.request.Commands[i]
		err := p.command(ctx, tx, command)
		if err != nil && !isRefusal(err) {
			return nil, err
		}
		results[i] = CommandResult{Name: command.Name, Err: err}
		failed = failed || err != nil
		moved = moved || err == nil
	}
	if failed && p.request.Atomic {
		for i := range results {
			if results[i].Err == nil {
				results[i].Err = refusedAtomic
			}
		}
		return results, refs.ErrUnchanged
	}
	if !moved {
		return results, refs.ErrUnchanged
	}
	if err := p.objects.Stage(ctx, tx.Batch()); err != nil {
		return nil, fmt.Errorf("stage pushed objects: %w", err)
	}
	return results, nil
}

// deletionsFirst returns the indexes of commands in an order in which a deleted name makes room for a new one.
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

// command puts one ref update into the transaction. An error that [isRefusal] knows concerns this command alone.
func (p *Push) command(ctx context.Context, tx *refs.Tx, command Command) error {
	ns := p.request.Namespace
	full := ns.Full(command.Name)
	if command.New.IsZero() {
		if full == p.repo.defaultRef(ns) {
			return refusedHead
		}
		return tx.Delete(ctx, full, &command.Old)
	}
	if err := refs.CheckName(command.Name); err != nil {
		return err
	}
	view := p.objects.View()
	info, err := view.Stat(ctx, command.New)
	if errors.Is(err, odb.ErrNotFound) {
		return refusedMissing
	}
	if err != nil {
		return fmt.Errorf("read new tip %s: %w", command.New, err)
	}
	if strings.HasPrefix(command.Name, "refs/heads/") && info.Type != object.TypeCommit {
		return Refusal(fmt.Sprintf("a branch points to a commit, not to a %s", info.Type))
	}
	var peeled object.ID
	if info.Type == object.TypeTag {
		if peeled, _, err = follow(ctx, view, command.New); err != nil {
			return err
		}
	}
	return tx.Set(ctx, full, &command.Old, command.New, peeled)
}

// fastForward tells whether to contains from.
func (p *Push) fastForward(ctx context.Context, from, to object.ID) (bool, error) {
	return p.objects.View().IsAncestor(ctx, from, to)
}

// isRefusal tells whether err is about one ref update, and not about the stores.
func isRefusal(err error) bool {
	var refusal Refusal
	return errors.As(err, &refusal) || errors.Is(err, refs.ErrStale) || errors.Is(err, refs.ErrNameConflict) ||
		errors.Is(err, refs.ErrInvalidName) || errors.Is(err, refs.ErrDenied) || errors.Is(err, refs.ErrLimit)
}
