// Package code has the public codes of errors: the words by which programs tell errors apart.
//
// Start at [All], the vocabulary. A code is a promise: one may be added, and none is renamed,
// removed or given another meaning. It names one fact that a caller can act on, so that several
// kinds of errors share a code where a caller would do the same. Package problem says which kind
// has which; docs/api.md, "Errors", tells clients. The map, by file:
//
//	code    what a code is, and when a repetition makes sense
//	list    the codes
package code

// Code is the name of a fact, in small letters and underscores: "ref_not_found".
type Code string

// Retry says when a request that was refused may be sent again.
type Retry uint8

// When to send a request again.
const (
	Never  Retry = iota // the same request fails again: change it, or what it is about
	Reread              // after the caller has read the present state and made the request anew
	Later               // as it is, after Retry-After where the answer has one, or after a pause
)

// String is the word for r in docs/api.md.
func (r Retry) String() string {
	return [...]string{Never: "no", Reread: "reread", Later: "yes"}[r]
}

// Entry is a code with what a client may rely on.
type Entry struct {
	Code     Code
	Statuses []int // of HTTP, in ascending order: those of the answers that have the code
	Retry    Retry
}

// Find returns the entry of a code, nil for a word that is none.
func Find(c Code) *Entry {
	for i := range list {
		if list[i].Code == c {
			return &list[i]
		}
	}
	return nil
}

// All returns the codes in the order of docs/api.md. The caller must not change it.
func All() []Entry { return list }
