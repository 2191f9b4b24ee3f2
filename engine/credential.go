package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Secret is a text that is not shown by accident: every way of printing it but a conversion gives "(secret)".
type Secret string

// String hides the secret.
func (Secret) String() string { return "(secret)" }

// GoString hides the secret.
func (Secret) GoString() string { return "(secret)" }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue("(secret)") }

// Credential is what a repository's upstream asks for.
type Credential struct {
	Username Secret // may be empty
	Password Secret
}

// CredentialID names a credential for ever. It begins with its repository's id.
type CredentialID [len(refs.RepoID{}) + 8]byte

// ParseCredentialID returns the id that String wrote. Errors: [ErrNotFound], since ids are opaque to clients.
func ParseCredentialID(text string) (id CredentialID, err error) {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != len(id) {
		return id, notFound("credential %.100q not found", text)
	}
	return CredentialID(data), nil
}

// String returns the id in hexadecimal.
func (id CredentialID) String() string { return hex.EncodeToString(id[:]) }

func (id CredentialID) repo() refs.RepoID { return refs.RepoID(id[:len(refs.RepoID{})]) }

// StoredCredential is a credential as it is told: without what it holds.
type StoredCredential struct {
	ID       CredentialID
	Created  time.Time
	Sequence uint64 // of the change
}

// credentialRow is a credential as it is stored, under table k.
type credentialRow struct {
	ID      []byte    `json:"id"`
	Created time.Time `json:"created"`
	Sealed  []byte    `json:"sealed"`
}

// sealedCredential is what is sealed.
type sealedCredential struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password"`
}

// credentialContext binds what is sealed to its organization, repository and credential: docs/invariants.md 36.
func (r *Repository) credentialContext(id CredentialID) []byte {
	context := append([]byte(r.record.Org), 0)
	context = append(context, r.record.ID[:]...)
	return append(context, id[:]...)
}

// sealCredential returns the row that stores c.
func (r *Repository) sealCredential(id CredentialID, created time.Time, c Credential) ([]byte, error) {
	secret, err := json.Marshal(sealedCredential{Username: string(c.Username), Password: string(c.Password)})
	if err != nil {
		return nil, fmt.Errorf("encode credential: %w", err)
	}
	row, err := json.Marshal(credentialRow{ID: id[:], Created: created, Sealed: r.host.secrets.close(secret, r.credentialContext(id))})
	if err != nil {
		return nil, fmt.Errorf("encode credential: %w", err)
	}
	return row, nil
}

// readCredential returns the row of a repository's credential and its stored bytes. Errors: [ErrNotFound].
func (r *Repository) readCredential(ctx context.Context) (credentialRow, []byte, error) {
	data, err := r.host.keys.Get(ctx, credentialKey(r.record.ID))
	if errors.Is(err, kv.ErrNotFound) {
		return credentialRow{}, nil, notFound("repository %q has no credential", r.record.Name)
	}
	if err != nil {
		return credentialRow{}, nil, fmt.Errorf("read credential of repository %s: %w", r.record.ID, err)
	}
	var row credentialRow
	if err := json.Unmarshal(data, &row); err != nil || len(row.ID) != len(CredentialID{}) {
		return credentialRow{}, nil, errors.Join(fmt.Errorf("%w: credential of repository %s", ErrCorrupt, r.record.ID), err)
	}
	return row, data, nil
}

// Credential opens the repository's credential, for the way to its upstream and nothing else.
//
// Errors: [ErrNotFound]; [ErrSecretKey].
func (r *Repository) Credential(ctx context.Context) (Credential, error) {
	if err := r.host.secrets.check(); err != nil {
		return Credential{}, err
	}
	row, _, err := r.readCredential(ctx)
	if err != nil {
		return Credential{}, err
	}
	secret, err := r.host.secrets.open(row.Sealed, r.credentialContext(CredentialID(row.ID)))
	if err != nil {
		return Credential{}, err
	}
	var sealed sealedCredential
	if err := json.Unmarshal(secret, &sealed); err != nil {
		return Credential{}, fmt.Errorf("%w: credential of repository %s", ErrCorrupt, r.record.ID)
	}
	return Credential{Username: Secret(sealed.Username), Password: Secret(sealed.Password)}, nil
}

// CheckSecrets is [ErrSecretKey] when the host has no key to seal secrets with.
func (h *Host) CheckSecrets() error { return h.secrets.check() }

// SecretDigest identifies a request that holds a secret, for the receipt of an idempotency key. The host must have a secret key.
func (h *Host) SecretDigest(request []byte) [32]byte { return h.secrets.digest(request) }

