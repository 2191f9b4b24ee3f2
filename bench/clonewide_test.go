package bench_test

import (
	"fmt"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// BenchmarkCloneWide clones 4,000 unmaintained commits of the API, each of which adds a file to the
// same folder: the cost of a clone grows with the objects, and not with the entries of all trees.
func BenchmarkCloneWide(b *testing.B) {
	commits := 4000
	if testing.Short() {
		commits = 200
	}
	repo := enginetest.Create(b, openHost(b, false), "r")
	for n := range commits {
		commitFiles(b, repo, "main", "", fmt.Sprintf("file%05d", n))
	}
	branches, err := repo.Branches(b.Context(), refs.Main, "", 1)
	if err != nil {
		b.Fatal(err)
	}
	request := engine.FetchRequest{Wants: []object.ID{branches.Items[0].Tip}, OFSDelta: true}
	var size counter
	for b.Loop() {
		size = 0
		fetch(b, repo, request, &size)
	}
	b.ReportMetric(float64(size), "pack-bytes")
}
