package refs

import "context"

// Committed is a transaction that has given refs other values, as [Options.Committed] is told of
// it.
type Committed struct {
	Repo RepoID
	// Org, Name, Actor and Cause are those of the [Change].
	Org, Name, Actor, Cause string
	// Updates are the changes in the order of the journal, all of one sequence. They are only read,
	// and may be kept.
	Updates []Entry
	// Created says that the transaction has created the repository, too.
	Created bool
}

// tellCommitted tells of a transaction whose batch was applied.
func (s *Store) tellCommitted(ctx context.Context, repo RepoID, change *Change, updates []Entry, created bool) {
	if s.options.Committed == nil || len(updates) == 0 {
		return
	}
	s.options.Committed(ctx, Committed{
		Repo: repo, Org: change.Org, Name: change.Name, Actor: change.Actor, Cause: change.Cause, Updates: updates,
		Created: created,
	})
}
