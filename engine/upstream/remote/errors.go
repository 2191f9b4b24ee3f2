package remote

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

// The kinds of errors. Each [*Error] matches one.
var (
	// ErrUnauthorized says that the far side requires other credentials, or any (401).
	ErrUnauthorized = errors.New("remote: not authorized")
	// ErrForbidden says that the far side denies access for these credentials (403).
	ErrForbidden = errors.New("remote: forbidden")
	// ErrNotFound says that there is no such repository, for these credentials (404, 410).
	ErrNotFound = errors.New("remote: repository not found")
	// ErrUnavailable says that the far side cannot be reached, aborted, is silent, or requests a
	// retry (408, 429, 5xx).
	ErrUnavailable = errors.New("remote: not available")
	// ErrProtocol says that the far side does not speak git's protocol, or lacks features that we
	// need.
	ErrProtocol = errors.New("remote: protocol violated")
	// ErrLimit says that the far side has exceeded a limit.
	ErrLimit = errors.New("remote: limit exceeded")
	// ErrRejected says that the far side has reported an error of its own, in git's protocol.
	ErrRejected = errors.New("remote: the far side reports an error")
)

// Error is a failure of a far side.
type Error struct {
	Kind       error         // one of the above
	Op         string        // "list refs", "fetch", "push"
	Text       string        // for people, on one line, at most about 1 KiB; may quote the far side
	Status     int           // of HTTP, when that is the failure
	RetryAfter time.Duration // requested by the far side, at most a day, or 0
}

// Error names the kind, the operation and the failure.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Kind.Error(), e.Op, e.Text) }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// kindOf is the kind of an HTTP status that is not 200.
func kindOf(status int) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusProxyAuthRequired:
		return ErrUnauthorized
	case status == http.StatusForbidden:
		return ErrForbidden
	case status == http.StatusNotFound, status == http.StatusGone:
		return ErrNotFound
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return ErrUnavailable
	case status == http.StatusRequestEntityTooLarge:
		return ErrRejected
	}
	return ErrProtocol
}

// secrets are the strings that no text may contain, in the forms in which a far side may return
// them.
type secrets []string

// secretMin is the shortest text that counts as a secret: the gaps would reveal shorter ones.
const secretMin = 4

func newSecrets(user, password string) secrets {
	var s secrets
	for _, form := range []string{
		base64.StdEncoding.EncodeToString([]byte(user + ":" + password)), password, url.QueryEscape(password),
		url.PathEscape(password),
	} {
		if password != "" && len(form) >= secretMin {
			s = append(s, form)
		}
	}
	return s
}

// remove returns text without secrets.
func (s secrets) remove(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// textMax bounds the kept part of a far side's text, in bytes.
const textMax = 1 << 10

// clean returns a text of a far side as one line without secrets and control characters.
func (s secrets) clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s.remove(text), "?"))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > textMax {
		text = strings.ToValidUTF8(text[:textMax], "") + "..."
	}
	return text
}
