package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"packhorse/engine/commit"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/space"
	"packhorse/pack/object"
)

// FileOperation writes or deletes one path of an API commit.
type FileOperation struct {
	Path   string
	Delete bool
	// Mode is zero when the request states none.
	Mode object.Mode
	// ContentID names the content that [Upload.Chunk] brings; several operations may share one.
	ContentID string
}

// UploadRequest describes a commit whose contents follow.
type UploadRequest struct {
	Target     CommitTarget
	Details    CommitDetails
	Operations []FileOperation
}

// Upload is an API commit whose contents are arriving. It is used by one goroutine, which closes
// it.
//
// A content that ends in its first chunk is stored at once. Any other is spooled while it arrives,
// since git hashes an object's size first, and read back once when it has ended (docs/invariants.md
// 12). One of them at a time is compressed while it arrives.
type Upload struct {
	repo     *Repository
	actor    Actor
	request  UploadRequest
	plan     *commit.Plan
	view     *odb.View
	objects  *odb.Quarantine
	contents map[string]*content
	spool    file.Scratch
	spooled  int64
	open     int // contents that have begun and not ended
	blobs    int
	meter    space.Meter

	arriving *content // the content that is compressed while it is spooled; nil for none
	arrival  *odb.Arrival
}

// content is one content of an upload.
type content struct {
	operations []int // indexes of the operations that write it
	begun      bool
	done       bool
	size       int64
	extents    []extent // where it lies in the spool file
}

// extent is a run of bytes in the spool file.
type extent struct{ offset, size int64 }

