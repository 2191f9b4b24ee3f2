package refs_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"packhorse/pack/object"
	"packhorse/refs"
)

// parsePolicy reads claims as a token carries them.
func parsePolicy(t *testing.T, claims string) (refs.Policy, error) {
	t.Helper()
	var decoded struct {
		Refs [][]any  `json:"refs"`
		Ops  []string `json:"ops"`
	}
	if err := json.Unmarshal([]byte(claims), &decoded); err != nil {
		t.Fatal(err)
	}
	return refs.ParsePolicy(decoded.Refs, decoded.Ops)
}

func TestPolicyOps(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		claims string
		want   map[string]string // full name to ops
	}{
		"none": {`{}`, map[string]string{"refs/heads/main": ""}},
		"ops alone govern all": {
			`{"ops": ["no-push"]}`,
			map[string]string{"refs/heads/main": "no-push", "refs/namespaces/ephemeral/refs/heads/x": "no-push"},
		},
		"first match wins": {
			`{"refs": [["main", ["no-force-push"]], ["refs/heads/*", ["verify-sig"]], ["refs/heads/main", ["no-push"]], ["*", ["no-push"]]]}`,
			map[string]string{
				"refs/heads/main": "no-force-push", "refs/heads/x": "verify-sig", "refs/tags/x": "no-push",
				"refs/heads/mainly": "verify-sig",
			},
		},
		"ops join the catch-all": {
			`{"refs": [["main", []], ["*", ["no-force-push"]]], "ops": ["verify-sig"]}`,
			map[string]string{"refs/heads/main": "", "refs/tags/v1": "no-force-push verify-sig"},
		},
		"ops make a catch-all": {
			`{"refs": [["main", []]], "ops": ["no-push"]}`,
			map[string]string{"refs/heads/main": "", "refs/heads/x": "no-push"},
		},
		"short branches": {
			`{"refs": [["feature/*", ["no-push"]], ["a", ["verify-sig"]], ["refs/heads/b", ["no-push"]]]}`,
			map[string]string{
				"refs/heads/feature/x": "no-push", "refs/heads/feature": "", "refs/heads/a": "verify-sig", "refs/tags/a": "",
				"refs/heads/a/b": "",
				"refs/heads/b":   "no-push", "refs/heads/refs/heads/b": "",
			},
		},
		"an ephemeral branch is none of refs/heads": {
			`{"refs": [["refs/heads/*", ["no-push"]], ["main", ["no-push"]]]}`,
			map[string]string{"refs/namespaces/ephemeral/refs/heads/main": "", "refs/heads/main": "no-push"},
		},
		"an ephemeral branch by its stored name": {
			`{"refs": [["refs/namespaces/ephemeral/*", ["no-push"]]]}`,
			map[string]string{"refs/namespaces/ephemeral/refs/heads/main": "no-push", "refs/heads/main": ""},
		},
		"an unknown op is kept": {`{"refs": [["main", ["no-fun"]]]}`, map[string]string{"refs/heads/main": "no-fun"}},
	}
	for name, test := range tests {
		policy, err := parsePolicy(t, test.claims)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for ref, want := range test.want {
			var wanted refs.Ops
			for op := range strings.FieldsSeq(want) {
				wanted = append(wanted, refs.Op(op))
			}
			if got := policy.Ops(ref); !slices.Equal(got, wanted) {
				t.Errorf("%s, %s: got %v, want %v", name, ref, got, wanted)
			}
		}
	}
}

