package engine_test

import (
	"context"
	"errors"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/fair"
)

// TestLongHistories lists a history for a request that has used up its computing time. What may
// walk all commits is refused: the history of a path, and a page behind a cursor. The first page is
// not.
func TestLongHistories(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	seedHistory(t, repo, 12)
	first, err := repo.Commits(t.Context(), engine.CommitsRequest{Limit: 5})
	must(t, err)
	account := fair.NewProcessors(1).Account(fair.Tenant{Org: "acme"}, 1)
	ctx := fair.With(t.Context(), account)
	for account.Spent() <= 1 {
		must(t, fair.Do(ctx, func(context.Context) error { return nil }))
	}
	for name, test := range map[string]struct {
		request engine.CommitsRequest
		err     error
	}{
		"path":       {engine.CommitsRequest{Limit: 5, Path: "dir"}, fair.ErrWork},
		"cursor":     {engine.CommitsRequest{Limit: 5, Cursor: first.Next}, fair.ErrWork},
		"first page": {engine.CommitsRequest{Limit: 5}, nil},
	} {
		if _, err := repo.Commits(t.Context(), test.request); err != nil {
			t.Errorf("%s, with time: %v", name, err)
		}
		if _, err := repo.Commits(ctx, test.request); !errors.Is(err, test.err) {
			t.Errorf("%s, without: %v, want %v", name, err, test.err)
		}
	}
}
