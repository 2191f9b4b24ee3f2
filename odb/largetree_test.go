package odb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"packhorse/odb/fair"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestLargeTree reads the trees of a folder with few files and of one with very many. The large one
// is read in a turn at the processors, and holds memory for itself and what it is made from, or is
// refused before anything is read.
func TestLargeTree(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		count    int
		capacity int64
		large    bool
		err      error
	}{
		"few":             {1000, 64 << 20, false, nil},
		"many":            {50_000, 64 << 20, true, nil},
		"few, no memory":  {1000, 1, false, nil},
		"many, no memory": {50_000, 1 << 20, true, fair.ErrMemory},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewRepository(t)
			blob := g.Write("blob", []byte("x"))
			var lines strings.Builder
			for i := range test.count {
				fmt.Fprintf(&lines, "100644 blob %s\tf%06d\n", blob, i)
			}
			tree := strings.TrimSpace(string(g.Input([]byte(lines.String()), "mktree")))
			g.Git("update-ref", "refs/heads/main", g.Git("commit-tree", "-m", "m", tree))
			v := odbtest.Clone(t, g.Repository)
			id, err := object.ParseID(tree)
			odbtest.Must(t, err)

			var holding fair.Holding
			holding.Begin(fair.NewQueue(fair.Options{Capacity: test.capacity, Wait: time.Hour}), fair.Tenant{Org: "acme"}, 0)
			defer holding.Close()
			ctx, account, _ := odbtest.NewBystander(t)
			data, err := v.ReadTree(fair.Hold(ctx, &holding), id)
			if !errors.Is(err, test.err) {
				t.Fatalf("%v, want %v", err, test.err)
			}
			if err == nil && len(data) != test.count*35 {
				t.Errorf("%d bytes were read", len(data))
			}
			if turn := account.Spent() > 0; turn != (test.large && test.err == nil) {
				t.Errorf("it computed for %s in turns", account.Spent())
			}
			want := int64(0)
			if test.large {
				want = int64(4 * len(data))
			}
			if holding.Total() != want {
				t.Errorf("it holds %d bytes, want %d", holding.Total(), want)
			}
		})
	}
}
