package problem

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"time"

	"packhorse/api/code"
	"packhorse/odb/rescue"
)

// statusError is a refusal with a status and a code of its own, by packages that this one does not
// know: those of tokens and of the door.
type statusError interface {
	error
	StatusCode() int
	ErrorCode() code.Code
}

// detailed is an error with fields for the client.
type detailed struct {
	error
	fields map[string]any
}

func (d *detailed) Unwrap() error { return d.error }

// With returns err with more fields for the client; they replace the kind's own of the same name.
// It is for handlers whose failures carry a result: they return it like any error, so that it is
// counted and logged.
func With(err error, fields map[string]any) error { return &detailed{err, fields} }

// From returns the problem that a client gets for err. An error of no known kind is 500 without its
// text.
func From(err error) Problem {
	p := from(err)
	if more, ok := errors.AsType[*detailed](err); ok {
		fields := make(map[string]any, len(p.Fields)+len(more.fields))
		maps.Copy(fields, p.Fields)
		maps.Copy(fields, more.fields)
		p.Fields = fields
	}
	return p
}

func from(err error) Problem {
	if _, ok := errors.AsType[*rescue.PanicError](err); ok { // whatever it panicked with, or met besides
		return Problem{Status: http.StatusInternalServerError, Code: code.Internal, Message: internal}
	}
	if refusal, ok := errors.AsType[statusError](err); ok {
		p := Problem{Status: refusal.StatusCode(), Code: refusal.ErrorCode(), Message: refusal.Error()}
		if r, ok := refusal.(interface{ RetryAfter() time.Duration }); ok {
			p.RetryAfter = r.RetryAfter()
		}
		return p
	}
	for _, row := range table {
		if kind := row.match(err); kind != nil {
			return row.problem(err, kind)
		}
	}
	return Problem{Status: http.StatusInternalServerError, Code: code.Internal, Message: internal}
}

// match returns the part of err that is of the row's kind, or nil.
func (r *row) match(err error) error {
	if r.typed != nil {
		return r.typed(err)
	}
	if errors.Is(err, r.kind) {
		return r.kind
	}
	return nil
}

func (r *row) problem(err, kind error) Problem {
	p := Problem{
		Status: r.status, Code: r.code, Message: r.message, RetryAfter: r.retry, Corrupt: r.corrupt, Away: r.away,
	}
	if p.Message == "" {
		p.Message = words(err, kind)
	}
	if r.fields != nil {
		p.Fields = r.fields(err)
	}
	return p
}

// words returns the text of an error about itself: the text of the innermost error of that kind, or
// of an outer one that continues it ("pack: corrupt pack: entry at 12"), without the name of the
// package. Prefixes added by callers are for the log.
func words(err, kind error) string {
	var chain []error
	for next := err; next != nil; next = inner(next, kind) {
		chain = append(chain, next)
	}
	said := chain[len(chain)-1].Error()
	for _, outer := range chain {
		if text := outer.Error(); strings.HasPrefix(text, said) {
			said = text
			break
		}
	}
	if name, _, ok := strings.Cut(kind.Error(), ": "); ok && !strings.Contains(name, " ") {
		said = strings.TrimPrefix(said, name+": ")
	}
	return said
}

// inner returns the error of a kind that err wraps, or nil when err itself is the innermost one.
func inner(err, kind error) error {
	switch err := err.(type) { //nolint:errorlint // it looks at one error at a time
	case interface{ Unwrap() error }:
		if next := err.Unwrap(); next != nil && errors.Is(next, kind) {
			return next
		}
	case interface{ Unwrap() []error }:
		for _, next := range err.Unwrap() {
			if errors.Is(next, kind) {
				return next
			}
		}
	}
	return nil
}
