package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
	"packhorse/refs"
)

// stormClient is one client.
type stormClient struct {
	tb     testing.TB
	repos  [repoCount]*engine.Repository
	seeds  [repoCount]object.ID
	number int
	random *rand.Rand
	count  int
	seen   refsOfAll // the last values it read, for expectations
}

// next decides what to ask for.
func (c *stormClient) next() (calls []write) {
	switch kind := kinds[c.random.IntN(len(kinds))]; kind {
	case readEveryRepo:
		for _, repo := range c.random.Perm(repoCount) {
			calls = append(calls, c.one(readBranches, repo))
		}
		return calls
	case writeTransaction:
		whole := write{kind: kind}
		for _, repo := range c.random.Perm(repoCount)[:2+c.random.IntN(repoCount-1)] {
			whole.parts = append(whole.parts, c.one(partKinds[c.random.IntN(len(partKinds))], repo))
		}
		return []write{whole}
	default:
		return []write{c.one(kind, c.random.IntN(repoCount))}
	}
}

// one decides on the rest of a call of a kind.
func (c *stormClient) one(kind writeKind, repo int) write {
	w := write{kind: kind, repo: repo, slot: c.random.IntN(slotTag), base: -1}
	seen := &c.seen[repo]
	switch w.kind {
	case writeCommit:
		if w.slot != slotMain && c.random.IntN(2) == 0 {
			w.base = slotMain
		}
		if expected := seen[w.slot]; !expected.IsZero() && c.random.IntN(2) == 0 {
			w.expected = &expected
		}
	case writeCreate:
		if w.slot == slotMain {
			w.slot = slotTag
			break
		}
		w.base = c.random.IntN(slotTag)
	case writeDelete:
		w.slot = slotA + c.random.IntN(slotNotes-slotA)
	case writePush:
		w.expected = &seen[w.slot]
		if c.random.IntN(4) == 0 {
			w.expected = &object.ID{}
		}
		w.expected = new(*w.expected) // seen goes on changing
	case writeMerge:
		w.source = seen[c.random.IntN(slotTag)]
		if w.source.IsZero() {
			w.source = c.seeds[repo]
		}
	case writeNote:
		w.slot = slotNotes
	case writeRestore, readBranches, writeTransaction, readEveryRepo:
	}
	return w
}

// do asks for it. An error is one that no call may meet; refusals are outcomes.
func (c *stormClient) do(ctx context.Context, w write) (outcome, error) {
	var got outcome
	switch w.kind {
	case writeCommit, writeRestore:
		got = c.commit(ctx, w)
	case writeCreate:
		got = c.create(ctx, w)
	case writeDelete:
		remove := c.repos[w.repo].DeleteBranch
		if w.slot == slotTag {
			remove = c.repos[w.repo].DeleteTag
		}
		deleted, err := remove(ctx, acme, namespaceOf(w.slot), slotNames[w.slot])
		got = outcome{err: err, sequence: deleted.Sequence}
	case writePush:
		got = c.push(ctx, w)
	case writeMerge:
		got = c.merge(ctx, w)
	case writeNote:
		got = c.note(ctx, w.repo)
	case writeTransaction:
		got = c.transact(ctx, w)
	case readBranches, readEveryRepo:
		got = c.list(ctx, w.repo)
	}
	told := w // what a refusal speaks of
	if failed, ok := errors.AsType[*engine.StepError](got.err); ok {
		told = w.parts[failed.Step]
	}
	var stale *engine.StaleError
	switch {
	case errors.As(got.err, &stale):
		got.actual = stale.Actual
		c.seen[told.repo][told.slot] = stale.Actual
	case got.err == nil && w.kind == writeTransaction:
		for i, part := range w.parts {
			c.seen[part.repo][part.slot] = got.parts[i].new
		}
	case got.err == nil && got.sequence > 0:
		c.seen[w.repo][w.slot] = got.new
	case got.err != nil && !errors.Is(got.err, engine.ErrExists) && !errors.Is(got.err, engine.ErrNotFound) &&
		!errors.Is(got.err, refs.ErrBusy) && (w.kind != writePush || !errors.Is(got.err, refs.ErrStale)):
		return got, got.err
	}
	return got, nil
}

