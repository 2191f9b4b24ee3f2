package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/engine/pathpolicy"
	"packhorse/fuzz/oracle"
	"packhorse/odb/fair"
	"packhorse/refs"
)

// The checks of policies compute in turns of the request, and within its computing time.
func TestGuardsTakeTurns(t *testing.T) {
	t.Parallel()
	ours := oracle.SSHSigner(t, "ed25519")
	h := newSignedHost(t, ours.Public)
	first := h.commit(&ours, "first")
	second := h.commit(&ours, "second", first)
	for name, id := range map[string]string{"refs/heads/first": first, "refs/heads/second": second} {
		must(t, h.push(name, id))
	}
	p := fair.NewProcessors(1)
	account := p.Account(fair.Tenant{Org: "acme"}, time.Nanosecond)
	ctx := fair.With(t.Context(), account)
	for account.Spent() <= time.Nanosecond { // which is all that it may compute
		must(t, fair.Do(ctx, func(context.Context) error { return nil }))
	}
	signed, err := refs.ParsePolicy(nil, []string{verifySig})
	must(t, err)
	paths, err := pathpolicy.Parse([][]any{{"a/**", []any{"no-write"}}})
	must(t, err)
	for name, test := range map[string]struct {
		policy refs.Policy
		paths  pathpolicy.Policy
		want   error
	}{
		"none":      {},
		"signature": {policy: signed, want: fair.ErrWork},
		"paths":     {paths: paths, want: fair.ErrWork},
	} {
		actor := acme
		actor.Policy, actor.Paths = test.policy, test.paths
		_, err := h.repo.CreateBranch(ctx, actor, engine.CreateBranchRequest{
			Branch: name, Base: named(parseID(t, second)),
		})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
