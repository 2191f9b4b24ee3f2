package refs_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"packhorse/refs"
)

// FuzzPolicy holds that a token's policy is read or refused as such, that `ops` never loosen what a
// rule for all refs says, and that a rule for all refs governs what no other rule does.
func FuzzPolicy(f *testing.F) {
	f.Add(`[["main",["no-push"]],["*",[]]]`, "no-force-push", "refs/heads/main")
	f.Add(`[["refs/heads/*",["verify-sig"]]]`, "", "refs/heads/x/y")
	f.Add(`[[1],["a",null],["**",[]]]`, "no-push", "refs/tags/v1")
	f.Fuzz(func(t *testing.T, claim, op, name string) {
		var rules [][]any
		if json.Unmarshal([]byte(claim), &rules) != nil {
			return
		}
		policy, err := refs.ParsePolicy(rules, nil)
		if err != nil {
			if !errors.Is(err, refs.ErrInvalidPolicy) {
				t.Fatal(err)
			}
			return
		}
		governed := policy.Ops(name)
		stricter, err := refs.ParsePolicy(rules, []string{op})
		if err != nil {
			t.Fatalf("with an op: %v", err)
		}
		for _, before := range governed {
			if !stricter.Ops(name).Has(before) {
				t.Errorf("%s governs %q no more", before, name)
			}
		}
		if len(rules) == 0 && !stricter.Ops(name).Has(refs.Op(op)) {
			t.Errorf("%q does not govern %q", op, name)
		}
		if short, ok := strings.CutPrefix(name, "refs/heads/"); ok && !strings.HasPrefix(short, "refs/") &&
			!strings.HasSuffix(short, "*") && short != "" && !strings.Contains(short, "*") {
			first, err := refs.ParsePolicy(append([][]any{{short, []any{"no-push"}}}, rules...), nil)
			if err != nil || !first.Ops(name).Has(refs.NoPush) {
				t.Errorf("a first rule for %q does not govern %q: %v", short, name, err)
			}
		}
	})
}
