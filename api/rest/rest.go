// Package rest is the JSON and NDJSON interface: docs/api.md.
//
// Start at [New]. Every endpoint is a method of [Door] that reads its request, calls one use case
// of the host, and renders the outcome. The map, by file:
//
//	repos, baserepo, credentials, detach,    repositories, their origin and their upstream; what they store
//	usage, deleted
//	branches, tags, notes                    refs
//	commits, files, filesread, metadata,     reading
//	file, archive
//	blame, grep
//	events, orgevents, eventstream           the journal of a repository, and those of an organization
//	diff, diffstream                         diffs
//	commitpack, fileoperation, diffcommit,   commits that come as a stream of lines
//	diffchunk
//	merge, mergepreview, resolution,         commits from other commits
//	cherrypick, land, restorecommit
//	undo                                     refs as they were
//	transactions, operation                  several writes as one
//	request, guard, dryrun                   queries and JSON bodies; guards
//	aliases                                  fields that have an older name, and parts of the path
//	ndjson                                   streams of lines
//	render, jsonstream, jsontext             answers and errors; long answers, written in pieces
package rest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// Config is the configuration of a door.
type Config struct {
	Host *engine.Host
	// Verify returns the grant of a token in a body; nil refuses all of them.
	Verify func(token string) (*auth.Grant, error)
	// Recheck checks, just before a write commits, that its grant is still valid; nil means that it
	// is.
	Recheck func(*auth.Grant) error
	// OrgConfig returns the configuration of an organization, if it has one; nil means that none has.
	OrgConfig func(org string) (*auth.OrgConfig, bool)
	// Silence returns a context that ends when a stream of events has sent nothing for so long that it
	// sends a comment; nil means every 15 seconds.
	Silence func(ctx context.Context) (context.Context, context.CancelFunc)
}

// Door answers API clients. Its methods may be called concurrently; each has the form of a route's
// handler.
type Door struct {
	host      *engine.Host
	verify    func(token string) (*auth.Grant, error)
	recheck   func(*auth.Grant) error
	orgConfig func(org string) (*auth.OrgConfig, bool)
	silence   func(ctx context.Context) (context.Context, context.CancelFunc)
}

// New returns a door to the host's repositories.
func New(c Config) *Door {
	d := &Door{host: c.Host, verify: c.Verify, recheck: c.Recheck, orgConfig: c.OrgConfig, silence: c.Silence}
	if d.verify == nil {
		d.verify = func(string) (*auth.Grant, error) { return nil, auth.ErrMissing }
	}
	if d.recheck == nil {
		d.recheck = func(*auth.Grant) error { return nil }
	}
	if d.orgConfig == nil {
		d.orgConfig = func(string) (*auth.OrgConfig, bool) { return nil, false }
	}
	if d.silence == nil {
		d.silence = func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, heartbeatEvery)
		}
	}
	return d
}

// minSequenceWait bounds how long a read waits for the journal position that it asks for:
// docs/invariants.md 42.
const minSequenceWait = 5 * time.Second

// openList opens the repository for a listing, and reads the namespace and the page size.
func (d *Door) openList(
	x exchange.Exchange, grant *auth.Grant,
) (repo *engine.Repository, space refs.Namespace, limit int, err error) {
	if limit, err = limitOf(x, limitDefault, limitMax); err != nil {
		return nil, space, 0, err
	}
	if space, err = spaceOf(x); err != nil {
		return nil, space, 0, err
	}
	repo, err = d.recallAt(x, grant)
	return repo, space, limit, err
}

// open opens the repository of the token as it is now, after a wait for the requested
// X-Min-Sequence.
func (d *Door) open(x exchange.Exchange, grant *auth.Grant) (*engine.Repository, error) {
	if x.Query().Has("at") {
		return nil, badRequest("at: this call is not made at a moment")
	}
	return d.openNow(x, grant)
}

// openAt is open for a read, which the parameter at, or the field of that name, moves to a moment.
// field is nil where the body has none.
func (d *Door) openAt(x exchange.Exchange, grant *auth.Grant, field *string) (*engine.Repository, error) {
	text, given := x.Query().Get("at"), x.Query().Has("at")
	if field != nil {
		if given {
			return nil, badRequest("at is given twice, in the query and in the body")
		}
		text, given = *field, true
	}
	var moment engine.Moment
	if given {
		var err error
		if moment, err = engine.ParseMoment("at", text); err != nil {
			return nil, err
		}
	}
	repo, err := d.openNow(x, grant)
	if err != nil || !given {
		return repo, err
	}
	return repo.At(x.Context(), moment)
}

// isPlaced reports whether a request names a moment, or a position that it waits for: for that the
// repository is read.
func isPlaced(x exchange.Exchange) bool {
	return x.Query().Has("at") || x.Header("X-Min-Sequence") != ""
}

// recallAt is openAt without a body, for the reads that [engine.Host.Recall] lists.
func (d *Door) recallAt(x exchange.Exchange, grant *auth.Grant) (*engine.Repository, error) {
	if isPlaced(x) {
		return d.openAt(x, grant, nil)
	}
	return d.host.Recall(x.Context(), grant.Org, grant.Repo)
}