// RepositoryByID opens the organization's repository of an id. Errors: [ErrNotFound].
func (h *Host) RepositoryByID(ctx context.Context, org string, id refs.RepoID) (*Repository, error) {
	rec, stored, err := readRecord(ctx, h.keys, id)
	if err != nil {
		return nil, err
	}
	if rec.Org != org {
		return nil, notFound("repository %s not found", id)
	}
	return h.opened(ctx, &rec, stored)
}

// CredentialRepository opens the repository that a credential belongs to, or did. Errors: [ErrNotFound].
func (h *Host) CredentialRepository(ctx context.Context, org string, id CredentialID) (*Repository, error) {
	repo, err := h.RepositoryByID(ctx, org, id.repo())
	if isNotFound(err) {
		err = notFound("credential %s not found", id)
	}
	return repo, err
}

// CreateCredential stores the repository's one credential and returns when that is durable.
//
// Errors: [ErrExists]; [ErrSecretKey]; refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) CreateCredential(ctx context.Context, actor Actor, c Credential) (StoredCredential, error) {
	return r.changeCredential(ctx, &actor, "create-credential", func(ctx context.Context, tx *refs.Tx) (StoredCredential, error) {
		_, _, err := r.readCredential(ctx)
		if err == nil {
			return StoredCredential{}, &failure{kind: ErrExists, text: fmt.Sprintf("repository %q already has a credential", r.record.Name)}
		}
		if !isNotFound(err) {
			return StoredCredential{}, err
		}
		stored := StoredCredential{Created: r.host.now().UTC()}
		copy(stored.ID[:], r.record.ID[:])
		if _, err := rand.Read(stored.ID[len(r.record.ID):]); err != nil {
			return stored, fmt.Errorf("draw an id: %w", err)
		}
		row, err := r.sealCredential(stored.ID, stored.Created, c)
		if err != nil {
			return stored, err
		}
		tx.Batch().RequireAbsent(credentialKey(r.record.ID))
		tx.Batch().Put(credentialKey(r.record.ID), row)
		return stored, nil
	})
}

// UpdateCredential replaces what a credential holds, its user name too, and returns when that is durable.
//
// Errors: [ErrNotFound]; [ErrSecretKey]; refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) UpdateCredential(ctx context.Context, actor Actor, id CredentialID, c Credential) (StoredCredential, error) {
	return r.changeCredential(ctx, &actor, "update-credential", func(ctx context.Context, tx *refs.Tx) (StoredCredential, error) {
		before, err := r.requireCredential(ctx, tx, id)
		if err != nil {
			return StoredCredential{}, err
		}
		row, err := r.sealCredential(id, before.Created, c)
		if err != nil {
			return StoredCredential{}, err
		}
		tx.Batch().Put(credentialKey(r.record.ID), row)
		return StoredCredential{ID: id, Created: before.Created}, nil
	})
}

// DeleteCredential forgets a credential and returns when that is durable.
//
// Errors: [ErrNotFound]; [ErrSecretKey]; refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) DeleteCredential(ctx context.Context, actor Actor, id CredentialID) (StoredCredential, error) {
	return r.changeCredential(ctx, &actor, "delete-credential", func(ctx context.Context, tx *refs.Tx) (StoredCredential, error) {
		before, err := r.requireCredential(ctx, tx, id)
		if err != nil {
			return StoredCredential{}, err
		}
		tx.Batch().Delete(credentialKey(r.record.ID))
		return StoredCredential{ID: id, Created: before.Created}, nil
	})
}

// requireCredential returns the row of a credential and makes the transaction depend on it. Errors: [ErrNotFound].
func (r *Repository) requireCredential(ctx context.Context, tx *refs.Tx, id CredentialID) (credentialRow, error) {
	row, stored, err := r.readCredential(ctx)
	if isNotFound(err) || err == nil && CredentialID(row.ID) != id {
		return row, notFound("credential %s not found", id)
	}
	if err != nil {
		return row, err
	}
	tx.Batch().Require(credentialKey(r.record.ID), stored)
	return row, nil
}

// changeCredential runs a transaction that changes the credential and no ref. A sync that waits is tried at once, unless the actor may ask for
// none: it has its own time then.
func (r *Repository) changeCredential(
	ctx context.Context, actor *Actor, cause string, prepare func(ctx context.Context, tx *refs.Tx) (StoredCredential, error),
) (StoredCredential, error) {
	if err := r.host.secrets.check(); err != nil {
		return StoredCredential{}, err
	}
	stored, err := changeRefs(ctx, r, actor, cause, func(ctx context.Context, tx *refs.Tx, _ *Repository) (StoredCredential, error) {
		stored, err := prepare(ctx, tx)
		stored.Sequence = tx.Sequence() + 1
		return stored, err
	})
	if err == nil && r.record.Upstream != nil && actor.checkSync() == nil {
		r.host.upstreams.worker.WakeNow(r.record.ID) // it may have failed for want of this one
	}
	return stored, err
}
