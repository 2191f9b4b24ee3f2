package auth

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"packhorse/api/code"
)

// ErrKey says that a file holds no key that may sign tokens.
var ErrKey = errors.New("auth: not a usable key")

// Error is a refusal. Its status and its code are used by package problem.
type Error struct {
	Status  int           // 400, 401, 403, 429 or 503
	Code    code.Code     // never ""
	Message string        // for the client: reveals nothing about keys, or other organizations
	Retry   time.Duration // when to try again; 0 if that is of no use

	reason string // see ReasonOf
}

// Refusals that callers distinguish.
var (
	// ErrMissing says that the request has no token.
	ErrMissing = unauthorized("missing", code.TokenMissing, "missing authorization header")
	// ErrDuplicate says that the request has several Authorization headers: different readers could
	// choose different ones.
	ErrDuplicate = &Error{
		Status: http.StatusBadRequest, Code: code.MalformedHTTP, Message: "more than one authorization header",
		reason: "duplicate",
	}
	// ErrRevoked says that the key which verified the token has been removed since.
	ErrRevoked = unauthorized("revoked", code.TokenRevoked, "invalid token: its key has been removed")

	errScheme = unauthorized("scheme", code.TokenInvalid,
		"authorization must be Bearer, or Basic with the token as password")
	errTooLong   = unauthorized("too_long", code.TokenInvalid, "invalid token: longer than 8 KiB")
	errMalformed = unauthorized("malformed", code.TokenInvalid, "invalid token: malformed")
	errSignature = unauthorized("signature", code.TokenInvalid, "invalid token: no registered key of its issuer signed it")
	errNoExpiry  = unauthorized("no_expiry", code.TokenInvalid, "invalid token: exp is missing")
	errExpired   = unauthorized("expired", code.TokenExpired, "invalid token: expired")
	errNotYet    = unauthorized("not_yet", code.TokenNotYetValid, "invalid token: not valid yet")
	errBadPaths  = unauthorized("bad_paths", code.TokenInvalid, "invalid token: malformed paths")
	errBadPolicy = unauthorized("bad_policy", code.TokenInvalid, "invalid token: malformed refs or ops")
	errUnread    = &Error{
		Status:  http.StatusServiceUnavailable,
		Code:    code.Unavailable,
		Message: "the keys of the token's issuer cannot be read now",
		Retry:   5 * time.Second,
		reason:  "unread",
	}
	errClaimRange = errors.New("auth: time out of range")
)

func unauthorized(reason string, as code.Code, message string) *Error {
	return &Error{Status: http.StatusUnauthorized, Code: as, Message: message, reason: reason}
}

func (e *Error) Error() string { return e.Message }

// StatusCode is the HTTP status of the refusal.
func (e *Error) StatusCode() int { return e.Status }

// ErrorCode is the public code of the refusal.
func (e *Error) ErrorCode() code.Code { return e.Code }

// RetryAfter is when the client may try again, or 0.
func (e *Error) RetryAfter() time.Duration { return e.Retry }

// reasonSpent is the reason of [errSpent], whose errors differ in their times.
const reasonSpent = "budget"

// Reasons returns the reason of every refusal of a token, as [ReasonOf] does.
func Reasons() []string {
	reasons := []string{reasonSpent}
	for _, e := range []*Error{
		ErrMissing, ErrDuplicate, ErrRevoked, errScheme, errTooLong, errMalformed, errSignature, errNoExpiry, errExpired,
		errNotYet, errBadPaths, errBadPolicy, errUnread,
	} {
		reasons = append(reasons, e.reason)
	}
	return reasons
}

// ReasonOf returns a word for why a token was refused, such as "too_long": a value of a metric,
// which says more than the code. It is "other" for an error that is no refusal of a token.
func ReasonOf(err error) string {
	if refusal, ok := errors.AsType[*Error](err); ok && refusal.reason != "" {
		return refusal.reason
	}
	return "other"
}

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