// NewUpload begins an API commit. It refuses at once a request that is bound to fail, unless an
// idempotency key may have to replay an earlier success.
//
// Errors: [ErrInvalid], commit.ErrInvalid, [ErrNotFound], [ErrStale], [ErrTooLarge].
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
	parent, err := r.expected(ctx, &actor, &request.Target)
	if err != nil {
		return nil, err
	}
	u.view, err = r.Objects(ctx)
	if err != nil {
		return nil, err
	}
	u.objects = u.view.NewQuarantine(ctx)
	tree, err := treeOf(ctx, u.view.Linked(), parent)
	if err == nil {
		err = u.plan.Locate(ctx, u.view.Linked(), tree)
	}
	if err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

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
		operations[i] = commit.Operation{Path: op.Path, Delete: op.Delete, Mode: op.Mode}
		if op.Delete {
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
	err := errors.Join(u.dropArrival(), u.objects.Close(), u.view.Close())
	if u.spool != nil {
		err = errors.Join(err, u.spool.Close())
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
	if eof && !c.begun {
		return u.store(ctx, c, data)
	}
	if !c.begun {
		if limit := u.repo.host.limits.OpenContentCountMax; u.open >= limit {
			return invalid("blob_chunk: more than %d contents have begun and not ended", limit)
		}
		if err := u.begin(ctx, c); err != nil {
			return err
		}
	}
	if err := u.append(ctx, c, data); err != nil {
		return err
	}
	if !eof {
		return nil
	}
	u.open--
	err := u.unspool(ctx, c)
	if c == u.arriving {
		err = errors.Join(err, u.dropArrival())
	}
	return err
}

// begin prepares for a content that comes in pieces. One at a time is compressed while it arrives.
func (u *Upload) begin(ctx context.Context, c *content) error {
	if u.spool == nil {
		spool, err := u.repo.host.files.Scratch(ctx)
		if err != nil {
			return fmt.Errorf("open spool file: %w", err)
		}
		u.spool = spool
	}
	if u.arriving == nil && !u.writesGitlink(c) {
		u.arriving = c
		u.arrival = u.objects.NewArrival(io.NewSectionReader(u.spool, u.spooled, math.MaxInt64-u.spooled))
	}
	c.begun = true
	u.open++
	return nil
}

// dropArrival ends the compression of the arriving content.
func (u *Upload) dropArrival() error {
	if u.arriving == nil {
		return nil
	}
	arrival := u.arrival
	u.arriving, u.arrival = nil, nil
	return arrival.Close()
}

// append spools data as the next bytes of c.
func (u *Upload) append(ctx context.Context, c *content, data []byte) error {
	if _, err := u.spool.Write(data); err != nil {
		return fmt.Errorf("spool content: %w", err)
	}
	size := int64(len(data))
	if n := len(c.extents); n > 0 && c.extents[n-1].offset+c.extents[n-1].size == u.spooled {
		c.extents[n-1].size += size
	} else {
		c.extents = append(c.extents, extent{offset: u.spooled, size: size})
	}
	u.spooled += size
	c.size += size
	switch {
	case c != u.arriving:
		return nil
	case len(c.extents) > 1: // other contents lie between
		return u.dropArrival()
	}
	return u.arrival.Grow(ctx, c.size)
}

// wholeContentMax is the size in bytes up to which a spooled content is stored as if it had come in
// one chunk.
const wholeContentMax = 1 << 20

// unspool stores a content that has been spooled whole.
func (u *Upload) unspool(ctx context.Context, c *content) error {
	parts := make([]io.Reader, len(c.extents))
	for i, e := range c.extents {
		parts[i] = io.NewSectionReader(u.spool, e.offset, e.size)
	}
	from := io.MultiReader(parts...)
	if c.size <= wholeContentMax {
		data := make([]byte, c.size)
		if _, err := io.ReadFull(from, data); err != nil {
			return fmt.Errorf("read spooled content: %w", err)
		}
		return u.store(ctx, c, data)
	}
	if u.writesGitlink(c) {
		return u.store(ctx, c, nil) // refused there: no id is that long
	}
	var id object.ID
	var err error
	if c == u.arriving {
		id, err = u.arrival.Finish(ctx, c.size)
	} else {
		id, err = u.objects.WriteBlobFrom(ctx, from, c.size)
	}
	if err != nil {
		return fmt.Errorf("store content: %w", err)
	}
	u.finish(c, id)
	return nil
}

// store stores a content that is in memory.
func (u *Upload) store(ctx context.Context, c *content, data []byte) error {
	if u.writesGitlink(c) {
		return u.storeGitlink(c, data)
	}
	_, predecessor := u.plan.Existing(c.operations[0])
	id, err := u.objects.Write(ctx, object.TypeBlob, data, predecessor)
	if err != nil {
		return fmt.Errorf("store content: %w", err)
	}
	u.finish(c, id)
	return nil
}

func (u *Upload) writesGitlink(c *content) bool {
	for _, i := range c.operations {
		if u.request.Operations[i].Mode.IsGitlink() {
			return true
		}
	}
	return false
}

// storeGitlink takes the id that a submodule's content spells.
func (u *Upload) storeGitlink(c *content, data []byte) error {
	for _, i := range c.operations {
		if op := &u.request.Operations[i]; !op.Mode.IsGitlink() {
			return invalid("path %q: its content is also that of a submodule", op.Path)
		}
	}
	path := u.request.Operations[c.operations[0]].Path
	id, err := object.ParseID(strings.TrimSuffix(string(data), "\n"))
	if err != nil || id.IsZero() {
		return invalid("path %q: the content of a submodule is the id of a commit, 40 hexadecimal digits", path)
	}
	u.finish(c, id)
	return nil
}

func (u *Upload) finish(c *content, id object.ID) {
	c.done = true
	c.extents = nil
	u.blobs++
	for _, i := range c.operations {
		u.plan.SetContent(i, id)
	}
}

// Finish makes the commit and returns when it is durable. The request's idempotency record, if it
// has one, is complete by now.
//
// Errors: [ErrInvalid] when a content is missing or an operation does not fit the tree,
// commit.ErrInvalid, [ErrNotFound], [ErrStale], refs.ErrDenied, refs.ErrBusy,
// refs.ErrReceiptMismatch.
func (u *Upload) Finish(ctx context.Context) (CommitResult, error) {
	for i, op := range u.request.Operations {
		if !op.Delete && !u.contents[op.ContentID].done {
			return CommitResult{}, invalid("files[%d]: the content of %q, content_id %q, has not ended", i, op.Path,
				op.ContentID)
		}
	}
	build := func(ctx context.Context, base object.ID) (object.ID, error) {
		return u.plan.Apply(ctx, u.objects, base)
	}
	return u.repo.commitTo(ctx, &u.actor, "commit-pack", &u.request.Target, &u.request.Details, u.objects,
		func() int { return u.blobs }, build)
}