func (c *stormClient) commit(ctx context.Context, w write) outcome {
	c.count++
	target := targetOf(w)
	var result engine.CommitResult
	var err error
	if w.kind == writeRestore {
		details := engine.CommitDetails{Message: fmt.Sprintf("%d of client %d", c.count, c.number), Author: thor}
		request := engine.RestoreRequest{Target: target, Details: details, Commit: named(c.seeds[w.repo])}
		result, err = c.repos[w.repo].RestoreCommit(ctx, acme, request)
	} else {
		result, err = upload(c.repos[w.repo], acme, target, change{path: fmt.Sprint(c.number), content: fmt.Sprint(c.count)})
	}
	got := outcome{err: err, old: result.Old, new: result.New, sequence: result.Sequence}
	if err == nil {
		got.parent, got.err = parentOf(ctx, c.repos[w.repo], result.New)
	}
	return got
}

// targetOf is the target of a commit.
func targetOf(w write) engine.CommitTarget {
	target := engine.CommitTarget{Branch: slotNames[w.slot], Namespace: namespaceOf(w.slot), Expected: w.expected}
	if w.base >= 0 {
		target.Base, target.BaseNamespace = slotNames[w.base], namespaceOf(w.base)
	}
	return target
}

// transact makes the writes of a transaction.
func (c *stormClient) transact(ctx context.Context, w write) outcome {
	c.count++
	parts, steps := make([]engine.Part, len(w.parts)), make([]engine.Step, len(w.parts))
	contents := map[string][]byte{}
	for i, part := range w.parts {
		parts[i] = engine.Part{Repo: c.repos[part.repo], Actor: acme}
		steps[i] = engine.Step{Part: i, Operation: c.operation(part, fmt.Sprint(i))}
		if part.kind == writeCommit {
			contents[fmt.Sprint(i)] = fmt.Append(nil, c.count)
		}
	}
	result, err := transact(ctx, parts[0].Repo.OfHost(), parts, steps, contents)
	got := outcome{err: err}
	if err != nil {
		return got
	}
	for i, part := range w.parts {
		done := outcome{sequence: result.Sequences[i]}
		switch told := result.Outcomes[i]; {
		case told.Commit != nil:
			done.old, done.new = told.Commit.Old, told.Commit.New
			if done.parent, err = parentOf(ctx, c.repos[part.repo], done.new); err != nil {
				return outcome{err: err}
			}
		case told.Branch != nil:
			done.new = told.Branch.Tip
		case told.Tag != nil:
			done.new = told.Tag.Commit
		}
		got.parts = append(got.parts, done)
	}
	return got
}

// operation is a part of a transaction.
func (c *stormClient) operation(w write, contentID string) engine.Operation {
	name, ns := slotNames[w.slot], namespaceOf(w.slot)
	switch {
	case w.kind == writeDelete:
		return &engine.DeleteRefOperation{Namespace: ns, Name: name, Tag: w.slot == slotTag}
	case w.kind == writeCreate && w.slot == slotTag:
		return &engine.CreateTagOperation{Name: name, Target: named(c.seeds[w.repo])}
	case w.kind == writeCreate:
		return &engine.CreateBranchOperation{CreateBranchRequest: createOf(w)}
	}
	return &engine.CommitOperation{UploadRequest: engine.UploadRequest{
		Target:     targetOf(w),
		Details:    engine.CommitDetails{Message: fmt.Sprintf("%d of client %d", c.count, c.number), Author: thor},
		Operations: []engine.FileOperation{{Path: fmt.Sprint(c.number), ContentID: contentID}},
	}}
}

// createOf asks for a branch.
func createOf(w write) engine.CreateBranchRequest {
	return engine.CreateBranchRequest{
		Branch: slotNames[w.slot], Namespace: namespaceOf(w.slot),
		Base: engine.CommitName{Text: slotNames[w.base], Kind: engine.BranchName, Namespace: namespaceOf(w.base)},
	}
}

// parentOf reads the first parent of a commit.
func parentOf(ctx context.Context, repo *engine.Repository, id object.ID) (object.ID, error) {
	view, err := repo.Objects(ctx)
	if err != nil {
		return object.ZeroID, err
	}
	defer view.Close()
	row, err := view.Graph(ctx, id)
	if err != nil {
		return object.ZeroID, err
	}
	return row.Parents[0], nil
}

