package enginetest

import (
	"context"
	"fmt"

	"packhorse/engine"
	"packhorse/pack/object"
)

// resolveTries is how often the conflicts of a merge or of picks are resolved.
const resolveTries = 3

// alone makes an operation outside of transactions, and returns the commits that it has made.
func (w *Writer) alone(ctx context.Context, to *Written, o *operation) (made []object.ID, err error) {
	repo, actor := to.Repo, w.actor
	switch op := o.Operation.(type) {
	case *engine.CommitOperation:
		u, err := repo.NewUpload(ctx, actor, op.UploadRequest)
		if err != nil {
			return nil, err
		}
		defer u.Close()
		for i, content := range o.contents {
			if err := u.Chunk(ctx, fmt.Sprint(i), []byte(content), true); err != nil {
				return nil, err
			}
		}
		return committed(u.Finish(ctx))
	case *engine.PatchOperation:
		u, err := repo.NewPatchUpload(ctx, actor, op.PatchRequest)
		if err != nil {
			return nil, err
		}
		defer u.Close()
		if err := u.Chunk(ctx, []byte(o.contents[0]), true); err != nil {
			return nil, err
		}
		return committed(u.Finish(ctx))
	case *engine.RestoreOperation:
		return committed(repo.RestoreCommit(ctx, actor, op.RestoreRequest))
	case *engine.MergeOperation:
		return w.mergeAlone(ctx, to, op.MergeRequest)
	case *engine.PickOperation:
		return w.pickAlone(ctx, to, op.PickRequest)
	case *engine.CreateBranchOperation:
		_, err = repo.CreateBranch(ctx, actor, op.CreateBranchRequest)
	case *engine.RenameBranchOperation:
		_, err = w.transaction(ctx, to, op)
	case *engine.DeleteRefOperation:
		if op.Tag {
			_, err = repo.DeleteTag(ctx, actor, op.Namespace, op.Name)
		} else {
			_, err = repo.DeleteBranch(ctx, actor, op.Namespace, op.Name)
		}
	case *engine.CreateTagOperation:
		_, err = repo.CreateTag(ctx, actor, op.Namespace, op.Name, op.Target)
	case *engine.NoteOperation:
		var result engine.NoteResult
		if op.Delete {
			result, err = repo.DeleteNote(ctx, actor, op.Target)
		} else {
			result, err = repo.AddNote(ctx, actor, op.Target, op.Text, op.Append)
		}
		if err == nil && result.New != result.Old {
			made = append(made, result.New)
		}
	default:
		w.tb.Fatalf("no case for %T", op)
	}
	return made, err
}

func committed(result engine.CommitResult, err error) ([]object.ID, error) {
	if err != nil || result.Unchanged {
		return nil, err
	}
	return []object.ID{result.New}, nil
}

// transaction makes an operation without contents as a transaction.
func (w *Writer) transaction(ctx context.Context, to *Written, op engine.Operation) (engine.TransactionResult, error) {
	t, err := w.host.NewTransaction(ctx, []engine.Part{{Repo: to.Repo, Actor: w.actor}}, []engine.Step{{Operation: op}})
	if err != nil {
		return engine.TransactionResult{}, err
	}
	defer t.Close()
	return t.Finish(ctx)
}

func (w *Writer) mergeAlone(ctx context.Context, to *Written, request engine.MergeRequest) ([]object.ID, error) {
	for try := 1; ; try++ {
		outcome, err := to.Repo.Merge(ctx, w.actor, request)
		switch {
		case err != nil:
			return nil, err
		case outcome.Kind == engine.MergeConflicted && try == resolveTries:
			return nil, &engine.ConflictError{Merge: &outcome}
		case outcome.Kind == engine.MergeConflicted:
			request.Resolutions = w.resolutions(to, outcome.Conflicts, 0)
			continue
		case outcome.Kind == engine.MergeCommitted, outcome.Kind == engine.MergeSquashed:
			return []object.ID{outcome.Commit}, nil
		}
		return nil, nil
	}
}

func (w *Writer) pickAlone(ctx context.Context, to *Written, request engine.PickRequest) ([]object.ID, error) {
	for try := 1; ; try++ {
		outcome, err := to.Repo.Pick(ctx, w.actor, request)
		switch {
		case err != nil:
			return nil, err
		case outcome.Kind == engine.PickEmpty, outcome.Kind == engine.PickConflicted && try == resolveTries:
			return nil, &engine.ConflictError{Pick: &outcome}
		case outcome.Kind == engine.PickConflicted:
			request.Resolutions = append(request.Resolutions, w.resolutions(to, outcome.Conflicts, outcome.Failed)...)
			continue
		}
		return picked(&outcome), nil
	}
}
