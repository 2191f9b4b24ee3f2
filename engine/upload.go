package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"packhorse/engine/commit"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/space"
	"packhorse/pack/object"
)

// FileOperation writes or deletes one path of an API commit. What is written is a content that
// follows, unless Blob or Source say otherwise.
type FileOperation struct {
	Path   string
	Delete bool
	// Mode is zero when the request states none.
	Mode object.Mode
	// ContentID names the content that [Upload.Chunk] brings; several operations may share one.
	ContentID string
	// Blob is a blob of the repository, zero for none.
	Blob object.ID
	// Source is what the tree before the commit has, nil for nothing.
	Source *commit.Source
}

// needsContent reports whether a content has to follow.
func (op *FileOperation) needsContent() bool {
	return !op.Delete && op.Source == nil && op.Blob.IsZero()
}

// UploadRequest describes a commit whose contents follow.
type UploadRequest struct {
	Target     CommitTarget
	Details    CommitDetails
	Operations []FileOperation
}

// Upload is an API commit whose contents are arriving. It is used by one goroutine, which closes
// it. A content that ends in its first chunk is stored at once; any other goes to an
// [odb.BlobWriter].
type Upload struct {
	repo     *Repository
	actor    Actor
	request  UploadRequest
	plan     *commit.Plan
	view     *odb.View
	objects  *odb.Quarantine
	contents map[string]*content
	open     int // contents that have begun and not ended
	blobs    int
	meter    space.Meter
}

// content is one content of an upload.
type content struct {
	operations []int // indexes of the operations that write it
	begun      bool  // its first chunk was not its last
	done       bool
	size       int64           // of the chunks so far
	blob       *odb.BlobWriter // nil before the first chunk and after the last, and for a submodule
	gitlink    string          // the chunks so far of a submodule's content
}

