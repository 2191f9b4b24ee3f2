package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/engine/signature"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// signatures tells for one change whether the commits that it brings are signed: rules.md 35.
type signatures struct {
	repo *Repository
	keys *signature.Keys
	// known holds the tips that were looked at, while the repository's refs stay where they were.
	known    map[object.ID]bool
	sequence uint64
}

func (r *Repository) newSignatures() *signatures {
	return &signatures{repo: r, known: make(map[object.ID]bool)}
}

// signed tells whether every commit behind id in view, except what a ref reached before, has a signature of a registered key that is
// in force. What is no commit and leads to none brings none.
func (s *signatures) signed(ctx context.Context, view *odb.View, id object.ID) (bool, error) {
	names, err := s.repo.visibleNames(ctx)
	if err != nil {
		return false, err
	}
	defer names.Close()
	if names.Sequence() != s.sequence {
		clear(s.known)
		s.sequence = names.Sequence()
	}
	if signed, ok := s.known[id]; ok {
		return signed, nil
	}
	tip, t, err := follow(ctx, view, id)
	if err != nil {
		return false, err
	}
	signed := true
	if t == object.TypeCommit {
		if signed, err = s.newSigned(ctx, view, names, tip); err != nil {
			return false, err
		}
	}
	s.known[id] = signed
	return signed, nil
}

// newSigned walks the commits behind tip that no ref reaches.
func (s *signatures) newSigned(ctx context.Context, view *odb.View, names *refs.Snapshot, tip object.ID) (bool, error) {
	hide, err := commitTips(ctx, view, names)
	if err != nil {
		return false, err
	}
	for c, err := range view.Walk(ctx, odb.WalkOptions{Tips: []object.ID{tip}, Hide: hide}) {
		if err != nil {
			return false, fmt.Errorf("walk new history of %s: %w", tip, err)
		}
		_, data, err := view.Read(ctx, c.ID)
		if err != nil {
			return false, fmt.Errorf("read commit %s: %w", c.ID, err)
		}
		if err := s.registered().Verify(data, s.repo.host.now()); err != nil {
			return false, nil // whatever is wrong with the signature, there is no valid one
		}
	}
	return true, nil
}

// commitTips returns the commits that refs of all namespaces lead to.
func commitTips(ctx context.Context, view *odb.View, names *refs.Snapshot) ([]object.ID, error) {
	seen := make(map[object.ID]bool)
	var tips []object.ID
	for ref, err := range names.All(ctx, "") {
		if err != nil {
			return nil, fmt.Errorf("read refs: %w", err)
		}
		id := ref.ID
		if !ref.Peeled.IsZero() {
			id = ref.Peeled
		}
		if seen[id] {
			continue
		}
		seen[id] = true
		info, err := view.Stat(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read tip of %s: %w", ref.Name, err)
		}
		if info.Type == object.TypeCommit {
			tips = append(tips, id)
		}
	}
	return tips, nil
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
		host.log.Warn("signing keys are not in force", "org", org, "error", err)
	}
	s.keys = keys
	return keys
}

// storedSigned is signed for a change that points refs to what is stored. A commit that is not there yet is one that this server
// writes, and it signs none.
func (r *Repository) storedSigned(ctx context.Context, id object.ID) (bool, error) {
	view, err := r.Objects(ctx)
	if err != nil {
		return false, err
	}
	defer view.Close()
	signed, err := r.newSignatures().signed(ctx, view, id)
	if errors.Is(err, odb.ErrNotFound) {
		return false, nil
	}
	return signed, err
}