func TestParsePolicyFaults(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string]string{
		"no pattern":      `{"refs": [[]]}`,
		"no ops":          `{"refs": [["main"]]}`,
		"three elements":  `{"refs": [["main", [], []]]}`,
		"a number":        `{"refs": [[1, []]]}`,
		"ops a string":    `{"refs": [["main", "no-push"]]}`,
		"ops null":        `{"refs": [["main", null]]}`,
		"an op a number":  `{"refs": [["main", [1]]]}`,
		"empty pattern":   `{"refs": [["", []]]}`,
		"inner star":      `{"refs": [["refs/*/x", []]]}`,
		"two stars":       `{"refs": [["**", []]]}`,
		"a null for rule": `{"refs": [null]}`,
	} {
		_, err := parsePolicy(t, strings.Replace(claims, "[[", `[["ok", []], [`, 1))
		var fault *refs.PolicyError
		if !errors.Is(err, refs.ErrInvalidPolicy) || !errors.As(err, &fault) ||
			strings.Contains(claims, "[[") && fault.Index != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPolicyBindsUpdates(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	set(t, store, repo, "refs/heads/main", 5, "refs/heads/old", 5, "refs/heads/locked", 5)
	policy, err := parsePolicy(t,
		`{"refs": [["locked", ["no-push"]], ["odd", ["no-fun"]], ["refs/heads/signed*", ["verify-sig"]], ["*", ["no-force-push"]]]}`)
	if err != nil {
		t.Fatal(err)
	}
	// Histories are numbers here: a greater one holds the lesser ones, and even ones are signed.
	number := func(id object.ID) int { return int(id[object.IDSize-1]) }
	change := refs.Change{
		Policy: policy,
		FastForward: func(_ context.Context, before, after object.ID) (bool, error) {
			return number(after) > number(before), nil
		},
		Signed: func(_ context.Context, move refs.Move) (bool, error) { return number(move.After)%2 == 0, nil },
	}
	tests := []struct {
		name    string
		prepare func(context.Context, *refs.Tx) error
		want    refs.Op // the one that denies
		blindTo refs.Op // the op that denies when its question has no answer
	}{
		{name: "no-push update", prepare: setter("refs/heads/locked", 6), want: refs.NoPush, blindTo: refs.NoPush},
		{name: "no-push to the same value", prepare: setter("refs/heads/locked", 5), want: refs.NoPush, blindTo: refs.NoPush},
		{name: "no-push deletion", prepare: setter("refs/heads/locked", 0), want: refs.NoPush, blindTo: refs.NoPush},
		{name: "no-push tells no value", prepare: func(ctx context.Context, tx *refs.Tx) error {
			return tx.Set(ctx, "refs/heads/locked", new(id(1)), id(2), id(0))
		}, want: refs.NoPush, blindTo: refs.NoPush},
		{name: "unknown op", prepare: setter("refs/heads/odd", 1), want: "no-fun", blindTo: "no-fun"},
		{name: "fast-forward", prepare: setter("refs/heads/main", 6), blindTo: refs.NoForcePush},
		{name: "force", prepare: setter("refs/heads/main", 4), want: refs.NoForcePush, blindTo: refs.NoForcePush},
		{name: "deletion", prepare: setter("refs/heads/old", 0), want: refs.NoForcePush, blindTo: refs.NoForcePush},
		{
			name: "delete and create", prepare: setter("refs/heads/old", 0, "refs/heads/old", 4), want: refs.NoForcePush,
			blindTo: refs.NoForcePush,
		},
		{name: "creation", prepare: setter("refs/heads/new", 1)},
		{name: "signed", prepare: setter("refs/heads/signed", 2), blindTo: refs.VerifySig},
		{name: "not signed", prepare: setter("refs/heads/signed", 3), want: refs.VerifySig, blindTo: refs.VerifySig},
		{
			name:    "deletion needs no signature",
			prepare: setter("refs/heads/signed2", 2, "refs/heads/signed2", 0),
			blindTo: refs.VerifySig,
		},
	}
	for _, test := range tests {
		for _, blind := range []bool{false, true} {
			change, want := change, test.want
			if blind {
				change, want = refs.Change{Policy: policy}, test.blindTo
			}
			_, err := store.Update(t.Context(), repo, change, func(ctx context.Context, tx *refs.Tx) error {
				if err := test.prepare(ctx, tx); err != nil {
					return err
				}
				return refs.ErrUnchanged
			})
			var denied *refs.DeniedError
			if want == "" && err == nil {
				continue
			}
			if !errors.As(err, &denied) || denied.Op != want || !errors.Is(err, refs.ErrDenied) ||
				!strings.Contains(err.Error(), "denied by policy") {
				t.Errorf("%s, blind %v: %v", test.name, blind, err)
			}
		}
	}
	failing := change
	failing.FastForward = func(context.Context, object.ID, object.ID) (bool, error) { return true, errors.ErrUnsupported }
	if _, err := store.Update(t.Context(), repo, failing, setter("refs/heads/main", 6)); !errors.Is(err,
		errors.ErrUnsupported) {
		t.Errorf("a question that fails: %v", err)
	}
}

// TestPolicyCheckWhole is about operations on all refs at once.
func TestPolicyCheckWhole(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		claims   string
		prefixes []string
		want     string // the rule that refuses
	}{
		"none":          {`{}`, nil, ""},
		"another op":    {`{"ops": ["verify-sig"]}`, nil, ""},
		"everything":    {`{"ops": ["no-push"]}`, nil, "no-push on *"},
		"one branch":    {`{"refs": [["main", ["no-push"]], ["*", []]]}`, nil, "no-push on refs/heads/main"},
		"the second op": {`{"refs": [["v*", ["verify-sig", "no-push"]]]}`, nil, "no-push on refs/heads/v*"},
		"not known":     {`{"ops": ["sign-off"]}`, nil, "sign-off on *"},
		"below the prefix": {
			`{"refs": [["main", ["no-push"]]]}`, []string{"refs/tags/", "refs/heads/"}, "no-push on refs/heads/main",
		},
		"above the prefix": {`{"refs": [["refs/*", ["no-push"]]]}`, []string{"refs/heads/"}, "no-push on refs/*"},
		"beside the prefix": {
			`{"refs": [["refs/notes/*", ["no-push"]], ["refs/heads", ["no-push"]]]}`, []string{"refs/heads/"}, "",
		},
		"not known, and beside": {`{"refs": [["refs/notes/*", ["sign-off"]]]}`, []string{"refs/heads/"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, err := parsePolicy(t, test.claims)
			if err != nil {
				t.Fatal(err)
			}
			err = policy.CheckWhole("whatever", refs.Ops{refs.NoPush}, test.prefixes...)
			switch {
			case test.want == "" && err != nil, test.want != "" && !errors.Is(err, refs.ErrDenied):
				t.Errorf("got %v, want %q", err, test.want)
			case err != nil && !strings.HasPrefix(err.Error(), "denied by policy: "+test.want+": "):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
