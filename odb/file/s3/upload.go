package s3

import (
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // a checksum against damage on the way, which every service knows
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
)

const (
	// partBytes is the size of a part, and of the largest object that is stored by one request. All
	// parts but the last have this size, which some services demand.
	partBytes = 16 << 20
	// partsMax is the number of parts that an object may have.
	partsMax = 10_000
	// sizeMax is the size of the largest file.
	sizeMax = partsMax * partBytes
	// partsHeld is the number of parts at the end of a file that are not sent while it grows.
	partsHeld = 2
	// behindMax is the number of parts of one file that are sent at a time while it grows.
	behindMax = 2
	// tokenKey is the key of a writer's token in the metadata of an object.
	tokenKey = "packhorse-writer"
)

// part is one of the parts of a file, in the state in which it was changed last.
type part struct {
	version int    // counts changes from 1 on
	behind  bool   // it is being sent while the file grows
	sent    int    // the version that was sent; 0 if none was
	tag     string // of what was sent
}

// grown begins to send the parts that the growth of the file has completed.
func (w *writer) grown() {
	whole := int(w.spool.Size() / partBytes)
	if whole <= partsHeld+1 { // nearly all files are small
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.behind >= behindMax || w.next >= whole-partsHeld {
		return
	}
	w.behind++
	rescue.Go(&w.sending, w.sendBehind, w.behindFailed)
}

// behindFailed notes that sendBehind has ended with a panic.
func (w *writer) behindFailed(err error) {
	w.store.log.Error("failed to send a part before its file is complete", "file", w.name, "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.behind--
}

// sendBehind sends parts while there are whole ones. One that fails is sent by Seal, which tells.
func (w *writer) sendBehind() error {
	for {
		i, ok := w.take()
		if !ok {
			return nil
		}
		w.sendTaken(i)
	}
}

func (w *writer) sendTaken(i int) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.part(i).behind = false
	}()
	select {
	case w.store.uploads <- struct{}{}:
		defer func() { <-w.store.uploads }()
		_ = w.sendPart(w.ctx, i, partBytes)
	case <-w.ctx.Done():
	}
}

