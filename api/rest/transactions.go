package rest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/engine"
)

// transactionJSON is the first line of both calls for transactions.
type transactionJSON struct {
	Operations []operationJSON `json:"operations"`
	dryRun
}

// bounds refuses more operations than a transaction may have, and more files in all commits
// together than a commit may, while they are decoded.
func bounds(filesMax int) json.Options {
	files := 0
	return json.WithUnmarshalers(json.JoinUnmarshalers(
		list("operations", engine.StepCountMax, new(int), func(from *jsontext.Decoder) (o operationJSON, err error) {
			return o, json.UnmarshalDecode(from, &o)
		}),
		list("files of all commits (--operations-max)", filesMax, &files,
			func(from *jsontext.Decoder) (f fileMetadata, err error) { return f, json.UnmarshalDecode(from, &f) }),
	))
}

// list decodes lists of a type that have at most countMax items together.
func list[T any](
	name string, countMax int, count *int, item func(from *jsontext.Decoder) (T, error),
) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(from *jsontext.Decoder, items *[]T) error {
		if from.PeekKind() != '[' {
			return errors.ErrUnsupported // of another type: the decoder says so
		}
		if _, err := from.ReadToken(); err != nil {
			return err
		}
		for from.PeekKind() != ']' {
			if *count == countMax {
				return &engine.LimitError{Limit: name, Max: int64(countMax)}
			}
			*count++
			decoded, err := item(from)
			if err != nil {
				return err
			}
			*items = append(*items, decoded)
		}
		_, err := from.ReadToken()
		return err
	})
}

// Transaction answers POST /repos/transactions.
func (d *Door) Transaction(x exchange.Exchange, grant *auth.Grant) error {
	if err := requireNDJSON(x); err != nil {
		return err
	}
	repo, by, err := d.write(x, grant, "POST /repos/transactions")
	if err != nil {
		return err
	}
	return d.transact(x, &by, func(t *transactionJSON) ([]engine.Part, []int, error) {
		for i := range t.Operations {
			if o := &t.Operations[i]; o.Repo != nil || o.Auth != nil {
				return nil, nil, badRequest("operations[%d]: repo and auth are for POST /transactions", i)
			}
		}
		return []engine.Part{{Repo: repo, Actor: by}}, make([]int, len(t.Operations)), nil
	}, grant)
}

// OrgTransaction answers POST /transactions.
func (d *Door) OrgTransaction(x exchange.Exchange, grant *auth.Grant) error {
	if err := requireNDJSON(x); err != nil {
		return err
	}
	by, err := d.actor(x, grant, "", "POST /transactions")
	if err != nil {
		return err
	}
	return d.transact(x, &by, func(t *transactionJSON) ([]engine.Part, []int, error) {
		return d.participants(x, grant, &by, t)
	}, grant)
}

// transact reads a transaction, runs it, and answers. parts gives the repositories, and that of
// each operation.
func (d *Door) transact(
	x exchange.Exchange, by *engine.Actor, parts func(t *transactionJSON) ([]engine.Part, []int, error),
	grant *auth.Grant,
) error {
	body, seen := observe(x.Body(), by.Receipt != nil)
	lines := newLineReader(x, body)
	defer lines.close()
	t, release, err := readTransaction(x, lines, d.host.OperationCountMax())
	defer release()
	if err == nil {
		err = rehearse(x, by, t)
	}
	if err != nil {
		return err
	}
	taking, of, err := parts(t)
	if err != nil {
		return err
	}
	steps := make([]engine.Step, len(t.Operations))
	for i := range t.Operations {
		steps[i].Part = of[i]
		if steps[i].Operation, err = t.Operations[i].operation(d, grant); err != nil {
			return withStep(&engine.StepError{Step: i, Err: err})
		}
	}
	for i := range taking {
		taking[i].Actor.DryRun = by.DryRun
		taking[i].Actor.Receipt = nil
	}
	if len(taking) > 0 {
		taking[0].Actor.Receipt = by.Receipt
	}
	x.BodyFlows()
	work, err := d.host.NewTransaction(x.Context(), taking, steps)
	if err != nil {
		return withStep(err)
	}
	defer work.Close()
	var decoder chunkDecoder
	err = takeLines(x, lines, func(ctx context.Context, line []byte) error {
		chunk, err := decoder.decode(line)
		if err != nil {
			return err
		}
		return work.Chunk(ctx, chunk.contentID, chunk.data, chunk.eof)
	})
	if err != nil {
		return withStep(err)
	}
	if by.Receipt != nil {
		by.Receipt.Request = [sha256.Size]byte(seen.Sum(nil))
	}
	if work.IsLarge() {
		release, err := x.Reserve(x.Context(), patchCosts)
		if err != nil {
			return err
		}
		defer release()
	}
	result, err := work.Finish(x.Context())
	if err != nil {
		return withStep(err)
	}
	return answerTransaction(x, by, t, taking, &result)
}

// readTransaction reads the first line. The caller releases what it keeps.
func readTransaction(x exchange.Exchange, lines *lineReader, filesMax int) (*transactionJSON, func(), error) {
	release := func() {}
	line, err := lines.next(metadataLineMax)
	if err != nil {
		return nil, release, firstLine(err)
	}
	if len(line) > lineBufferMin { // its content is kept, beside the line
		if release, err = x.Reserve(x.Context(), 2*int64(len(line))); err != nil {
			return nil, func() {}, err
		}
	}
	var first struct {
		Transaction *transactionJSON `json:"transaction"`
	}
	if err := decodeJSON(line, &first, bounds(filesMax)); err != nil {
		return nil, release, err
	}
	if first.Transaction == nil {
		return nil, release, badRequest("the first line must hold transaction")
	}
	return first.Transaction, release, nil
}

