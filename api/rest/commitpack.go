package rest

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/pack/object"
	"packhorse/refs"
)

// commitMetadata is the first line of commit-pack and diff-commit, and part of restore-commit.
type commitMetadata struct {
	TargetBranch      string         `json:"target_branch"`
	TargetIsEphemeral *bool          `json:"target_is_ephemeral"`
	Ephemeral         *bool          `json:"ephemeral"` // older
	BaseBranch        string         `json:"base_branch"`
	BaseIsEphemeral   *bool          `json:"base_is_ephemeral"`
	EphemeralBase     *bool          `json:"ephemeral_base"` // older
	ExpectedTargetSHA *string        `json:"expected_target_sha"`
	ExpectedHeadSHA   *string        `json:"expected_head_sha"` // older
	CommitMessage     string         `json:"commit_message"`
	AllowEmpty        *bool          `json:"allow_empty"`
	Author            *commit.Person `json:"author"`
	Committer         *commit.Person `json:"committer"`
	Files             []fileMetadata `json:"files"`
	dryRun
}

// CommitPack answers POST /repos/commit-pack.
func (d *Door) CommitPack(x exchange.Exchange, grant *auth.Grant) error {
	branch, by, result, err := d.commitPack(x, grant)
	if err != nil {
		return withResult(branch, err)
	}
	return answerCommit(x, &by, result, true)
}

// answerCommit answers with a commit, or that there was nothing to commit.
func answerCommit(x exchange.Exchange, by *engine.Actor, result engine.CommitResult, countBlobs bool) error {
	status := http.StatusCreated
	if result.Unchanged {
		status = http.StatusOK
	}
	return answerWrite(x, by, status, result.Sequence, commitResultOf(result, countBlobs))
}

func (d *Door) commitPack(
	x exchange.Exchange, grant *auth.Grant,
) (branch string, by engine.Actor, result engine.CommitResult, err error) {
	if err := requireNDJSON(x); err != nil {
		return "", by, result, err
	}
	repo, by, err := d.recallWrite(x, grant, "POST /repos/commit-pack")
	if err != nil {
		return "", by, result, err
	}
	body, seen := observe(x.Body(), by.Receipt != nil)
	lines := newLineReader(x, body)
	defer lines.close()
	metadata, err := readMetadata(x, lines, d.host.OperationCountMax())
	if err == nil {
		err = rehearse(x, &by, &metadata)
	}
	if err != nil {
		return metadata.TargetBranch, by, result, err
	}
	request, err := metadata.upload()
	if err != nil {
		return metadata.TargetBranch, by, result, err
	}
	size := editBytes(metadata.Files)
	metadata.Files = nil
	if size > lineBufferMin { // they are kept, beside the lines that follow
		release, err := x.Reserve(x.Context(), size)
		if err != nil {
			return metadata.TargetBranch, by, result, err
		}
		defer release()
	}
	x.BodyFlows()
	upload, err := repo.NewUpload(x.Context(), by, request)
	if err != nil {
		return metadata.TargetBranch, by, result, err
	}
	defer upload.Close()
	if err := takeChunks(x, lines, upload); err != nil {
		return metadata.TargetBranch, by, result, err
	}
	if by.Receipt != nil {
		by.Receipt.Request = [sha256.Size]byte(seen.Sum(nil))
	}
	result, err = upload.Finish(x.Context())
	return metadata.TargetBranch, by, result, err
}

// observe makes a hash of the body as it is read, if the result of the request is to be stored.
func observe(body io.Reader, remembered bool) (io.Reader, hash.Hash) {
	if !remembered {
		return body, nil
	}
	seen := sha256.New()
	return io.TeeReader(body, seen), seen
}

func requireNDJSON(x exchange.Exchange) error {
	if !exchange.IsMediaType(x.Header("Content-Type"), ndjsonType) {
		return &exchange.Error{
			Status: http.StatusUnsupportedMediaType, Code: code.UnsupportedMediaType,
			Message: "Content-Type must be " + ndjsonType,
		}
	}
	return nil
}

// readMetadata reads the first line, with at most filesMax file operations.
func readMetadata(x exchange.Exchange, lines *lineReader, filesMax int) (commitMetadata, error) {
	line, err := lines.next(metadataLineMax)
	if err != nil {
		return commitMetadata{}, firstLine(err)
	}
	var first struct {
		Metadata *commitMetadata `json:"metadata"`
	}
	if len(line) > lineBufferMin { // its content is kept, beside the line
		release, err := x.Reserve(x.Context(), 2*int64(len(line)))
		if err != nil {
			return commitMetadata{}, err
		}
		defer release()
	}
	if err := decodeJSON(line, &first, boundedFiles(filesMax, engine.EditCountMax)); err != nil {
		return commitMetadata{}, err
	}
	if first.Metadata == nil {
		return commitMetadata{}, badRequest("the first line must hold metadata")
	}
	return *first.Metadata, nil
}

// firstLine is the error of a body without a first line.
func firstLine(err error) error {
	if errors.Is(err, io.EOF) {
		return badRequest("the body is empty: expected a line with metadata first")
	}
	return err
}

// takeChunks reads the chunks of an upload.
func takeChunks(x exchange.Exchange, lines *lineReader, upload *engine.Upload) error {
	var decoder chunkDecoder
	return takeLines(x, lines, func(ctx context.Context, line []byte) error {
		chunk, err := decoder.decode(line)
		if err != nil {
			return err
		}
		return upload.Chunk(ctx, chunk.contentID, chunk.data, chunk.eof)
	})
}