// take returns the next part to be sent while the file grows. If there is none, the goroutine that
// asks ends.
func (w *writer) take() (i int, ok bool) {
	whole := int(w.spool.Size() / partBytes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.ctx.Err() != nil || w.next >= whole-partsHeld {
		w.behind--
		return 0, false
	}
	w.part(w.next).behind = true
	w.next++
	return w.next - 1, true
}

// changed notes that bytes were written again.
func (w *writer) changed(offset, size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := int(offset / partBytes); i <= int((offset+size-1)/partBytes); i++ {
		w.part(i).version++
	}
}

// part returns a part. The caller holds w.mu.
func (w *writer) part(i int) *part {
	for len(w.parts) <= i {
		w.parts = append(w.parts, part{version: 1})
	}
	return &w.parts[i]
}

// put stores the file. What is still on its way keeps nothing else waiting.
func (w *writer) put(ctx context.Context) error {
	size := w.spool.Size()
	if size > partBytes {
		// Before the parts: if this fails, none of them tries it again while the others are cancelled.
		if _, err := w.begin(ctx); err != nil {
			return err
		}
		if err := w.putParts(ctx, size); err != nil {
			return err
		}
	}
	w.sending.Wait()
	if w.uploadID() == "" && size <= partBytes {
		return w.putWhole(ctx, size)
	}
	if err := w.putParts(ctx, size); err != nil { // those that were on their way, if they have failed
		return err
	}
	return w.complete(ctx, size)
}

// putParts sends the parts that were not sent as they are now, and are not on their way.
func (w *writer) putParts(ctx context.Context, size int64) error {
	group, ctx := rescue.WithContext(ctx)
	for i := range int((size + partBytes - 1) / partBytes) {
		if !w.stale(i) {
			continue
		}
		select {
		case w.store.uploads <- struct{}{}:
		case <-ctx.Done():
			group.Fail(context.Cause(ctx))
			return group.Wait()
		}
		group.Go(func() error {
			defer func() { <-w.store.uploads }()
			return w.sendPart(ctx, i, min(partBytes, size-int64(i)*partBytes))
		})
	}
	return group.Wait()
}

// stale reports whether a part has to be sent, and is not on its way.
func (w *writer) stale(i int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.part(i)
	return p.sent != p.version && !p.behind
}

// sendPart sends the bytes that a part has now.
func (w *writer) sendPart(ctx context.Context, i int, size int64) error {
	upload, err := w.begin(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	version := w.part(i).version
	w.mu.Unlock()
	var tag string
	err = w.store.try(ctx, size, func(ctx context.Context) error {
		body, sum, err := w.body(int64(i)*partBytes, size)
		if err != nil {
			return err
		}
		out, err := w.store.client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &w.store.location.Bucket, Key: aws.String(w.store.key(w.name)), UploadId: &upload,
			PartNumber: aws.Int32(int32(i + 1)), Body: body, ContentLength: &size, ContentMD5: sum,
		})
		if err == nil && aws.ToString(out.ETag) == "" {
			err = broken("a part that was sent has no ETag")
		}
		if err == nil {
			tag = *out.ETag
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("send part %d: %w", i+1, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.part(i)
	p.sent, p.tag = version, tag
	return nil
}

// spoolReader reads a range of a spool. Its errors are those of the disk, whoever reads.
type spoolReader struct{ *io.SectionReader }

func (r spoolReader) Read(p []byte) (int, error) {
	n, err := r.SectionReader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &localError{err}
	}
	return n, err
}

// body returns a reader of a range of the spool, and its checksum if the signature has none.
func (w *writer) body(offset, size int64) (body io.ReadSeeker, sum *string, err error) {
	section := spoolReader{io.NewSectionReader(w.spool, offset, size)}
	if w.store.location.isPlain() {
		return section, nil, nil
	}
	hash := md5.New() //nolint:gosec // see the import
	if _, err := io.Copy(hash, section); err != nil {
		return nil, nil, err
	}
	_, err = section.Seek(0, io.SeekStart)
	return section, aws.String(base64.StdEncoding.EncodeToString(hash.Sum(nil))), err
}

func (w *writer) uploadID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.upload
}

// begin returns the multipart upload, which it begins if there is none.
func (w *writer) begin(ctx context.Context) (string, error) {
	w.starting.Lock()
	defer w.starting.Unlock()
	id, noted := w.started()
	if noted {
		return id, nil
	}
	if err := w.intent.Begin(ctx); err != nil {
		return "", fmt.Errorf("begin multipart upload: %w", err)
	}
	if id == "" {
		var err error
		if id, err = w.start(ctx); err != nil {
			return "", fmt.Errorf("begin multipart upload: %w", err)
		}
	}
	if err := w.intent.Upload(ctx, id); err != nil {
		return "", fmt.Errorf("begin multipart upload: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted = true
	return id, nil
}

// started returns the ID of the multipart upload, and whether the intent has it.
func (w *writer) started() (id string, noted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.upload, w.noted
}

// start begins the multipart upload. One whose answer is lost stays there, without parts.
func (w *writer) start(ctx context.Context) (id string, err error) {
	err = w.store.try(ctx, 0, func(ctx context.Context) error {
		out, err := w.store.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
			Bucket: &w.store.location.Bucket, Key: aws.String(w.store.key(w.name)), Metadata: w.metadata(),
		})
		if err == nil && aws.ToString(out.UploadId) == "" {
			err = broken("a multipart upload without an ID")
		}
		if err == nil {
			id = *out.UploadId
		}
		return err
	})
	if err == nil {
		w.mu.Lock()
		w.upload = id
		w.mu.Unlock()
	}
	return id, err
}

func (w *writer) metadata() map[string]string { return map[string]string{tokenKey: w.token} }

// complete makes the parts an object.
func (w *writer) complete(ctx context.Context, size int64) error {
	parts := make([]types.CompletedPart, (size+partBytes-1)/partBytes)
	w.mu.Lock()
	upload := w.upload
	for i := range parts {
		parts[i] = types.CompletedPart{ETag: aws.String(w.part(i).tag), PartNumber: aws.Int32(int32(i + 1))}
	}
	w.mu.Unlock()
	return w.appear(ctx, size, func(ctx context.Context, condition *string) error {
		out, err := w.store.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &w.store.location.Bucket, Key: aws.String(w.store.key(w.name)), UploadId: &upload,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}, IfNoneMatch: condition,
		})
		if err == nil && aws.ToString(out.ETag) == "" { // the answer may begin before the work is done
			err = broken("a multipart upload is complete without an ETag")
		}
		return err
	})
}

