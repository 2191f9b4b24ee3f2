package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// ErrKey says that a file holds no key that may sign tokens.
var ErrKey = errors.New("auth: not a usable key")

// Error is a refusal. Its status is used by package problem.
type Error struct {
	Status  int           // 400, 401, 403 or 503
	Message string        // for the client: reveals nothing about keys, or other organizations
	Retry   time.Duration // when to try again; 0 if that is of no use

	code string // see Code
}

// Refusals that callers distinguish.
var (
	// ErrMissing says that the request has no token.
	ErrMissing = unauthorized("auth.ErrMissing", "missing authorization header")
	// ErrDuplicate says that the request has several Authorization headers: different readers could
	// choose different ones.
	ErrDuplicate = &Error{
		Status: http.StatusBadRequest, code: "auth.ErrDuplicate", Message: "more than one authorization header",
	}
	// ErrRevoked says that the key which verified the token has been removed since.
	ErrRevoked = unauthorized("auth.ErrRevoked", "invalid token: its key has been removed")

	errScheme    = unauthorized("auth.ErrScheme", "authorization must be Bearer, or Basic with the token as password")
	errTooLong   = unauthorized("auth.ErrTooLong", "invalid token: longer than 8 KiB")
	errMalformed = unauthorized("auth.ErrMalformed", "invalid token: malformed")
	errSignature = unauthorized("auth.ErrSignature", "invalid token: no registered key of its issuer signed it")
	errNoExpiry  = unauthorized("auth.ErrNoExpiry", "invalid token: exp is missing")
	errExpired   = unauthorized("auth.ErrExpired", "invalid token: expired")
	errNotYet    = unauthorized("auth.ErrNotYet", "invalid token: not valid yet")
	errBadPaths  = unauthorized("auth.ErrBadPaths", "invalid token: malformed paths")
	errBadPolicy = unauthorized("auth.ErrBadPolicy", "invalid token: malformed refs or ops")
	errUnread    = &Error{
		Status:  http.StatusServiceUnavailable,
		Message: "the keys of the token's issuer cannot be read now",
		Retry:   5 * time.Second,
		code:    "auth.ErrUnread",
	}
	errClaimRange = errors.New("auth: time out of range")
)

func unauthorized(code, message string) *Error {
	return &Error{Status: http.StatusUnauthorized, Message: message, code: code}
}

func (e *Error) Error() string { return e.Message }

// StatusCode is the HTTP status of the refusal.
func (e *Error) StatusCode() int { return e.Status }

// Code names the refusal in the audit log, and says more than its status; "" if there is no more.
func (e *Error) Code() string { return e.code }

// RetryAfter is when the client may try again, or 0.
func (e *Error) RetryAfter() time.Duration { return e.Retry }

// codeSpent is the code of [errSpent], whose errors differ in their times.
const codeSpent = "auth.ErrBudget"

// Reasons returns the reason of every refusal of a token, as [ReasonOf] does.
func Reasons() []string {
	reasons := []string{reasonOf(codeSpent)}
	for _, e := range []*Error{
		ErrMissing, ErrDuplicate, ErrRevoked, errScheme, errTooLong, errMalformed, errSignature, errNoExpiry, errExpired,
		errNotYet, errBadPaths, errBadPolicy, errUnread,
	} {
		reasons = append(reasons, reasonOf(e.code))
	}
	return reasons
}

// ReasonOf returns a word for why a token was refused, such as "too_long": its code in the form of
// the values of metrics. It is "other" for an error that is no refusal of a token.
func ReasonOf(err error) string {
	if refusal, ok := errors.AsType[*Error](err); ok && refusal.code != "" {
		return reasonOf(refusal.code)
	}
	return "other"
}

func reasonOf(code string) string {
	var word strings.Builder
	for i, c := range strings.TrimPrefix(code, "auth.Err") {
		if unicode.IsUpper(c) && i > 0 {
			word.WriteByte('_')
		}
		word.WriteRune(unicode.ToLower(c))
	}
	return word.String()
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
