package problem

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"packhorse/odb/rescue"
	"packhorse/refs"
)

// refusing is a refusal with a status of its own.
type refusing struct{ code string }

func (refusing) Error() string   { return "secret" }
func (refusing) StatusCode() int { return http.StatusForbidden }
func (r refusing) Code() string  { return r.code }

func TestCode(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"refs.ErrDenied":             fmt.Errorf("push: %w", refs.ErrDenied),
		"forbidden":                  refusing{""},
		"door.ErrNamed":              fmt.Errorf("recheck: %w", refusing{"door.ErrNamed"}),
		"rescue.PanicError":          &rescue.PanicError{Value: "secret"},
		"internal_server_error":      errors.New("secret"),
		"refs.ErrRepositoryNotFound": With(refs.ErrRepositoryNotFound, map[string]any{"a": 1}),
	} {
		if got := Code(err); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
	for i, name := range kinds(t) {
		if row := &table[i]; row.kind != nil && names[row.kind] != name {
			t.Errorf("%s has the name %q in names.go", name, names[row.kind])
		}
	}
}