// putWhole stores the file by one request.
func (w *writer) putWhole(ctx context.Context, size int64) error {
	return w.appear(ctx, size, func(ctx context.Context, condition *string) error {
		body, sum, err := w.body(0, size)
		if err != nil {
			return err
		}
		_, err = w.store.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &w.store.location.Bucket, Key: aws.String(w.store.key(w.name)), Metadata: w.metadata(),
			Body: body, ContentLength: &size, ContentMD5: sum, IfNoneMatch: condition,
		})
		return err
	})
}

// appear sends a request that makes the file visible, on the condition that there is no object of
// its name, if the service knows conditions. An attempt whose answer is lost may have succeeded:
// then the object that the next one meets is ours.
func (w *writer) appear(
	ctx context.Context, size int64, request func(ctx context.Context, condition *string) error,
) error {
	if err := w.intent.Begin(ctx); err != nil {
		return err
	}
	attempt := func() error {
		var condition *string
		if !w.store.unconditional.Load() {
			condition = aws.String("*")
		}
		return rescue.Do(func() error { // what a panic leaves behind vanishes, too
			return w.store.try(ctx, size, func(ctx context.Context) error { return request(ctx, condition) })
		})
	}
	err := attempt()
	if errors.Is(err, errUndone) && !w.store.unconditional.Swap(true) {
		err = attempt()
	}
	if err == nil {
		return nil
	}
	taken := errors.Is(err, errTaken)
	if taken || errors.Is(err, errNoUpload) {
		ours, lookErr := w.ours(ctx, size)
		if ours {
			return nil
		}
		if taken { // whose it is may be unknown, so it stays
			return cmp.Or(lookErr, file.ErrExists)
		}
	}
	w.vanish(err)
	return err
}

// ours reports whether the object is what this writer has stored.
func (w *writer) ours(ctx context.Context, size int64) (bool, error) {
	var ours bool
	err := w.store.try(ctx, 0, func(ctx context.Context) error {
		out, err := w.store.client.HeadObject(ctx, &s3.HeadObjectInput{
			Bucket: &w.store.location.Bucket, Key: aws.String(w.store.key(w.name)),
		})
		if err == nil {
			ours = out.Metadata[tokenKey] == w.token && aws.ToInt64(out.ContentLength) == size
		}
		return err
	})
	if errors.Is(err, file.ErrNotFound) {
		err = nil
	}
	return ours, err
}

// vanish removes the object of a request that failed with an error, and may have been served all
// the same. The service may even do so later.
func (w *writer) vanish(failed error) {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
	defer cancel()
	err := w.store.remove(ctx, w.store.key(w.name))
	if err != nil {
		w.store.log.Warn("failed to remove a file that is not sealed", "file", w.name, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = cmp.Or(err, failed)
}

// clear removes the parts that were sent, without waiting for it, and ends the intent.
func (w *writer) clear() {
	w.mu.Lock()
	upload, left := w.upload, w.left
	w.mu.Unlock()
	if upload == "" {
		w.intent.End(left)
		return
	}
	w.store.behind("abort a multipart upload", w.name, func(ctx context.Context) error {
		return w.store.abortUpload(ctx, w.store.key(w.name), upload)
	}, func(err error) { w.intent.End(cmp.Or(left, err)) })
}

// abortUpload removes the parts of an upload, whether there is one or not.
func (s *Store) abortUpload(ctx context.Context, key, upload string) error {
	err := s.try(ctx, 0, func(ctx context.Context) error {
		_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
			Bucket: &s.location.Bucket, Key: &key, UploadId: &upload,
		})
		return err
	})
	if errors.Is(err, errNoUpload) {
		return nil
	}
	return err
}