// takeLines gives the lines with chunks to take, up to the true end of the body.
func takeLines(x exchange.Exchange, lines *lineReader, take func(ctx context.Context, line []byte) error) error {
	for {
		line, err := lines.next(chunkLineMax)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := take(x.Context(), line); err != nil {
			return err
		}
	}
}

// upload turns metadata into a request; errors name the missing or malformed field.
func (m *commitMetadata) upload() (engine.UploadRequest, error) {
	target, details, err := m.target()
	request := engine.UploadRequest{Target: target, Details: details}
	if err != nil {
		return request, err
	}
	for i := range m.Files {
		op, err := m.Files[i].operation()
		if err != nil {
			return request, badRequest("files[%d]%v", i, err)
		}
		request.Operations = append(request.Operations, op)
	}
	return request, nil
}

// target reads the fields that all commits have.
func (m *commitMetadata) target() (engine.CommitTarget, engine.CommitDetails, error) {
	baseIsEphemeral, baseFlag := eitherNamed("base_is_ephemeral", m.BaseIsEphemeral, "ephemeral_base", m.EphemeralBase)
	t := engine.CommitTarget{
		Branch:        m.TargetBranch,
		Namespace:     namespace(either(m.TargetIsEphemeral, m.Ephemeral)),
		Base:          m.BaseBranch,
		BaseNamespace: namespace(baseIsEphemeral),
	}
	d := engine.CommitDetails{Message: m.CommitMessage, SkipEmpty: m.AllowEmpty != nil && !*m.AllowEmpty}
	switch {
	case m.TargetBranch == "":
		return t, d, badRequest("target_branch is required")
	case strings.HasPrefix(m.TargetBranch, "refs/"):
		return t, d, badRequest("target_branch: expected a branch's name, without refs/")
	case strings.HasPrefix(m.BaseBranch, "refs/"):
		return t, d, badRequest("base_branch: expected a branch's name, without refs/")
	case baseIsEphemeral && m.BaseBranch == "":
		return t, d, badRequest("%s needs base_branch", baseFlag)
	case m.Author == nil:
		return t, d, badRequest("author is required")
	}
	d.Author = *m.Author
	if m.Committer != nil {
		d.Committer = *m.Committer
	}
	var err error
	t.Expected, err = expectedID(
		eitherNamed("expected_target_sha", m.ExpectedTargetSHA, "expected_head_sha", m.ExpectedHeadSHA))
	return t, d, err
}

// expectedID reads a guard that is an object ID; nil without one. The error calls it name.
func expectedID(value, name string) (*object.ID, error) {
	if value == "" {
		return nil, nil
	}
	id, err := object.ParseID(value)
	if err != nil {
		return nil, badRequest("%s: expected 40 lower-case hexadecimal digits, got %.60q", name, value)
	}
	return &id, nil
}

// commitResultJSON is the result of a commit: docs/api.md, "Writing commits".
type commitResultJSON struct {
	Commit struct {
		CommitSHA    string `json:"commit_sha"`
		TreeSHA      string `json:"tree_sha"`
		TargetBranch string `json:"target_branch"`
		PackBytes    int64  `json:"pack_bytes"`
		BlobCount    *int   `json:"blob_count,omitempty"`
	} `json:"commit"`
	Result refResultJSON `json:"result"`
}

// refResultJSON is the result for a branch.
type refResultJSON struct {
	TargetBranch string `json:"target_branch"`
	Branch       string `json:"branch"` // older
	OldSHA       string `json:"old_sha"`
	NewSHA       string `json:"new_sha"`
	Success      bool   `json:"success"`
	Status       string `json:"status"`
	Message      string `json:"message"`
}

func commitResultOf(r engine.CommitResult, countBlobs bool) commitResultJSON {
	var told commitResultJSON
	told.Commit.CommitSHA = r.New.String()
	told.Commit.TreeSHA = r.Tree.String()
	told.Commit.TargetBranch = r.Branch
	told.Commit.PackBytes = r.PackedBytes
	if countBlobs {
		told.Commit.BlobCount = &r.BlobCount
	}
	told.Result = refResultJSON{
		TargetBranch: r.Branch, Branch: r.Branch, OldSHA: r.Old.String(), NewSHA: r.New.String(), Success: true, Status: "ok",
	}
	if r.Unchanged {
		told.Result.Status, told.Result.Message = "no_op", "nothing to commit: the files are as they were"
	}
	return told
}

// withResult adds to the failure of a commit the result in the form that client libraries expect.
func withResult(branch string, err error) error {
	p := problem.From(err)
	if len(branch) > refs.NameBytesMax {
		branch = "" // no branch, and perhaps long
	}
	result := refResultJSON{TargetBranch: branch, Branch: branch, Status: commitStatus(p.Status), Message: p.Message}
	if stale, ok := errors.AsType[*engine.StaleError](err); ok {
		result.OldSHA = stale.Actual.String()
		result.Status = "precondition_failed"
	}
	switch {
	case errors.Is(err, engine.ErrConflict):
		result.Status = "conflict"
	case errors.Is(err, engine.ErrNoChange):
		result.Status = "precondition_failed"
	}
	return problem.With(err, map[string]any{"result": result})
}

// commitStatus is the word for an HTTP status: docs/api.md, "Writing commits".
func commitStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "unauthorized"
	case http.StatusForbidden:
		return "forbidden"
	case http.StatusNotFound:
		return "not_found"
	case http.StatusConflict:
		return "conflict"
	case http.StatusPreconditionFailed:
		return "precondition_failed"
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return "timeout"
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInsufficientStorage:
		return "unavailable"
	}
	if status >= http.StatusInternalServerError {
		return "internal"
	}
	return "invalid"
}
