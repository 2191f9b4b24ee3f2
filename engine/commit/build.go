package commit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Person is a name and an address as a request gives them.
type Person struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// Check returns the reason why p is invalid in a commit header, or "". Angle brackets, NUL and line
// ends would change the meaning of the header (git strips them, which would record another person).
func (p Person) Check() string {
	switch {
	case strings.TrimSpace(p.Name) == "":
		return "name is required"
	case strings.TrimSpace(p.Email) == "":
		return "email is required"
	case strings.ContainsAny(p.Name, "<>\n\x00"):
		return "name must not contain <, >, NUL or a line end"
	case strings.ContainsAny(p.Email, "<>\n\x00"):
		return "email must not contain <, >, NUL or a line end"
	}
	return ""
}

// Header is the content of a new commit without its tree.
type Header struct {
	Parents   []object.ID
	Author    Person
	Committer Person
	Message   string
	When      time.Time
}

// Build writes the commit into q and returns its id. Times are written in UTC; the message gets
// exactly the line end that it may be missing.
func Build(ctx context.Context, q *odb.Quarantine, tree object.ID, h Header) (object.ID, error) {
	id, err := q.Write(ctx, object.TypeCommit, h.Encode(tree), object.ZeroID)
	if err != nil {
		return object.ZeroID, fmt.Errorf("write commit: %w", err)
	}
	return id, nil
}

// Encode returns the commit of a tree, as Build writes it.
func (h *Header) Encode(tree object.ID) []byte {
	c := object.Commit{
		Tree:      tree,
		Parents:   h.Parents,
		Author:    h.Author.At(h.When),
		Committer: h.Committer.At(h.When),
		Message:   h.Message,
	}
	if !strings.HasSuffix(c.Message, "\n") {
		c.Message += "\n"
	}
	return c.Append(nil)
}

// At returns the line of p in a commit that is made at a time, in UTC.
func (p Person) At(when time.Time) object.Signature {
	return object.Signature{
		Name:    strings.TrimSpace(p.Name),
		Email:   strings.TrimSpace(p.Email),
		Seconds: when.Unix(),
		Zone:    "+0000",
	}
}
