package engine

import "packhorse/refs"

// Actor is who asks for a change, as the token says, and under which idempotency key.
type Actor struct {
	// Org is the organization that signed the token.
	Org string
	// Subject is the token's free text; the journal records it.
	Subject string
	// Policy binds every ref that moves.
	Policy refs.Policy
	// RequestID leads from the log to the request.
	RequestID string
	// Receipt makes the change happen at most once; nil without an idempotency key. Its request hash may be filled in until
	// the change is finished.
	Receipt *refs.Receipt
	// Recheck says just before a batch whether the token is still good; nil means that it is.
	Recheck func() error
}

// recheck runs Recheck.
func (a *Actor) recheck() error {
	if a.Recheck == nil {
		return nil
	}
	return a.Recheck()
}
