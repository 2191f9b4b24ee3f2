package auth

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrKey says that a file holds no key that may sign tokens.
var ErrKey = errors.New("auth: not a usable key")

// Error is a refusal. Its status is used by package problem.
type Error struct {
	Status  int           // 400, 401, 403 or 503
	Message string        // for the client: reveals nothing about keys, or other organizations
	Retry   time.Duration // when to try again; 0 if that is of no use
}

// Refusals that callers distinguish.
var (
	// ErrMissing says that the request has no token.
	ErrMissing = &Error{Status: http.StatusUnauthorized, Message: "missing authorization header"}
	// ErrDuplicate says that the request has several Authorization headers: different readers could
	// choose different ones.
	ErrDuplicate = &Error{Status: http.StatusBadRequest, Message: "more than one authorization header"}
	// ErrRevoked says that the key which verified the token has been removed since.
	ErrRevoked = &Error{Status: http.StatusUnauthorized, Message: "invalid token: its key has been removed"}

	errScheme = &Error{
		Status: http.StatusUnauthorized, Message: "authorization must be Bearer, or Basic with the token as password",
	}
	errTooLong   = &Error{Status: http.StatusUnauthorized, Message: "invalid token: longer than 8 KiB"}
	errMalformed = &Error{Status: http.StatusUnauthorized, Message: "invalid token: malformed"}
	errSignature = &Error{
		Status: http.StatusUnauthorized, Message: "invalid token: no registered key of its issuer signed it",
	}
	errNoExpiry  = &Error{Status: http.StatusUnauthorized, Message: "invalid token: exp is missing"}
	errExpired   = &Error{Status: http.StatusUnauthorized, Message: "invalid token: expired"}
	errNotYet    = &Error{Status: http.StatusUnauthorized, Message: "invalid token: not valid yet"}
	errBadPaths  = &Error{Status: http.StatusUnauthorized, Message: "invalid token: malformed paths"}
	errBadPolicy = &Error{Status: http.StatusUnauthorized, Message: "invalid token: malformed refs or ops"}
	errUnread    = &Error{
		Status:  http.StatusServiceUnavailable,
		Message: "the keys of the token's issuer cannot be read now",
		Retry:   5 * time.Second,
	}
	errClaimRange = errors.New("auth: time out of range")
)

func (e *Error) Error() string { return e.Message }

// StatusCode is the HTTP status of the refusal.
func (e *Error) StatusCode() int { return e.Status }

// RetryAfter is when the client may try again, or 0.
func (e *Error) RetryAfter() time.Duration { return e.Retry }

// told is a refusal with a detail for the log that the client does not get.
type told struct {
	refusal *Error
	detail  string
}

func (t *told) Error() string { return t.refusal.Message + " (" + t.detail + ")" }

func (t *told) Unwrap() error { return t.refusal }

// with adds a detail for the log to a refusal.
func (e *Error) with(format string, args ...any) error {
	return &told{e, fmt.Sprintf(format, args...)}
}
