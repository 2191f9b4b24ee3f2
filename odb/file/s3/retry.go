package s3

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"packhorse/odb/file"
)

const (
	// attemptsMax is how often a request is sent.
	attemptsMax = 8
	// attemptsTime is how long after the first attempt another one may begin.
	attemptsTime = time.Minute
	// backoffMax is the longest rest between attempts.
	backoffMax = 5 * time.Second
	// attemptTime bounds one attempt, with a second more for each MiB that it moves.
	attemptTime = 30 * time.Second
	// tidyTime bounds requests behind a writer that has failed.
	tidyTime = 10 * time.Second
)

var (
	// errTaken means that a conditional write found an object.
	errTaken = errors.New("there is an object of that name")
	// errUndone means that the service does not do what was asked for, such as conditional writes.
	errUndone = errors.New("the service does not do that")
	// errNoUpload means that a multipart upload is complete, aborted or unknown.
	errNoUpload = errors.New("there is no such upload")
	// errEmpty means that a range does not reach into the object.
	errEmpty = errors.New("the range is beyond the end")
	// errAnswer means that an answer is not what was asked for.
	errAnswer = errors.New("unexpected answer")
)

// attempts counts how often something was tried, and for how long.
type attempts struct {
	store *Store
	count int
	began time.Time
}

// try calls request until it succeeds or fails for good. size is what it moves, in bytes.
//
// Errors: the error of ctx, and those of verdict.
func (s *Store) try(ctx context.Context, size int64, request func(ctx context.Context) error) error {
	a := attempts{store: s}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, attemptTime+time.Duration(size>>20)*time.Second)
		err := s.timed(func() error { return request(bounded) })
		cancel()
		if err == nil {
			return nil
		}
		if err := a.failed(ctx, err); err != nil {
			return err
		}
	}
}

// timed makes a request, and tells its time.
func (s *Store) timed(request func() error) error {
	begin := time.Now()
	err := request()
	s.request(time.Since(begin))
	return err
}

// failed rests before the next attempt, or returns the error of the last one.
func (a *attempts) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %v", ctx.Err(), err) //nolint:errorlint // what the cancellation broke is no error of its own
	}
	now := time.Now()
	if a.count++; a.count == 1 {
		a.began = now
	}
	if local, ok := errors.AsType[*localError](err); ok {
		return local.error
	}
	again, final := verdict(err)
	if !again || a.count >= attemptsMax || now.Sub(a.began) > attemptsTime {
		return final
	}
	rest := min(a.store.backoff<<(a.count-1), backoffMax)
	timer := time.NewTimer(rest - rand.N(rest/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %v", ctx.Err(), err) //nolint:errorlint // as above
	case <-timer.C:
		return nil
	}
}

// verdict says whether another attempt may succeed, and what the error of a request means.
//
// Errors: [file.ErrNotFound] for a missing object; errTaken, errUndone, errNoUpload and
// errEmpty; everything else is [file.ErrUnavailable], of which a missing bucket is a part.
func verdict(err error) (again bool, final error) {
	status, code := 0, ""
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = answer.HTTPStatusCode()
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code = api.ErrorCode()
	}
	switch code {
	case "NoSuchKey", "NotFound": // the latter of a request without a body
		return false, file.ErrNotFound
	case "NoSuchUpload":
		return false, errNoUpload
	case "PreconditionFailed":
		return false, errTaken
	case "NotImplemented":
		return false, errUndone
	case "InvalidRange":
		return false, errEmpty
	case "BadDigest", "IncompleteBody", "RequestTimeout", "SlowDown", "XAmzContentSHA256Mismatch",
		"ConditionalRequestConflict", "OperationAborted", "RequestTimeTooSkewed":
		again = true
	}
	switch status {
	case 0, http.StatusOK, http.StatusPartialContent: // nothing was answered, or it broke off
		again = true
	case http.StatusPreconditionFailed:
		return false, errTaken
	case http.StatusNotImplemented:
		return false, errUndone
	case http.StatusRequestedRangeNotSatisfiable:
		return false, errEmpty
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		again = true
	default:
		again = again || status >= http.StatusInternalServerError
	}
	return again, fmt.Errorf("%w: %w", file.ErrUnavailable, hidden{err})
}

// hidden is an error that is told and matches nothing: a body that has broken off is no end of a
// file, and the deadline of an attempt is not that of the caller.
type hidden struct{ error }

// localError is an error of the local disk in the middle of a request.
type localError struct{ error }

// broken is the error of an answer that is not what was asked for.
func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errAnswer, fmt.Sprintf(format, args...))
}
