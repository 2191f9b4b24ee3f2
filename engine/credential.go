package engine

import (
	"context"
	"errors"
	"time"

	"packhorse/engine/credential"
	"packhorse/refs"
)

// ParseCredentialID returns the id that String wrote. Errors: [ErrNotFound], since ids are opaque
// to clients.
func ParseCredentialID(text string) (credential.ID, error) {
	id, ok := credential.ParseID(text)
	if !ok {
		return id, fail(ErrCredentialNotFound, "credential %.100q not found", text)
	}
	return id, nil
}

// StoredCredential is a credential as answers show it: without its secret.
type StoredCredential struct {
	ID       credential.ID
	Created  time.Time
	Sequence uint64 // of the change
}

// sealCredential returns what stores a credential.
func (r *Repository) sealCredential(id credential.ID, created time.Time, l credential.Login) ([]byte, error) {
	sealed, err := r.host.secrets.Close(r.record.Org, r.record.ID, id, l)
	if err != nil {
		return nil, err
	}
	row := credential.Row{ID: id, Created: created, Sealed: sealed}
	return row.Encode()
}

// Credential opens the repository's credential, for the way to its upstream and nothing else.
//
// Errors: [ErrNotFound]; credential.ErrKey.
func (r *Repository) Credential(ctx context.Context) (credential.Login, error) {
	if err := r.host.secrets.Check(); err != nil {
		return credential.Login{}, err
	}
	row, _, err := credential.Read(ctx, r.host.keys, r.record.ID)
	if errors.Is(err, credential.ErrNone) {
		return credential.Login{}, fail(ErrCredentialNotFound, "repository %q has no credential", r.record.Name)
	}
	if err != nil {
		return credential.Login{}, err
	}
	return r.host.secrets.Open(r.record.Org, r.record.ID, row.ID, row.Sealed)
}

// CheckSecrets is credential.ErrKey when the host has no key to seal secrets with.
func (h *Host) CheckSecrets() error { return h.secrets.Check() }

// SecretDigest identifies a request that holds a secret, for an idempotency record. The host must
// have a secret key.
func (h *Host) SecretDigest(request []byte) [32]byte { return h.secrets.Digest(request) }

// RepositoryByID opens the organization's repository of an id. Errors: [ErrNotFound].
func (h *Host) RepositoryByID(ctx context.Context, org string, id refs.RepoID) (*Repository, error) {
	rec, stored, err := h.readRecord(ctx, id)
	if err != nil {
		return nil, err
	}
	if rec.Org != org {
		return nil, fail(ErrRepositoryNotFound, "repository %s not found", id)
	}
	return h.opened(ctx, &rec, stored)
}

// CredentialRepository opens the repository that a credential belongs to, or did. Errors:
// [ErrNotFound].
func (h *Host) CredentialRepository(ctx context.Context, org string, id credential.ID) (*Repository, error) {
	repo, err := h.RepositoryByID(ctx, org, id.Repo())
	if isNotFound(err) {
		err = fail(ErrCredentialNotFound, "credential %s not found", id)
	}
	return repo, err
}

// CreateCredential stores the repository's one credential and returns when that is durable.
//
// Errors: [ErrExists]; credential.ErrKey; refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) CreateCredential(ctx context.Context, actor Actor, l credential.Login) (StoredCredential, error) {
	return r.changeCredential(ctx, &actor, "create-credential",
		func(ctx context.Context, tx *refs.Tx) (StoredCredential, error) {
			_, _, err := credential.Read(ctx, r.host.keys, r.record.ID)
			if err == nil {
				return StoredCredential{}, fail(ErrCredentialExists, "repository %q already has a credential", r.record.Name)
			}
			if !errors.Is(err, credential.ErrNone) {
				return StoredCredential{}, err
			}
			stored := StoredCredential{Created: r.host.now().UTC()}
			id, err := credential.NewID(r.record.ID)
			if err != nil {
				return stored, err
			}
			row, err := r.sealCredential(id, stored.Created, l)
			if err != nil {
				return stored, err
			}
			if !actor.DryRun {
				stored.ID = id
			}
			tx.Batch().RequireAbsent(credential.Key(r.record.ID))
			tx.Batch().Put(credential.Key(r.record.ID), row)
			return stored, nil
		})
}

// UpdateCredential replaces secret and user name of a credential, and returns when that is durable.
//
// Errors: [ErrNotFound]; credential.ErrKey; refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) UpdateCredential(
	ctx context.Context, actor Actor, id credential.ID, l credential.Login,
) (StoredCredential, error) {
	return r.changeCredential(ctx, &actor, "update-credential",
		func(ctx context.Context, tx *refs.Tx) (StoredCredential, error) {
			before, err := r.requireCredential(ctx, tx, id)
			if err != nil {
				return StoredCredential{}, err
			}
			row, err := r.sealCredential(id, before.Created, l)
			if err != nil {
				return StoredCredential{}, err
			}
			tx.Batch().Put(credential.Key(r.record.ID), row)
			return StoredCredential{ID: id, Created: before.Created}, nil
		})
}

// DeleteCredential forgets a credential and returns when that is durable.
//
// Errors: [ErrNotFound]; credential.ErrKey; refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) DeleteCredential(ctx context.Context, actor Actor, id credential.ID) (StoredCredential, error) {
	return r.changeCredential(ctx, &actor, "delete-credential",
		func(ctx context.Context, tx *refs.Tx) (StoredCredential, error) {
			before, err := r.requireCredential(ctx, tx, id)
			if err != nil {
				return StoredCredential{}, err
			}
			tx.Batch().Delete(credential.Key(r.record.ID))
			return StoredCredential{ID: id, Created: before.Created}, nil
		})
}

// requireCredential returns the row of a credential and makes the transaction depend on it. Errors:
// [ErrNotFound].
func (r *Repository) requireCredential(ctx context.Context, tx *refs.Tx, id credential.ID) (credential.Row, error) {
	row, stored, err := credential.Read(ctx, r.host.keys, r.record.ID)
	if errors.Is(err, credential.ErrNone) || err == nil && row.ID != id {
		return row, fail(ErrCredentialNotFound, "credential %s not found", id)
	}
	if err != nil {
		return row, err
	}
	tx.Batch().Require(credential.Key(r.record.ID), stored)
	return row, nil
}

// changeCredential runs a transaction that changes the credential and no ref. A sync that waits is
// tried at once, unless the actor may ask for none: it has its own time then.
func (r *Repository) changeCredential(
	ctx context.Context, actor *Actor, cause string, prepare func(
		ctx context.Context, tx *refs.Tx,
	) (StoredCredential, error),
) (StoredCredential, error) {
	if err := r.host.secrets.Check(); err != nil {
		return StoredCredential{}, err
	}
	stored, err := changeRefs(ctx, r, actor, cause,
		func(ctx context.Context, tx *refs.Tx, _ *Repository) (StoredCredential, error) {
			stored, err := prepare(ctx, tx)
			stored.Sequence = tx.After()
			return stored, err
		})
	if err == nil && !actor.DryRun && r.record.Upstream != nil && actor.checkSync() == nil {
		r.hastenSync(ctx) // it may have failed for want of this one
	}
	return stored, err
}
