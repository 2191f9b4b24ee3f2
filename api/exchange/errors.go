package exchange

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"packhorse/api/code"
)

// Limits of silence in a body.
const (
	// PauseMax bounds a pause before the client's data flows: git push computes for minutes inside its
	// POST.
	PauseMax = 10 * time.Minute
	// SilenceMax bounds a pause in flowing data.
	SilenceMax = time.Minute
)

// Error is a refusal by the door itself. Its status and its code are used by package problem.
type Error struct {
	Status  int       // HTTP status
	Code    code.Code // never ""
	Message string    // for the client
	Retry   time.Duration

	is error // an error that it also matches
}

// Is reports whether target is the other error that the refusal matches.
func (e *Error) Is(target error) bool { return e.is != nil && target == e.is }

// Errors of the door.
var (
	// ErrBusy says that no slot or memory became free within the queue's time.
	ErrBusy = &Error{
		Status: http.StatusServiceUnavailable, Message: "the server is busy, try again", Retry: 2 * time.Second,
		Code: code.Busy,
	}
	// ErrDraining says that the server is stopping.
	ErrDraining = &Error{
		Status: http.StatusServiceUnavailable, Message: "the server is shutting down, try again", Retry: 5 * time.Second,
		Code: code.Unavailable,
	}
	// ErrSlowBody says that the body stalled, or was slower than 1 KiB/s.
	ErrSlowBody = &Error{
		Status: http.StatusRequestTimeout, Message: "the request body stalled", Code: code.RequestTimeout,
	}
	// ErrLateAnswer says that the answer did not begin in time.
	ErrLateAnswer = &Error{
		Status: http.StatusGatewayTimeout, Message: "the answer took too long", Code: code.Timeout,
	}
	// ErrGone says that the client has left, so that the answer is not read. The status is for logs.
	ErrGone = &Error{Status: 499, Message: "the client has gone", Code: code.Cancelled}
	// ErrBadBody says that the framing of the body is not HTTP.
	ErrBadBody = &Error{
		Status: http.StatusBadRequest, Message: "malformed request body", Code: code.MalformedHTTP,
	}
	// ErrEndedEarly says that the client ended its body before its end. It matches
	// [io.ErrUnexpectedEOF]; that error alone may be an error of a store, and is not the client's
	// fault then.
	ErrEndedEarly = &Error{
		Status: http.StatusBadRequest, Message: "the request ended early", is: io.ErrUnexpectedEOF,
		Code: code.BodyIncomplete,
	}
)

func (e *Error) Error() string { return e.Message }

// StatusCode is the HTTP status of the refusal.
func (e *Error) StatusCode() int { return e.Status }

// ErrorCode is the public code of the refusal.
func (e *Error) ErrorCode() code.Code { return e.Code }

// RetryAfter is how long the client should wait before it tries again, 0 if trying again is of no
// use.
func (e *Error) RetryAfter() time.Duration { return e.Retry }

// LimitError says that something the client sent exceeds a limit.
type LimitError struct {
	Limit string // the limited item, as a client knows it: "request body"
	Max   int64  // in bytes
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s exceeds the limit of %d bytes", e.Limit, e.Max)
}

// ErrorCode is the public code of the refusal.
func (e *LimitError) ErrorCode() code.Code { return code.BodyTooLarge }

// StatusCode is 413.
func (e *LimitError) StatusCode() int { return http.StatusRequestEntityTooLarge }