// NewUpload begins an API commit. It refuses at once a request that is bound to fail, unless an
// idempotency key may have to replay an earlier success.
//
// Errors: [ErrInvalid], commit.ErrInvalid, commit.ErrTooLarge, [ErrNotFound], [ErrStale],
// [ErrTooLarge].
func (r *Repository) NewUpload(ctx context.Context, actor Actor, request UploadRequest) (*Upload, error) {
	if err := errors.Join(request.Target.check(), request.Details.check()); err != nil {
		return nil, err
	}
	if err := r.host.space.Check(); err != nil {
		return nil, err
	}
	u := &Upload{repo: r, actor: actor, request: request, contents: make(map[string]*content), meter: r.host.space.Meter()}
	if err := u.arrange(); err != nil {
		return nil, err
	}
	parent, view, err := r.openTarget(ctx, &u.actor, &request.Target)
	if err != nil {
		return nil, err
	}
	u.view = view
	u.objects = u.view.NewQuarantine(ctx)
	tree, err := treeOf(ctx, u.view.Linked(), parent)
	if err == nil {
		err = u.plan.Locate(ctx, u.view.Linked(), tree)
	}
	if err == nil {
		err = u.checkBlobs(ctx)
	}
	if err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

// checkBlobs checks the blobs that the request names. A fork may have to wait until it is known
// what it can read, which the transaction then does not. It leaves refusals to the transaction
// where an idempotency key may replay an earlier success.
func (u *Upload) checkBlobs(ctx context.Context) error {
	err := u.plan.CheckAsked(ctx, u.view)
	if u.actor.Receipt != nil && (errors.Is(err, commit.ErrInvalid) || errors.Is(err, commit.ErrTooLarge)) {
		return nil
	}
	return err
}

// EditCountMax bounds the edits of an API commit.
const EditCountMax = 10_000

// OperationCountMax returns the limit of file operations in an API commit.
func (h *Host) OperationCountMax() int { return h.limits.OperationCountMax }

// arrange checks the operations among themselves.
func (u *Upload) arrange() error {
	if len(u.request.Operations) == 0 {
		return invalid("files must not be empty")
	}
	if limit := u.repo.host.OperationCountMax(); len(u.request.Operations) > limit {
		return &failure{kind: ErrTooLarge, text: fmt.Sprintf("files: %d, the limit is %d (--operations-max)",
			len(u.request.Operations), limit)}
	}
	operations := make([]commit.Operation, len(u.request.Operations))
	for i, op := range u.request.Operations {
		operations[i] = commit.Operation{
			Path: op.Path, Delete: op.Delete, Mode: op.Mode, Content: op.Blob, Asked: !op.Blob.IsZero(), Source: op.Source,
		}
		if !op.needsContent() {
			continue
		}
		if op.ContentID == "" {
			return invalid("files[%d]: content_id is required", i)
		}
		c := u.contents[op.ContentID]
		if c == nil {
			c = &content{}
			u.contents[op.ContentID] = c
		}
		c.operations = append(c.operations, i)
	}
	for _, op := range u.request.Operations {
		if op.Delete && op.ContentID != "" && u.contents[op.ContentID] == nil {
			// Clients give deletions a content id too, and may send its empty content.
			u.contents[op.ContentID] = &content{done: true}
		}
	}
	plan, err := commit.NewPlan(operations)
	u.plan = plan
	return err
}

// Close discards an uncommitted upload.
func (u *Upload) Close() error {
	defer u.actor.hold.Release()
	return errors.Join(u.closeBlobs(), u.objects.Close(), u.view.Close())
}

// closeBlobs gives up the contents that have begun and not ended.
func (u *Upload) closeBlobs() (err error) {
	for _, c := range u.contents {
		if c.blob != nil {
			err = errors.Join(err, c.blob.Close())
		}
	}
	return err
}

// Chunk takes the next bytes of a content; with eof they are its last. data is only read.
//
// Errors: [ErrInvalid] for a content that no operation names or that has ended; [ErrTooLarge].
func (u *Upload) Chunk(ctx context.Context, contentID string, data []byte, eof bool) error {
	c := u.contents[contentID]
	switch {
	case c == nil:
		return invalid("blob_chunk: no file has the content_id %q", contentID)
	case len(c.operations) == 0 && len(data) > 0:
		return invalid("blob_chunk: content_id %q belongs to a deletion", contentID)
	case len(c.operations) == 0:
		return nil
	case c.done:
		return invalid("blob_chunk: content_id %q has already ended", contentID)
	}
	if limit := u.repo.host.objects.Limits().ObjectBytes; c.size+int64(len(data)) > limit {
		return &failure{kind: ErrTooLarge, text: fmt.Sprintf(
			"path %q: its content (content_id %q) is larger than %s, the limit (--object-max)",
			u.request.Operations[c.operations[0]].Path, contentID, space.Size(uint64(limit)),
		)}
	}
	if err := u.meter.Add(len(data)); err != nil {
		return err
	}
	c.size += int64(len(data))
	if err := u.count(c, eof); err != nil {
		return err
	}
	if u.writesGitlink(c) {
		return u.storeGitlink(c, data, eof)
	}
	return u.store(ctx, c, data, eof)
}

// count counts the contents that have begun and not ended.
func (u *Upload) count(c *content, eof bool) error {
	switch {
	case eof && c.begun:
		u.open--
	case !eof && !c.begun:
		if limit := u.repo.host.limits.OpenContentCountMax; u.open >= limit {
			return invalid("blob_chunk: more than %d contents have begun and not ended", limit)
		}
		c.begun = true
		u.open++
	}
	return nil
}

// store stores the next bytes of a blob.
func (u *Upload) store(ctx context.Context, c *content, data []byte, eof bool) error {
	id, err := u.write(ctx, c, data, eof)
	if err != nil {
		return fmt.Errorf("store content: %w", err)
	}
	if eof {
		u.finish(c, id)
	}
	return nil
}

// write writes the next bytes of a blob, and returns its ID after the last.
func (u *Upload) write(ctx context.Context, c *content, data []byte, eof bool) (object.ID, error) {
	if c.blob == nil {
		_, predecessor := u.plan.Existing(c.operations[0])
		if eof {
			return u.objects.Write(ctx, object.TypeBlob, data, predecessor)
		}
		c.blob = u.objects.NewBlob(predecessor)
	}
	if err := c.blob.Write(ctx, data); err != nil || !eof {
		return object.ZeroID, err
	}
	id, err := c.blob.Commit(ctx)
	err = errors.Join(err, c.blob.Close())
	c.blob = nil
	return id, err
}

func (u *Upload) writesGitlink(c *content) bool {
	for _, i := range c.operations {
		if u.request.Operations[i].Mode.IsGitlink() {
			return true
		}
	}
	return false
}

// gitlinkBytesMax is the size of a submodule's content: an ID and a line feed.
const gitlinkBytesMax = 2*object.IDSize + 1

// storeGitlink takes the ID that a submodule's content spells.
func (u *Upload) storeGitlink(c *content, data []byte, eof bool) error {
	for _, i := range c.operations {
		if op := &u.request.Operations[i]; !op.Mode.IsGitlink() {
			return invalid("path %q: its content is also that of a submodule", op.Path)
		}
	}
	fits := c.size <= gitlinkBytesMax
	if fits {
		c.gitlink += string(data)
	}
	if fits && !eof {
		return nil
	}
	path := u.request.Operations[c.operations[0]].Path
	id, err := object.ParseID(strings.TrimSuffix(c.gitlink, "\n"))
	if !fits || err != nil || id.IsZero() {
		return invalid("path %q: the content of a submodule is the id of a commit, 40 hexadecimal digits", path)
	}
	u.finish(c, id)
	return nil
}

func (u *Upload) finish(c *content, id object.ID) {
	c.done = true
	u.blobs++
	for _, i := range c.operations {
		u.plan.SetContent(i, id)
	}
}

// Finish makes the commit and returns when it is durable. The request's idempotency record, if it
// has one, is complete by now.
//
// Errors: [ErrInvalid] when a content is missing or an operation does not fit the tree,
// commit.ErrInvalid, commit.ErrEdit, commit.ErrTooLarge, [ErrNotFound], [ErrStale], refs.ErrDenied,
// refs.ErrBusy, refs.ErrReceiptMismatch.
func (u *Upload) Finish(ctx context.Context) (CommitResult, error) {
	if err := u.ended(); err != nil {
		return CommitResult{}, err
	}
	if u.plan.EditedCount() > 0 {
		u.rehearse(ctx)
	}
	return u.repo.commitTo(ctx, &u.actor, "commit-pack", &u.request.Target, &u.request.Details, u.objects, u.blobCount,
		u.build)
}

// ended says which content is missing, if one is.
func (u *Upload) ended() error {
	for i, op := range u.request.Operations {
		if op.needsContent() && !u.contents[op.ContentID].done {
			return invalid("files[%d]: the content of %q, content_id %q, has not ended", i, op.Path, op.ContentID)
		}
	}
	return nil
}

// build makes the tree of the commit on the tree base.
func (u *Upload) build(ctx context.Context, base object.ID) (object.ID, error) {
	return u.plan.Apply(ctx, u.objects, base)
}

func (u *Upload) blobCount() int { return u.blobs + u.plan.EditedCount() }

// rehearse edits the files of the current tip, outside of the repository's turn. It leaves failures
// to the transaction.
func (u *Upload) rehearse(ctx context.Context) {
	_ = u.repo.rehearse(ctx, &u.actor, &u.request.Target, u.objects, func(ctx context.Context, base object.ID) error {
		return fair.Do(ctx, func(ctx context.Context) error { return u.plan.Prepare(ctx, u.objects, base) })
	})
}
