package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/engine/revision"
	"packhorse/engine/signature"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// signatures checks for one change whether the commits that it adds to its refs are signed. It
// belongs to one goroutine.
//
// For an existing ref, the new commits are those that its old value does not reach, even if other
// refs reach them: a ref outside the policy must not be a way around it. For a created ref, they
// are those that no other ref under verify-sig of the same policy reaches, so that a branch of a
// protected branch need not be checked from the root.
type signatures struct {
	repo   *Repository
	policy refs.Policy
	keys   *signature.Keys
	// known holds the moves that were checked, and verified the signed commits: the repository may
	// have changed between two checks of one move.
	known    map[knownMove]bool
	verified map[object.ID]struct{}
	count    int // commits that walks have given
}

// knownMove is a move, and for a ref that is created the state in which the others were read.
type knownMove struct {
	refs.Move
	names refs.Version
}

func (r *Repository) newSignatures(policy refs.Policy) *signatures {
	return &signatures{repo: r, policy: policy}
}

// signed reports whether every new commit of move has a valid signature of a registered key. A
// target that peels to no commit adds none. Errors: [refs.ErrDenied] when there are too many to
// check.
func (s *signatures) signed(ctx context.Context, view *odb.View, move refs.Move) (bool, error) {
	names, err := s.repo.visibleNames(ctx)
	if err != nil {
		return false, err
	}
	defer names.Close()
	key := knownMove{Move: move}
	if move.Before.IsZero() {
		key.names = names.Version()
	}
	if signed, ok := s.known[key]; ok {
		return signed, nil
	}
	if s.known == nil { // few changes come this far
		s.known, s.verified = make(map[knownMove]bool), make(map[object.ID]struct{})
	}
	tip, t, err := revision.Follow(ctx, view, move.After)
	if err != nil {
		return false, err
	}
	signed := true
	if t == object.TypeCommit {
		hide, err := s.hidden(ctx, view, names, move)
		if err != nil {
			return false, err
		}
		walk := revwalk.WalkOptions{Tips: []object.ID{tip}, Hide: hide}
		err = fair.Do(ctx, func(ctx context.Context) (err error) {
			signed, err = s.newSigned(ctx, view, move.Name, walk)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	s.known[key] = signed
	return signed, nil
}

// newSigned checks the commits of a walk.
func (s *signatures) newSigned(
	ctx context.Context, view *odb.View, name string, walk revwalk.WalkOptions,
) (bool, error) {
	for c, err := range revwalk.Walk(ctx, view, walk) {
		if err != nil {
			return false, fmt.Errorf("walk new history of %s: %w", name, err)
		}
		if s.count++; s.count > s.repo.host.limits.VerifyCountMax {
			detail := fmt.Sprintf("more than %d commits to verify: move the ref in smaller steps",
				s.repo.host.limits.VerifyCountMax)
			return false, &refs.DeniedError{Name: name, Op: refs.VerifySig, Detail: detail}
		}
		if _, ok := s.verified[c.ID]; ok {
			continue
		}
		if err := fair.Pause(ctx); err != nil {
			return false, err
		}
		_, data, err := view.Read(ctx, c.ID)
		if err != nil {
			return false, fmt.Errorf("read commit %s: %w", c.ID, err)
		}
		if err := s.registered().Verify(data, s.repo.host.now()); err != nil {
			return false, nil // any error of the signature means that it is invalid
		}
		s.verified[c.ID] = struct{}{}
	}
	return true, nil
}

// hidden returns the commits whose history is not new to the ref of move.
func (s *signatures) hidden(
	ctx context.Context, view *odb.View, names *refs.Snapshot, move refs.Move,
) ([]object.ID, error) {
	if !move.Before.IsZero() {
		return onlyCommits(ctx, view, move.Before)
	}
	seen := make(map[object.ID]bool)
	var hide []object.ID
	for ref, err := range names.All(ctx, "") {
		if err != nil {
			return nil, fmt.Errorf("read refs: %w", err)
		}
		id := ref.Target()
		if seen[id] || !s.policy.Ops(ref.Name).Has(refs.VerifySig) {
			continue
		}
		seen[id] = true
		commits, err := onlyCommits(ctx, view, id)
		if err != nil {
			return nil, fmt.Errorf("read tip of %s: %w", ref.Name, err)
		}
		hide = append(hide, commits...)
	}
	return hide, nil
}

// onlyCommits returns id if it is a commit.
func onlyCommits(ctx context.Context, view *odb.View, id object.ID) ([]object.ID, error) {
	info, err := view.Stat(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	if info.Type != object.TypeCommit {
		return nil, nil
	}
	return []object.ID{id}, nil
}

// verifyAhead checks the signatures and the paths of a move before the change waits for its turn,
// so that other changes do not wait for it. The transaction reports refusals.
func verifyAhead(ctx context.Context, change *refs.Change, move refs.Move) (err error) {
	if change.Policy.Ops(move.Name).Has(refs.VerifySig) {
		_, err = change.Signed(ctx, move)
	}
	if err == nil && change.Check != nil {
		err = change.Check(ctx, move)
	}
	if errors.Is(err, odb.ErrNotFound) || errors.Is(err, refs.ErrDenied) {
		return nil
	}
	return err
}

// registered returns the organization's signing keys, as they are at the first call.
func (s *signatures) registered() *signature.Keys {
	if s.keys != nil {
		return s.keys
	}
	host, org := s.repo.host, s.repo.record.Org
	var files [][]byte
	if host.signingKeys != nil {
		files = host.signingKeys(org)
	}
	keys, errs := signature.ParseKeys(files)
	if err := errors.Join(errs...); err != nil {
		host.log.Warn("failed to load signing keys", "org", org, "error", err)
	}
	s.keys = keys
	return keys
}

// storedSigned is signed for a change that points refs to stored objects. A commit that is not
// stored yet is written by this server, which signs none.
func (r *Repository) storedSigned(policy refs.Policy) func(ctx context.Context, move refs.Move) (bool, error) {
	signatures := r.newSignatures(policy)
	return func(ctx context.Context, move refs.Move) (bool, error) {
		view, err := r.Objects(ctx)
		if err != nil {
			return false, err
		}
		defer view.Close()
		signed, err := signatures.signed(ctx, view, move)
		if errors.Is(err, odb.ErrNotFound) {
			return false, nil
		}
		return signed, err
	}
}
