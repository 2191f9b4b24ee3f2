package webhook

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"packhorse/odb/fair"
)

// attempting is an attempt of an organization that has room.
type attempting struct {
	org     string
	release func()
}

// take begins an attempt for which there is room.
func take(t *testing.T, attempts *fair.Queue, org string) (release func()) {
	t.Helper()
	release, ok := attempts.TryAcquire(fair.Tenant{Org: org}, 0, 1)
	if !ok {
		t.Fatalf("%q has to wait", org)
	}
	return release
}

// ask begins an attempt when there is room, and sends it to begun.
func ask(t *testing.T, attempts *fair.Queue, begun chan<- attempting, org string) {
	t.Helper()
	go func() {
		if release, err := attempts.Acquire(t.Context(), fair.Tenant{Org: org}, 0, 1); err == nil {
			begun <- attempting{org, release}
		}
	}()
	synctest.Wait()
}

// TestAttempts has one organization take all that it may have, and more ask than there is room for.
func TestAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := newAttempts(6, 3)
		begun := make(chan attempting, 16)
		var evil []func()
		for range 3 {
			evil = append(evil, take(t, attempts, "evil"))
		}
		short, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := attempts.Acquire(short, fair.Tenant{Org: "evil"}, 0, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("a fourth turn: %v", err)
		}
		var others []func() // do not wait for evil
		for _, org := range []string{"honest", "honester", "honestest"} {
			others = append(others, take(t, attempts, org))
		}
		ask(t, attempts, begun, "evil")
		ask(t, attempts, begun, "late")
		evil[0]()
		next := <-begun
		if next.org != "late" {
			t.Errorf("%q had the turn, want the organization with the least", next.org)
		}
		for _, release := range append(evil[1:], next.release) {
			release()
		}
		if next = <-begun; next.org != "evil" {
			t.Errorf("%q had the turn", next.org)
		}
		for _, release := range append(others, next.release) {
			release()
		}
		if used, waiting := attempts.State(); used != 0 || waiting != 0 {
			t.Errorf("%d are taken and %d wait", used, waiting)
		}
	})
}

// TestAttemptsOfManyOrganizations has organizations take all that they may have, all of whose
// receivers hang. The events of another one do not wait, and when the receivers answer, each event
// has its turn.
func TestAttemptsOfManyOrganizations(t *testing.T) {
	t.Parallel()
	const each = 2 * attemptsOrgMax
	for _, crowd := range []int{1, AttemptsMax / attemptsOrgMax, 100} {
		t.Run(fmt.Sprint(crowd), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				attempts := newAttempts(AttemptsMax, attemptsOrgMax)
				begun := make(chan attempting, crowd*each)
				for range each {
					for i := range crowd {
						ask(t, attempts, begun, fmt.Sprint("crowd", i))
					}
				}
				if hanging := len(begun); hanging < crowd || crowd == 1 && hanging != attemptsOrgMax {
					t.Errorf("%d attempts of the crowd have begun", hanging)
				}
				honest := make(chan attempting, 1)
				for range 2 { // as to a receiver that answers
					ask(t, attempts, honest, "acme")
					select {
					case begun := <-honest:
						begun.release()
					default:
						t.Fatal("an organization waits for the receivers of others")
					}
				}
				for range crowd * each {
					(<-begun).release()
				}
				if used, waiting := attempts.State(); used != 0 || waiting != 0 {
					t.Errorf("%d are taken and %d wait", used, waiting)
				}
			})
		})
	}
}
