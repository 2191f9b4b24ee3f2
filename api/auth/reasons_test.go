package auth_test

import (
	"errors"
	"regexp"
	"slices"
	"testing"

	"packhorse/api/auth"
)

// Every refusal has a word of its own, for the label of a metric.
func TestReasons(t *testing.T) {
	t.Parallel()
	reasons := auth.Reasons()
	slices.Sort(reasons)
	word := regexp.MustCompile("^[a-z_]+$")
	for i, reason := range reasons {
		if !word.MatchString(reason) || i > 0 && reason == reasons[i-1] {
			t.Errorf("%q among %q", reason, reasons)
		}
	}
	if got := auth.ReasonOf(errors.New("x")); got != "other" {
		t.Errorf("an error that is no refusal: %q", got)
	}
	if got := auth.ReasonOf(auth.ErrRevoked); got != "revoked" {
		t.Errorf("%q", got)
	}
}
