package rest

import (
	"context"
	"crypto/sha256"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
)

// patchCosts is the memory for applying a large patch: a file of 32 MiB, the patched file, and a
// hunk.
const patchCosts = 96 << 20

// DiffCommit answers POST /repos/diff-commit.
func (d *Door) DiffCommit(x exchange.Exchange, grant *auth.Grant) error {
	branch, by, result, err := d.diffCommit(x, grant)
	if err != nil {
		return withResult(branch, err)
	}
	// The reference client demands a count that the API does not need: docs/api.md, "Writing commits".
	countBlobs := x.Header("Code-Storage-Agent") != ""
	return answerCommit(x, &by, result, countBlobs)
}

func (d *Door) diffCommit(
	x exchange.Exchange, grant *auth.Grant,
) (branch string, by engine.Actor, result engine.CommitResult, err error) {
	if err := requireNDJSON(x); err != nil {
		return "", by, result, err
	}
	repo, by, err := d.write(x, grant, "POST /repos/diff-commit")
	if err != nil {
		return "", by, result, err
	}
	body, seen := observe(x.Body(), by.Receipt != nil)
	lines := newLineReader(x, body)
	defer lines.close()
	metadata, err := readMetadata(x, lines, d.host.OperationCountMax())
	branch = metadata.TargetBranch
	if err == nil {
		err = rehearse(x, &by, &metadata)
	}
	if err != nil {
		return branch, by, result, err
	}
	target, details, err := metadata.target()
	if err != nil {
		return branch, by, result, err
	}
	x.BodyFlows()
	upload, err := repo.NewPatchUpload(x.Context(), by, engine.PatchRequest{Target: target, Details: details})
	if err != nil {
		return branch, by, result, err
	}
	defer upload.Close()
	var decoder chunkDecoder
	take := func(ctx context.Context, line []byte) error {
		chunk, err := decoder.diff(line)
		if err != nil {
			return err
		}
		return upload.Chunk(ctx, chunk.data, chunk.eof)
	}
	if err := takeLines(x, lines, take); err != nil {
		return branch, by, result, err
	}
	if by.Receipt != nil {
		by.Receipt.Request = [sha256.Size]byte(seen.Sum(nil))
	}
	if upload.IsLarge() {
		release, err := x.Reserve(x.Context(), patchCosts)
		if err != nil {
			return branch, by, result, err
		}
		defer release()
	}
	result, err = upload.Finish(x.Context())
	return branch, by, result, err
}
