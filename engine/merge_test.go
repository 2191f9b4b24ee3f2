package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"packhorse/engine"
	"packhorse/pack/object"
	"packhorse/refs"
)

// twoHosts opens one repository through two hosts over the same stores, which take no turns with
// each other.
func twoHosts(t *testing.T) (ours, theirs *engine.Repository) {
	t.Helper()
	_, repos := openHosts(t, engine.Config{}, engine.Config{})
	return repos[0], repos[1]
}

// TestMergeLosesRaces moves the branches while a merge has its turn.
func TestMergeLosesRaces(t *testing.T) {
	t.Parallel()
	dev := engine.CommitTarget{Branch: "dev", Base: "main"}
	tests := map[string]struct {
		moves    int  // how often the target moves
		expected bool // the request expects the tip that the target had first
		err      error
	}{
		"once":             {moves: 1},
		"thrice":           {moves: 3},
		"with expectation": {moves: 1, expected: true, err: engine.ErrStale},
		"for ever":         {moves: 1 << 20, err: refs.ErrBusy},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo, other := twoHosts(t)
			_, err := upload(repo, acme, main, change{path: "f", content: "1"})
			must(t, err)
			source, err := upload(repo, acme, dev, change{path: "dev", content: "1"})
			must(t, err)
			tip, err := upload(repo, acme, main, change{path: "main", content: "1"})
			must(t, err)
			first, last := tip.New, tip.New
			moves := 0
			actor := acme
			actor.Recheck = func() error {
				if moves == test.moves {
					return nil
				}
				moves++
				moved, err := upload(other, acme, main, change{path: "moved", content: fmt.Sprint(moves)})
				if err != nil {
					return err
				}
				last = moved.New
				_, err = upload(other, acme, dev, change{path: "later", content: fmt.Sprint(moves)})
				return err
			}
			request := engine.MergeRequest{
				Source: branchNamed("dev"), Target: engine.MergeBranch{Name: "main"}, Strategy: engine.PreferForward,
				Details: engine.CommitDetails{Message: "joined", Author: thor},
			}
			if test.expected {
				request.Expected = &first
			}
			outcome, err := repo.Merge(context.Background(), actor, request)
			if !errors.Is(err, test.err) {
				t.Fatalf("error is %v, want %v", err, test.err)
			}
			if err != nil {
				return
			}
			if outcome.Kind != engine.MergeCommitted || outcome.Old != last || outcome.Source != source.New ||
				outcome.Promoted != 1 {
				t.Errorf("outcome is %+v; want %s merged into %s", outcome, source.New, last)
			}
			view, err := repo.Objects(context.Background())
			must(t, err)
			defer view.Close()
			row, err := view.Graph(context.Background(), outcome.Commit)
			must(t, err)
			if want := []object.ID{last, source.New}; fmt.Sprint(row.Parents) != fmt.Sprint(want) {
				t.Errorf("parents are %v, want %v", row.Parents, want)
			}
		})
	}
}
