package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"packhorse/odb/file"
)

// stream reads a range of an object. A body that breaks off or is too short is asked for again from
// where it ended. It belongs to one goroutine.
type stream struct {
	store       *Store
	ctx         context.Context // of everything that the stream asks for
	name        string
	size        int64 // of the object
	offset, end int64 // of what is not read yet
	attempts    attempts

	body   io.ReadCloser      // nil between attempts
	cancel context.CancelFunc // of the attempt
}

// OpenStream returns a reader of size bytes of a file from offset on, which are asked for by one
// request. fileSize is the size of the file. ctx ends all reading, and the caller closes the
// reader, which belongs to one goroutine.
//
// Errors of reading: [file.ErrNotFound], [file.ErrUnavailable], and the error of ctx.
func (s *Store) OpenStream(ctx context.Context, name string, fileSize, offset, size int64) (io.ReadCloser, error) {
	if err := file.CheckName(name); err != nil {
		return nil, err
	}
	if offset < 0 || size < 0 || offset+size > fileSize {
		return nil, file.ErrRange
	}
	return s.stream(ctx, name, fileSize, offset, offset+size), nil
}

func (s *Store) stream(ctx context.Context, name string, size, offset, end int64) *stream {
	return &stream{store: s, ctx: ctx, name: name, size: size, offset: offset, end: end, attempts: attempts{store: s}}
}

// OpenTail returns the size of a file, and a reader of its last tailBytes, or of all of it if it is
// smaller: one request for both. ctx ends all reading, and the caller closes the reader.
//
// Errors, also of reading: [file.ErrName], [file.ErrNotFound], [file.ErrUnavailable], and the error
// of ctx.
func (s *Store) OpenTail(
	ctx context.Context, name string, tailBytes int64,
) (size int64, tail io.ReadCloser, err error) {
	if err := s.check(ctx, name); err != nil {
		return 0, nil, err
	}
	r := s.stream(ctx, name, -1, 0, 0)
	for {
		err := r.request(fmt.Sprintf("bytes=-%d", tailBytes), func(out *s3.GetObjectOutput) error {
			return r.takeTail(out, tailBytes)
		})
		if err == nil {
			return r.size, r, nil
		}
		if _, final := verdict(err); errors.Is(final, errEmpty) {
			if err := r.openEmpty(); err != nil {
				return 0, nil, fmt.Errorf("open file %s: %w", name, err)
			}
			return 0, r, nil
		}
		if err := r.attempts.failed(ctx, err); err != nil {
			return 0, nil, fmt.Errorf("open file %s: %w", name, err)
		}
	}
}

// takeTail learns the size of the object and what the body is from an answer.
func (r *stream) takeTail(out *s3.GetObjectOutput, tailBytes int64) error {
	if isWhole(out) && *out.ContentLength <= tailBytes { // as some answer if the range covers everything
		r.size, r.offset, r.end = *out.ContentLength, 0, *out.ContentLength
		return nil
	}
	if aws.ToString(out.ContentRange) == emptyContentRange && aws.ToInt64(out.ContentLength) == 0 {
		r.size = 0
		return nil
	}
	first, last, size, err := parseContentRange(aws.ToString(out.ContentRange))
	if err != nil {
		return err
	}
	if first != max(0, size-tailBytes) || last != size-1 {
		return broken("asked for the last %d bytes, got %s", tailBytes, *out.ContentRange)
	}
	r.size, r.offset, r.end = size, first, size
	return nil
}

// emptyContentRange is how MinIO says that an object has no last bytes. Others refuse the range.
const emptyContentRange = "bytes 0--1/0"

// openEmpty checks that the object is empty: a range of an empty one is refused.
func (r *stream) openEmpty() error {
	key := r.store.key(r.name)
	return r.store.try(r.ctx, 0, func(ctx context.Context) error {
		out, err := r.store.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &r.store.location.Bucket, Key: &key})
		if err != nil {
			return err
		}
		if err := out.Body.Close(); err != nil {
			return err
		}
		if out.ContentLength == nil || *out.ContentLength != 0 {
			return broken("the last bytes of a file are refused")
		}
		r.size = 0
		return nil
	})
}

// Read implements io.Reader. It never returns less than the range and io.EOF.
func (r *stream) Read(p []byte) (int, error) {
	if r.offset >= r.end {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.end-r.offset)]
	for {
		n, err := r.read(p)
		r.offset += int64(n)
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		r.drop()
		if err := r.attempts.failed(r.ctx, err); err != nil {
			return 0, fmt.Errorf("read file %s: %w", r.name, err)
		}
	}
}

// read reads from the body, which is asked for if there is none.
func (r *stream) read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if r.body == nil {
		err := r.request(fmt.Sprintf("bytes=%d-%d", r.offset, r.end-1), r.takeRange)
		if err != nil {
			return 0, err
		}
	}
	n, err := r.body.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		err = broken("the body ends %d bytes early", r.end-r.offset)
	}
	return n, err
}

// takeRange checks that an answer is the range.
func (r *stream) takeRange(out *s3.GetObjectOutput) error {
	if isWhole(out) && r.offset == 0 && r.end == r.size && *out.ContentLength == r.size {
		return nil
	}
	first, last, size, err := parseContentRange(aws.ToString(out.ContentRange))
	if err != nil {
		return err
	}
	if first != r.offset || last != r.end-1 || size != r.size {
		return broken("asked for bytes %d-%d/%d, got %s", r.offset, r.end-1, r.size, *out.ContentRange)
	}
	return nil
}

// isWhole reports whether an answer is all of the object.
func isWhole(out *s3.GetObjectOutput) bool {
	raw, ok := middleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response)
	return ok && raw.StatusCode == http.StatusOK && out.ContentRange == nil && out.ContentLength != nil
}

// request asks for a range; take judges the answer.
func (r *stream) request(span string, take func(*s3.GetObjectOutput) error) error {
	ctx, cancel := context.WithCancel(r.ctx)
	key := r.store.key(r.name)
	var out *s3.GetObjectOutput
	err := r.store.timed(func() (err error) {
		out, err = r.store.client.GetObject(ctx,
			&s3.GetObjectInput{Bucket: &r.store.location.Bucket, Key: &key, Range: &span})
		return err
	})
	if err != nil {
		cancel()
		return err
	}
	r.body, r.cancel = out.Body, cancel
	if err := take(out); err != nil {
		r.drop()
		return err
	}
	return nil
}

// drop ends an attempt.
func (r *stream) drop() {
	if r.body != nil {
		r.cancel()
		_ = r.body.Close() // what was read of it has been checked
		r.body = nil
	}
}

// Close ends the request. It returns nil.
func (r *stream) Close() error {
	r.drop()
	return nil
}

// parseContentRange parses "bytes FIRST-LAST/SIZE".
func parseContentRange(s string) (first, last, size int64, err error) {
	var rest string
	n, _ := fmt.Sscanf(s+" .", "bytes %d-%d/%d %s", &first, &last, &size, &rest)
	if n != 4 || rest != "." || first < 0 || last < first || size <= last {
		return 0, 0, 0, broken("Content-Range: %.100q", s)
	}
	return first, last, size, nil
}