func (c *stormClient) create(ctx context.Context, w write) outcome {
	if w.slot == slotTag {
		created, err := c.repos[w.repo].CreateTag(ctx, acme, refs.Main, slotNames[slotTag], named(c.seeds[w.repo]))
		got := outcome{err: err, sequence: created.Sequence}
		if err == nil {
			got.new = c.seeds[w.repo]
		}
		return got
	}
	created, err := c.repos[w.repo].CreateBranch(ctx, acme, createOf(w))
	return outcome{err: err, new: created.Tip, sequence: created.Sequence}
}

func (c *stormClient) list(ctx context.Context, repo int) outcome {
	page, err := c.repos[repo].Branches(ctx, refs.Main, "", slots)
	got := outcome{err: err}
	for _, branch := range page.Items {
		if slot := slotOf(refs.Main.BranchPrefix() + branch.Name); slot >= 0 {
			got.tips[slot], c.seen[repo][slot] = branch.Tip, branch.Tip
		}
	}
	return got
}

// push pushes a commit of its own, whose parent is the expected tip.
func (c *stormClient) push(ctx context.Context, w write) outcome {
	c.count++
	content := fmt.Appendf(nil, "%d of client %d", c.count, c.number)
	blob := packtest.Hash(c.tb, object.TypeBlob, content)
	tree := fmt.Appendf(nil, "100644 pushed\x00%s", blob[:])
	parent := ""
	if !w.expected.IsZero() {
		parent = fmt.Sprintf("parent %s\n", w.expected)
	}
	person := "A U Thor <author@example.com> 1700000000 +0000"
	commit := fmt.Appendf(nil, "tree %s\n%sauthor %s\ncommitter %s\n\n%s\n",
		packtest.Hash(c.tb, object.TypeTree, tree), parent, person, person, content)
	id := packtest.Hash(c.tb, object.TypeCommit, commit)
	p, err := c.repos[w.repo].Receive(ctx, acme, engine.PushRequest{
		Namespace: namespaceOf(w.slot),
		Commands:  []engine.Command{{Name: "refs/heads/" + slotNames[w.slot], Old: *w.expected, New: id}},
		Pack: bytes.NewReader(packtest.Encode(packtest.Whole(object.TypeBlob, content),
			packtest.Whole(object.TypeTree, tree), packtest.Whole(object.TypeCommit, commit))),
	})
	if err != nil {
		return outcome{err: err}
	}
	defer p.Close()
	result, err := p.Finish(ctx, nil)
	if err == nil {
		err = cmp.Or(result.Unpack, result.Commands[0].Err)
	}
	if err != nil {
		return outcome{err: err}
	}
	return outcome{old: *w.expected, new: id, sequence: result.Sequence}
}

// merge merges the source. One that conflicts, or has nothing to do, changes nothing.
func (c *stormClient) merge(ctx context.Context, w write) outcome {
	c.count++
	merged, err := c.repos[w.repo].Merge(ctx, acme, engine.MergeRequest{
		Source: named(w.source), Target: engine.MergeBranch{Name: slotNames[w.slot], Namespace: namespaceOf(w.slot)},
		Details:   engine.CommitDetails{Message: fmt.Sprintf("%d of client %d", c.count, c.number), Author: thor},
		Strategy:  engine.PreferForward,
		Unrelated: true,
	})
	got := outcome{err: err, old: merged.Old, new: merged.Commit, sequence: merged.Sequence}
	if merged.Kind == engine.MergeNothing || merged.Kind == engine.MergeConflicted {
		got.sequence = 0 // that of the moment, of no change of its own
	}
	return got
}

// note appends a line to the note of the seed.
func (c *stormClient) note(ctx context.Context, repo int) outcome {
	c.count++
	text := fmt.Sprintf("(%d of client %d)", c.count, c.number)
	added, err := c.repos[repo].AddNote(ctx, acme, noteOf(c.seeds[repo]), text, true)
	return outcome{err: err, old: added.Old, new: added.New, sequence: added.Sequence, text: text}
}
