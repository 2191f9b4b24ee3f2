package engine

import (
	"packhorse/odb"
	"packhorse/refs"
)

// combineMax is how many waiting transactions of a repository share a batch over a store that shows
// batches when they are durable: without that, each would wait for the sync of the one before.
const combineMax = 64

// combiner lets a transaction share a batch with others: its new objects show theirs. The record
// and the manifest need no words: batches require them, so who changes them is the last of one.
type combiner struct{ objects *odb.Quarantine }

// Follow implements [refs.Combiner].
func (c combiner) Follow(before []refs.Combiner) bool {
	staged := make([]*odb.Quarantine, 0, len(before))
	for _, other := range before {
		staged = append(staged, other.(combiner).objects)
	}
	return c.objects.Follow(staged)
}

// combine lets a change with new objects share a batch, if all that it reads goes through them and
// the transaction: signatures and protected paths are checked against stored refs, and a sync reads
// the state of syncs.
func combine(change *refs.Change, actor *Actor, objects *odb.Quarantine) {
	verifies := actor.Policy.CheckWhole("", refs.Ops{refs.VerifySig}) != nil
	if objects != nil && !verifies && change.Check == nil && change.Cause != causePull {
		change.Combiner = combiner{objects}
	}
}
