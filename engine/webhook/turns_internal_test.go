package webhook

import (
	"context"
	"errors"
	"testing"
)

// TestTurns has one organization take all that it may have, and more ask than there is room for.
func TestTurns(t *testing.T) {
	t.Parallel()
	turns := newTurns(4, 3)
	take := func(org string) func() {
		t.Helper()
		release, err := turns.take(t.Context(), org)
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	// ask waits in the queue; the order of the answers is what is looked at.
	granted := make(chan string, 16)
	ask := func(ctx context.Context, org string) {
		turn := make(chan struct{})
		turns.mu.Lock()
		turns.waiting[org] = append(turns.waiting[org], turn)
		turns.grant()
		turns.mu.Unlock()
		go func() {
			select {
			case <-turn:
				granted <- org
			case <-ctx.Done():
			}
		}()
	}
	var evil []func()
	for range 3 {
		evil = append(evil, take("evil"))
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.take(short, "evil"); !errors.Is(err, context.Canceled) {
		t.Errorf("a fourth turn: %v", err)
	}
	honest := take("honest") // does not wait for evil
	ask(t.Context(), "evil")
	ask(t.Context(), "late")
	evil[0]()
	if next := <-granted; next != "late" {
		t.Errorf("%q had the turn, want the organization with the least", next)
	}
	turns.release("late")
	if next := <-granted; next != "evil" {
		t.Errorf("%q had the turn", next)
	}
	for _, release := range append(evil[1:], honest) {
		release()
	}
	turns.release("evil")
	if len(turns.running)+len(turns.waiting)+turns.count != 0 {
		t.Errorf("what is left: %+v", turns)
	}
}