// participants finds the repositories of a transaction in the order in which its operations name
// them, each with the token that an operation gives for it, or else with that of the request.
func (d *Door) participants(
	x exchange.Exchange, grant *auth.Grant, by *engine.Actor, t *transactionJSON,
) (parts []engine.Part, of []int, err error) {
	tokens, index := make(map[string]string), make(map[string]int)
	for i := range t.Operations {
		o := &t.Operations[i]
		switch {
		case o.Repo == nil || *o.Repo == "":
			return nil, nil, badRequest("operations[%d].repo is required", i)
		case o.Auth == nil:
		case o.Auth.Token == "":
			return nil, nil, badRequest("operations[%d].auth.token is required in auth", i)
		case tokens[*o.Repo] != "" && tokens[*o.Repo] != o.Auth.Token:
			return nil, nil, badRequest("operations[%d].auth.token: there is another one for repository %q", i, *o.Repo)
		default:
			tokens[*o.Repo] = o.Auth.Token
		}
	}
	for i := range t.Operations {
		name := *t.Operations[i].Repo
		at, known := index[name]
		if !known {
			if len(parts) == engine.PartCountMax {
				return nil, nil, &engine.LimitError{Limit: "repositories of a transaction", Max: engine.PartCountMax}
			}
			part, err := d.participant(x, grant, by, name, tokens[name], i)
			if err != nil {
				return nil, nil, problem.With(err, map[string]any{"operation": i})
			}
			at, index[name] = len(parts), len(parts)
			parts = append(parts, part)
		}
		of = append(of, at)
	}
	return parts, of, nil
}

// participant opens a repository for the operation at an index, the first there. Before its token
// has been verified the answer reveals nothing about it.
func (d *Door) participant(
	x exchange.Exchange, grant *auth.Grant, by *engine.Actor, name, token string, operation int,
) (engine.Part, error) {
	refused := func(status int, as code.Code, format string, args ...any) error {
		return &exchange.Error{
			Status: status, Code: as,
			Message: fmt.Sprintf("operations[%d].auth.token: ", operation) + fmt.Sprintf(format, args...),
		}
	}
	own := grant
	if token != "" {
		var err error
		own, err = d.verify(token)
		if refusal, ok := errors.AsType[*auth.Error](err); ok {
			return engine.Part{}, refused(refusal.Status, refusal.Code, "%s", refusal.Message)
		}
		if err != nil {
			return engine.Part{}, err
		}
	}
	switch {
	case token == "" && grant.Repo != name:
		return engine.Part{}, refused(http.StatusBadRequest, code.InvalidRequest,
			"required, since the token of the request is not for repository %q", name)
	case own.Org != grant.Org:
		return engine.Part{}, refused(http.StatusForbidden, code.WrongRepository,
			"the repository must be one of the same organization")
	case own.Repo != name:
		return engine.Part{}, refused(http.StatusForbidden, code.WrongRepository,
			"the token is for another repository, %.100q", own.Repo)
	case !own.Allows(auth.GitWrite):
		return engine.Part{}, refused(http.StatusForbidden, code.ScopeMissing, "the token lacks the scope %s", auth.GitWrite)
	case own.Unenforced != "":
		return engine.Part{}, refused(http.StatusBadRequest, code.InvalidPolicy,
			"its claim %.40q states a policy that is not enforced here, so nothing may be written with it", own.Unenforced)
	}
	repo, err := d.host.Repository(x.Context(), own.Org, name)
	if err != nil {
		return engine.Part{}, err
	}
	actor := *by
	actor.Subject, actor.Policy, actor.Paths = own.Subject, own.Policy, own.Paths
	actor.Recheck = func() error { return d.recheck(own) }
	return engine.Part{Repo: repo, Actor: actor}, nil
}

// withStep adds to the failure of an operation its index.
func withStep(err error) error {
	step, ok := errors.AsType[*engine.StepError](err)
	if !ok {
		return err
	}
	fields := map[string]any{"operation": step.Step}
	if conflict, ok := errors.AsType[*engine.ConflictError](err); ok {
		if conflict.Pick != nil {
			maps.Copy(fields, pickFields(conflict.Pick))
		} else {
			maps.Copy(fields, conflictFields(conflict.Merge))
		}
	}
	if errors.Is(err, engine.ErrStale) {
		fields["conflict_type"], fields["conflict_paths"] = "target_moved", []string{}
	}
	return problem.With(err, fields)
}

// transactedJSON is the position that a repository reached.
type transactedJSON struct {
	Repo     string `json:"repo"`
	Sequence uint64 `json:"sequence"`
}

func answerTransaction(
	x exchange.Exchange, by *engine.Actor, t *transactionJSON, parts []engine.Part, result *engine.TransactionResult,
) error {
	told := struct {
		Results      []map[string]any `json:"results"`
		PackBytes    int64            `json:"pack_bytes"`
		Repositories []transactedJSON `json:"repositories"`
	}{PackBytes: result.PackedBytes}
	for i := range result.Outcomes {
		told.Results = append(told.Results, t.Operations[i].result(&result.Outcomes[i]))
	}
	for i, part := range parts {
		told.Repositories = append(told.Repositories, transactedJSON{part.Repo.Item().Name, result.Sequences[i]})
	}
	return answerWrite(x, by, http.StatusOK, result.Sequences[0], told)
}
