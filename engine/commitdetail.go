package engine

import (
	"bytes"
	"context"
	"fmt"

	"packhorse/engine/signature"
)

// SignedCommit is a commit with its signature, if it has one.
type SignedCommit struct {
	Commit
	// Signature is the armored signature of the header gpgsig, without a line end behind it; nil
	// without one, or with several.
	Signature []byte
	// Payload is the signed data: the stored commit without that header. It is nil where Signature
	// is.
	Payload []byte
}

// Commit reads a commit. Errors: [ErrNotFound]; [ErrInvalid] for a name that is not of its kind, or
// ambiguous.
func (r *Repository) Commit(ctx context.Context, name CommitName) (SignedCommit, error) {
	at, err := r.atCommit(ctx, name)
	if err != nil {
		return SignedCommit{}, err
	}
	defer at.view.Close()
	view, id := at.view, at.revision.Commit
	_, data, err := view.Read(ctx, id)
	if err != nil {
		return SignedCommit{}, fmt.Errorf("read commit %s: %w", id, err)
	}
	c, err := parseCommit(id, data)
	if err != nil {
		return SignedCommit{}, err
	}
	detail := SignedCommit{Commit: c}
	if payload, armored, ok := signature.Split(data); ok {
		detail.Signature, detail.Payload = bytes.TrimSuffix(armored, []byte{'\n'}), payload
	}
	return detail, nil
}
