package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
)

// File answers GET and HEAD /repos/file: the bytes of a file, whole or a range of them, with the validators of RFC 9110.
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
	repo, err := d.open(x, grant)
	if err != nil {
		return err
	}
	file, err := repo.File(x.Context(), engine.FileRequest{Namespace: space, Ref: values.Get("ref"), Path: path})
	if err != nil {
		return err
	}
	etag := `"` + file.ID.String() + `"`
	x.SetHeader("ETag", etag)
	x.SetHeader("Last-Modified", file.Modified.Format(http.TimeFormat))
	x.SetHeader("Accept-Ranges", "bytes")
	x.SetHeader("X-Blob-Sha", file.ID.String())
	x.SetHeader("X-Last-Commit-Sha", file.LastCommit.String())
	const contentType = "application/octet-stream"
	if status := precondition(x, etag, file.Modified); status != 0 {
		x.Respond(status, contentType, nil)
		return file.Close()
	}
	span, status := rangeOf(x, etag, file.Modified, file.Content.Size)
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		x.SetHeader("Content-Range", fmt.Sprintf("bytes */%d", file.Content.Size))
		x.Respond(status, contentType, nil)
		return file.Close()
	case http.StatusPartialContent:
		x.SetHeader("Content-Range", fmt.Sprintf("bytes %d-%d/%d", span.offset, span.offset+span.size-1, file.Content.Size))
	}
	if x.Method() == http.MethodHead {
		x.StreamSized(status, contentType, span.size, func(context.Context, io.Writer) error { return nil })
		return file.Close()
	}
	x.StreamSized(status, contentType, span.size, func(_ context.Context, w io.Writer) error {
		defer file.Close()
		if span.size == file.Content.Size {
			_, err := file.Content.WriteTo(w)
			return err
		}
		section, err := file.Content.Section(span.offset, span.size)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, section)
		return errors.Join(err, section.Close())
	})
	return nil
}

// precondition evaluates the conditional headers in the order of RFC 9110, section 13.2.2, and returns the status that ends
// the request, or 0.
func precondition(x exchange.Exchange, etag string, modified time.Time) int {
	if match := x.Header("If-Match"); match != "" {
		if !etagAmong(match, etag, false) {
			return http.StatusPreconditionFailed
		}
	} else if since, ok := timeOf(x.Header("If-Unmodified-Since")); ok && modified.After(since) {
		return http.StatusPreconditionFailed
	}
	if match := x.Header("If-None-Match"); match != "" {
		if etagAmong(match, etag, true) {
			return http.StatusNotModified
		}
	} else if since, ok := timeOf(x.Header("If-Modified-Since")); ok && !modified.After(since) {
		return http.StatusNotModified
	}
	return 0
}

// etagAmong tells whether a list of entity tags holds etag. Weak comparison passes over the W/ of a tag.
func etagAmong(list, etag string, weak bool) bool {
	for tag := range strings.SplitSeq(list, ",") {
		tag = strings.TrimSpace(tag)
		if weak {
			tag = strings.TrimPrefix(tag, "W/")
		}
		if tag == "*" || tag == etag {
			return true
		}
	}
	return false
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

// rangeOf returns what of size bytes is asked for, and 200, 206 or 416. Several ranges are answered with the whole, as
// RFC 9110, section 14.2 allows.
func rangeOf(x exchange.Exchange, etag string, modified time.Time, size int64) (span, int) {
	whole := span{0, size}
	header := x.Header("Range")
	if header == "" || x.Method() != http.MethodGet && x.Method() != http.MethodHead || !sameAs(x.Header("If-Range"), etag, modified) {
		return whole, http.StatusOK
	}
	spec, ok := strings.CutPrefix(header, "bytes=")
	first, last, ok2 := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !ok2 || strings.Contains(spec, ",") {
		return whole, http.StatusOK
	}
	if first == "" {
		count, err := strconv.ParseUint(last, 10, 63)
		if err != nil {
			return whole, http.StatusOK
		}
		if count == 0 || size == 0 {
			return span{}, http.StatusRequestedRangeNotSatisfiable
		}
		n := min(int64(count), size)
		return span{size - n, n}, http.StatusPartialContent
	}
	start, err := strconv.ParseUint(first, 10, 63)
	if err != nil {
		return whole, http.StatusOK
	}
	end := uint64(size)
	if last != "" {
		if end, err = strconv.ParseUint(last, 10, 63); err != nil || end < start {
			return whole, http.StatusOK
		}
	}
	if int64(start) >= size {
		return span{}, http.StatusRequestedRangeNotSatisfiable
	}
	stop := size
	if end < uint64(size) {
		stop = int64(end) + 1
	}
	return span{int64(start), stop - int64(start)}, http.StatusPartialContent
}

// sameAs tells whether an If-Range header still holds, or is not there.
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
