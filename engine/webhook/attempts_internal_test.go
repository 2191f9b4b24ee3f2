package webhook

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"packhorse/odb/fair"
)

// TestAttempts has one organization take all that it may have, and more ask than there is room for.
func TestAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := newAttempts(4, 3)
		take := func(org string) func() {
			t.Helper()
			release, err := attempts.Acquire(t.Context(), fair.Tenant{Org: org}, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		// ask waits in the queue; the test checks the order of the answers.
		type answer struct {
			org     string
			release func()
		}
		granted := make(chan answer, 16)
		ask := func(org string) {
			go func() { granted <- answer{org, take(org)} }()
			synctest.Wait()
		}
		var evil []func()
		for range 3 {
			evil = append(evil, take("evil"))
		}
		short, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := attempts.Acquire(short, fair.Tenant{Org: "evil"}, 0, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("a fourth turn: %v", err)
		}
		honest := take("honest") // does not wait for evil
		ask("evil")
		ask("late")
		evil[0]()
		next := <-granted
		if next.org != "late" {
			t.Errorf("%q had the turn, want the organization with the least", next.org)
		}
		next.release()
		if next = <-granted; next.org != "evil" {
			t.Errorf("%q had the turn", next.org)
		}
		for _, release := range append(evil[1:], honest, next.release) {
			release()
		}
		if used, waiting := attempts.State(); used != 0 || waiting != 0 {
			t.Errorf("%d are taken and %d wait", used, waiting)
		}
	})
}
