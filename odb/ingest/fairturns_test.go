package ingest_test

import (
	"io"
	"slices"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
)

// slowSender sends parts of a pack, each only when nobody computes.
type slowSender struct {
	odbtest.Bystander
	parts [][]byte
}

func (r *slowSender) Read(p []byte) (int, error) {
	r.Waits()
	if len(r.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.parts[0])
	if r.parts[0] = r.parts[0][n:]; len(r.parts[0]) == 0 {
		r.parts = r.parts[1:]
	}
	return n, nil
}

// A push is read, resolved and checked in turns, which do not last while its sender is waited for.
func TestIngestTakesTurns(t *testing.T) {
	t.Parallel()
	g := odbtest.NewRepository(t)
	g.Seed(oracle.History{Seed: 1, Commits: 400, Files: 40})
	packed := odbtest.PackAll(g.Repository, "--delta-base-offset")
	h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 10}}) // so that it becomes a segment
	ctx, account, watch := odbtest.NewBystander(t)
	sender := &slowSender{Bystander: watch, parts: slices.Collect(slices.Chunk(packed, 16<<10))}
	in, err := ingest.Read(ctx, h.View(), sender, ingest.Options{})
	odbtest.Must(t, err)
	defer in.Close()
	read := account.Spent()
	if read == 0 {
		t.Error("the pack was read without a turn")
	}
	q, _, err := in.Resolve(ctx, func(string, int64, int64) { watch.Waits() })
	odbtest.Must(t, err)
	defer q.Close()
	if account.Spent() == read {
		t.Error("the pack was resolved without a turn")
	}
	watch.Waits()
}
