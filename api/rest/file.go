package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/odb"
)

// File answers GET and HEAD /repos/file: the bytes of a file, whole or a range of them, with the
// validators of RFC 9110.
func (d *Door) File(x exchange.Exchange, grant *auth.Grant) error {
	space, err := spaceOf(x)
	if err != nil {
		return err
	}
	values := x.Query()
	path := values.Get("path")
	if path == "" {
		return badRequest("path is required")
	}
	repo, err := d.recallAt(x, grant)
	if err != nil {
		return err
	}
	file, err := repo.File(x.Context(), engine.FileRequest{
		Namespace: space, Ref: values.Get("ref"), Path: path, Slot: x.Slot, Reserve: x.Reserve,
	})
	if err != nil {
		return err
	}
	etag := `"` + file.ID.String() + `"`
	x.SetHeader("ETag", etag)
	x.SetHeader("Last-Modified", file.Modified.Format(http.TimeFormat))
	x.SetHeader("Accept-Ranges", "bytes")
	x.SetHeader("X-Blob-Sha", file.ID.String())
	x.SetHeader("X-Last-Commit-Sha", file.Last.String())
	const contentType = "application/octet-stream"
	if status := precondition(x, etag, file.Modified); status != 0 {
		x.Respond(status, contentType, nil)
		return file.Close()
	}
	part, status := rangeOf(x, etag, file.Modified, file.Size)
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		x.SetHeader("Content-Range", fmt.Sprintf("bytes */%d", file.Size))
		x.Respond(status, contentType, nil)
		return file.Close()
	case http.StatusPartialContent:
		x.SetHeader("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.offset, part.offset+part.size-1, file.Size))
	}
	if x.Method() == http.MethodHead {
		x.StreamSized(status, contentType, part.size, func(context.Context, io.Writer) error { return nil })
		return file.Close()
	}
	release := func() {}
	if costs := fileCosts(file.Size); costs > 0 {
		if release, err = x.Reserve(x.Context(), costs); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	content, err := file.Content(x.Context())
	if err != nil {
		release()
		return errors.Join(err, file.Close())
	}
	x.StreamSized(status, contentType, part.size, func(_ context.Context, w io.Writer) error {
		defer release()
		return errors.Join(writePart(w, content, part), content.Close(), file.Close())
	})
	return nil
}

// Memory of a file that is being sent, in bytes: a small one whole; of a large one a block as it is
// stored, the same block inflated, and buffers.
const (
	fileUncounted = 32 << 10
	fileCostsMax  = 2<<20 + 512<<10
)

func fileCosts(size int64) int64 {
	if size <= fileUncounted {
		return 0
	}
	return min(2*size, fileCostsMax)
}

// writePart writes a part of a file, or all of it.
func writePart(w io.Writer, content *odb.Object, part span) error {
	if part.size == content.Size {
		_, err := content.WriteTo(w)
		return err
	}
	section, err := content.Section(part.offset, part.size)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, section)
	return errors.Join(err, section.Close())
}

// precondition evaluates the conditional headers in the order of RFC 9110, section 13.2.2, and
// returns the status that ends the request, or 0.
func precondition(x exchange.Exchange, etag string, modified time.Time) int {
	if match := x.Header("If-Match"); match != "" {
		if !exchange.TagAmong(match, etag, false) {
			return http.StatusPreconditionFailed
		}
	} else if since, ok := timeOf(x.Header("If-Unmodified-Since")); ok && modified.After(since) {
		return http.StatusPreconditionFailed
	}
	if match := x.Header("If-None-Match"); match != "" {
		if exchange.TagAmong(match, etag, true) {
			return http.StatusNotModified
		}
	} else if since, ok := timeOf(x.Header("If-Modified-Since")); ok && !modified.After(since) {
		return http.StatusNotModified
	}
	return 0
}

func timeOf(header string) (time.Time, bool) {
	if header == "" {
		return time.Time{}, false
	}
	t, err := http.ParseTime(header)
	return t, err == nil
}

// span is a run of bytes.
type span struct{ offset, size int64 }

// rangeOf returns the requested span of size bytes, and 200, 206 or 416. HEAD is answered as GET
// would be. Several ranges at once, or a malformed header, are answered with the whole, as RFC
// 9110, section 14.2 allows.
func rangeOf(x exchange.Exchange, etag string, modified time.Time, size int64) (span, int) {
	whole := span{0, size}
	unit, spec, ok := strings.Cut(x.Header("Range"), "=")
	first, last, isRange := strings.Cut(strings.Trim(spec, " \t"), "-")
	if !ok || !isRange || !strings.EqualFold(unit, "bytes") || !sameAs(x.Header("If-Range"), etag, modified) {
		return whole, http.StatusOK
	}
	from, hasFrom, ok1 := position(first)
	to, hasTo, ok2 := position(last)
	switch {
	case !ok1 || !ok2 || !hasFrom && !hasTo || hasFrom && hasTo && to < from:
		return whole, http.StatusOK
	case !hasFrom: // the last bytes
		from, to = max(size-to, 0), size-1
		if last := to - from + 1; last == 0 || size == 0 {
			return span{}, http.StatusRequestedRangeNotSatisfiable
		}
	case from >= size:
		return span{}, http.StatusRequestedRangeNotSatisfiable
	case !hasTo:
		to = size - 1
	}
	to = min(to, size-1)
	return span{from, to - from + 1}, http.StatusPartialContent
}

// position reads a number of a range, which may be missing. A number too large for any file counts
// as the largest.
func position(digits string) (n int64, given, ok bool) {
	if digits == "" {
		return 0, false, true
	}
	if strings.Trim(digits, "0123456789") != "" {
		return 0, true, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return n, true, true
}

// sameAs reports whether an If-Range header still holds, or is absent.
func sameAs(condition, etag string, modified time.Time) bool {
	if condition == "" {
		return true
	}
	if strings.HasPrefix(condition, `"`) {
		return condition == etag
	}
	t, ok := timeOf(condition)
	return ok && t.Equal(modified)
}
