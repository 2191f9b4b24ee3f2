package engine

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"packhorse/engine/signature"
	"packhorse/odb"
	"packhorse/pack/object"
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

// Commit reads the commit of an object id, or of the unique beginning of one. Errors:
// [ErrNotFound]; [ErrInvalid] for text that is not an ID, too short or ambiguous.
func (r *Repository) Commit(ctx context.Context, sha string) (SignedCommit, error) {
	view, err := r.Objects(ctx)
	if err != nil {
		return SignedCommit{}, err
	}
	defer view.Close()
	id, err := r.commitOf(ctx, view, sha)
	if err != nil {
		return SignedCommit{}, err
	}
	_, data, err := view.Linked().Read(ctx, id)
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

// commitOf finds the commit of an object id, whole or the beginning of it. Names of refs are none.
func (r *Repository) commitOf(ctx context.Context, view *odb.View, sha string) (object.ID, error) {
	digits := strings.ToLower(sha)
	if len(digits) < prefixDigitsMin || len(digits) > object.HexSize || strings.Trim(digits, "0123456789abcdef") != "" {
		return object.ZeroID, invalid("sha: expected %d to %d hexadecimal digits, got %.60q", prefixDigitsMin, object.HexSize,
			sha)
	}
	missing := notFound("commit %s not found", digits)
	if len(digits) < object.HexSize {
		found, err := r.resolvePrefix(ctx, view, Revision{Name: digits})
		if isNotFound(err) {
			err = missing
		}
		return found.Commit, err
	}
	id, err := object.ParseID(digits)
	if err == nil {
		id, err = peel(ctx, view, id)
	}
	if isUnknown(err) {
		err = missing
	}
	return id, err
}