func (d *Door) openNow(x exchange.Exchange, grant *auth.Grant) (*engine.Repository, error) {
	repo, err := d.host.Repository(x.Context(), grant.Org, grant.Repo)
	if err != nil {
		return nil, err
	}
	if waited, err := await(x, repo); !waited || err != nil {
		return repo, err
	}
	return d.host.Repository(x.Context(), grant.Org, grant.Repo) // as it is at that position
}

// await waits for the requested X-Min-Sequence, if any.
func await(x exchange.Exchange, repo *engine.Repository) (waited bool, err error) {
	header := x.Header("X-Min-Sequence")
	if header == "" {
		return false, nil
	}
	sequence, err := strconv.ParseUint(header, 10, 64)
	if err != nil {
		return false, badRequest("X-Min-Sequence: expected a journal position, got %.40q", header)
	}
	ctx, cancel := context.WithTimeout(x.Context(), minSequenceWait)
	defer cancel()
	err = repo.Await(ctx, sequence)
	if errors.Is(err, context.DeadlineExceeded) {
		return true, &exchange.Error{
			Status:  http.StatusServiceUnavailable,
			Code:    code.SequenceNotReached,
			Message: fmt.Sprintf("the repository has not reached sequence %d", sequence),
			Retry:   time.Second,
		}
	}
	return true, err
}

// write opens the repository of the token for a write and returns the actor. endpoint is the scope
// of an idempotency key; the caller adds the signature of the request to the actor's receipt.
func (d *Door) write(
	x exchange.Exchange, grant *auth.Grant, endpoint string,
) (*engine.Repository, engine.Actor, error) {
	repo, err := d.open(x, grant)
	if err != nil {
		return nil, engine.Actor{}, err
	}
	by, err := d.actor(x, grant, repo.Item().ID.String(), endpoint)
	return repo, by, err
}

// recallWrite is write for the operations that [engine.Host.Recall] lists.
func (d *Door) recallWrite(
	x exchange.Exchange, grant *auth.Grant, endpoint string,
) (*engine.Repository, engine.Actor, error) {
	if x.Header("Idempotency-Key") != "" || isPlaced(x) {
		return d.write(x, grant, endpoint)
	}
	repo, err := d.host.Recall(x.Context(), grant.Org, grant.Repo)
	if err != nil {
		return nil, engine.Actor{}, err
	}
	by, err := d.actor(x, grant, "", endpoint) // without a key there is no receipt
	return repo, by, err
}

// writeJSON is write for a request whose body is a JSON object, which it reads into out.
func (d *Door) writeJSON(
	x exchange.Exchange, grant *auth.Grant, endpoint string, out rehearses,
) (*engine.Repository, engine.Actor, error) {
	body, err := readJSON(x, out, false)
	if err != nil {
		return nil, engine.Actor{}, err
	}
	repo, by, err := d.write(x, grant, endpoint)
	if err == nil {
		err = rehearse(x, &by, out)
	}
	sign(&by, body)
	return repo, by, err
}

// actor returns the actor of a write. scope is the scope of its idempotency key beside the
// endpoint: a repository's id, or its name where the id does not exist yet or any more.
func (d *Door) actor(x exchange.Exchange, grant *auth.Grant, scope, endpoint string) (engine.Actor, error) {
	a := engine.Actor{
		Org:       grant.Org,
		Subject:   grant.Subject,
		Policy:    grant.Policy,
		Paths:     grant.Paths,
		RequestID: x.RequestID(),
		Recheck:   func() error { return d.recheck(grant) },
	}
	if key := x.Header("Idempotency-Key"); key != "" {
		a.Receipt = &refs.Receipt{Key: refs.ReceiptKey{Org: grant.Org, Repo: scope, Endpoint: endpoint, Key: key}}
		if err := a.Receipt.Key.Check(); err != nil {
			return a, badRequest("Idempotency-Key: expected 1 to %d visible ASCII characters", refs.ReceiptKeyMax)
		}
	}
	return a, nil
}

// sign completes a receipt with the request: its body, and what its path and query say beside it.
func sign(a *engine.Actor, body []byte, beside ...string) {
	if a.Receipt != nil {
		a.Receipt.Request = sha256.Sum256(signed(body, beside...))
	}
}

// signed returns the content of a request that an equal request has, too. A body has no NUL.
func signed(body []byte, beside ...string) []byte {
	for _, text := range beside {
		if text != "" {
			body = append(append(body, 0), text...)
		}
	}
	return body
}

// badRequest returns a refusal of a field or a parameter, which its message names.
func badRequest(format string, args ...any) error {
	return malformed(code.InvalidRequest, format, args...)
}

// malformed is badRequest with a code that says more.
func malformed(as code.Code, format string, args ...any) error {
	return &exchange.Error{Status: http.StatusBadRequest, Code: as, Message: fmt.Sprintf(format, args...)}
}
