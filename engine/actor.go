package engine

import (
	"cmp"
	"strings"

	"packhorse/engine/commit"
	"packhorse/engine/pathpolicy"
	"packhorse/engine/quota"
	"packhorse/refs"
)

// Actor is the author of a change, as the token names it, and its idempotency key.
type Actor struct {
	// Org is the organization that signed the token.
	Org string
	// Subject is the token's free text; the journal records it.
	Subject string
	// Policy binds every ref that moves.
	Policy refs.Policy
	// Paths binds every path that changes between the old and the new value of a ref.
	Paths pathpolicy.Policy
	// RequestID leads from the log to the request.
	RequestID string
	// Receipt makes the change happen at most once; nil without an idempotency key. Its request hash
	// may be filled in until the change is finished.
	Receipt *refs.Receipt
	// DryRun makes every check of the change and computes its outcome, and applies nothing:
	// docs/invariants.md 72. An outcome has the sequence on which it was computed, and no ID that the
	// change would draw. There is no Receipt.
	DryRun bool
	// Recheck verifies the token again, just before a batch is written; nil means no check.
	Recheck func() error

	hold  *quota.Hold   // what the write holds of the quotas
	begun *refs.Reading // what the write has read before its transaction, nil where that does not help
}

// recheck runs Recheck.
func (a *Actor) recheck() error {
	if a.Recheck == nil {
		return nil
	}
	return a.Recheck()
}

// checkSync refuses a sync that the actor's policies forbid: any sync may move every branch and tag
// and change every path, and it verifies no signatures.
func (a *Actor) checkSync() error {
	refused := refs.Ops{refs.NoPush, refs.VerifySig}
	err := a.Policy.CheckWhole("a sync with an upstream may move every branch and tag", refused, "refs/heads/",
		"refs/tags/")
	if err != nil {
		return err
	}
	return a.Paths.CheckWhole("a sync with an upstream may change every path")
}

// checkRelease refuses what makes the name of a repository free, if a policy of the actor forbids
// that: a new one of the name could have refs of any value. detail describes it.
func (a *Actor) checkRelease(detail string) error {
	if err := a.Policy.CheckWhole(detail, refs.Ops{refs.NoPush, refs.NoForcePush}); err != nil {
		return err
	}
	return a.Paths.CheckWhole(detail)
}

// person is the actor as the author of a commit: the token's subject, without the characters that
// would end a name. It is the address too when it looks like one, and there is no other.
func (a *Actor) person() commit.Person {
	subject := strings.TrimSpace(strings.Map(func(c rune) rune {
		if c < ' ' || c == '<' || c == '>' || c == 0x7f {
			return -1
		}
		return c
	}, a.Subject))
	p := commit.Person{Name: cmp.Or(subject, a.Org)}
	if strings.Contains(subject, "@") && !strings.Contains(subject, " ") && !strings.HasPrefix(subject, "@") {
		p.Email = subject
	}
	return p
}
