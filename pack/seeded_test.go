package pack_test

import (
	"testing"

	"packhorse/fuzz/oracle"
)

// seededPack returns a pack of a history made by git.
func seededPack(tb testing.TB, commits int) []byte {
	tb.Helper()
	r := oracle.New(tb)
	r.Seed(oracle.History{Seed: 1, Commits: commits, Merges: true, Tags: true, Binary: true})
	return packAll(r)
}

// packAll returns a pack of everything that the references of r reach.
func packAll(r *oracle.Repository, args ...string) []byte {
	return r.Input(nil, append([]string{"pack-objects", "--all", "--stdout", "--quiet"}, args...)...)
}
