package invariants_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"packhorse/pack/invariants"
)

// A failed check ends the process, also where panics are recovered, and prints its place. A check
// that holds does nothing.
func TestCheck(t *testing.T) {
	t.Parallel()
	const variable = "PACKHORSE_INVARIANTS_TEST"
	if os.Getenv(variable) != "" {
		defer func() { _ = recover() }()
		invariants.Check(true, "%d", 6)
		invariants.Check(false, "%d is no invariant", 7)
	}
	command := exec.Command(os.Args[0], "-test.run=^TestCheck$")
	command.Env = append(os.Environ(), variable+"=1")
	out, err := command.CombinedOutput()
	if err == nil {
		t.Errorf("the process lives on: %s", out)
	}
	for _, want := range []string{"panic: invariant does not hold: 7 is no invariant", "invariants_test.go"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it says %q, without %q", out, want)
		}
	}
}
