package auth

import (
	"errors"
	"net/http"
)

// ErrKey says that a file holds no key that may sign tokens.
var ErrKey = errors.New("auth: not a usable key")

// Error is a refusal. It tells its status, which package problem passes on.
type Error struct {
	Status  int    // 400, 401, 403 or 503
	Message string // for the client; tells nothing about keys, or other organizations
}

// Refusals that callers tell apart.
var (
	// ErrMissing says that no token came with the request.
	ErrMissing = &Error{http.StatusUnauthorized, "missing authorization header"}
	// ErrDuplicate says that several Authorization headers came, of which two readers could choose differently.
	ErrDuplicate = &Error{http.StatusBadRequest, "more than one authorization header"}
	// ErrRevoked says that the key which verified the token has been removed since.
	ErrRevoked = &Error{http.StatusUnauthorized, "invalid token: its key has been removed"}

	errScheme     = &Error{http.StatusUnauthorized, "authorization must be Bearer, or Basic with the token as password"}
	errTooLong    = &Error{http.StatusUnauthorized, "invalid token: longer than 8 KiB"}
	errMalformed  = &Error{http.StatusUnauthorized, "invalid token: malformed"}
	errSignature  = &Error{http.StatusUnauthorized, "invalid token: no registered key of its issuer signed it"}
	errNoExpiry   = &Error{http.StatusUnauthorized, "invalid token: exp is missing"}
	errExpired    = &Error{http.StatusUnauthorized, "invalid token: expired"}
	errNotYet     = &Error{http.StatusUnauthorized, "invalid token: not valid yet"}
	errBadPolicy  = &Error{http.StatusUnauthorized, "invalid token: malformed refs or ops"}
	errClaimRange = errors.New("auth: time out of range")
)

func (e *Error) Error() string { return e.Message }

// StatusCode is the HTTP status of the refusal.
func (e *Error) StatusCode() int { return e.Status }
