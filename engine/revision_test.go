package engine_test

import (
	"packhorse/engine"
	"packhorse/pack/object"
)

// named names a commit by its ID.
func named(id object.ID) engine.CommitName {
	return engine.CommitName{Text: id.String(), Kind: engine.FullID}
}

// branchNamed names a branch.
func branchNamed(name string) engine.CommitName {
	return engine.CommitName{Text: name, Kind: engine.BranchName}
}
