package odb_test

import (
	"io"
	"slices"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
)

// slowClient takes a part of a pack only when nobody computes.
type slowClient struct {
	odbtest.Bystander
	writes int
}

func (c *slowClient) Write(p []byte) (int, error) {
	c.writes++
	c.Waits()
	return len(p), nil
}

// A pack is planned and written in turns, which do not last while the client takes it.
func TestPackTakesTurns(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]packgen.Request{"everything": {OFSDelta: true}, "shallow": {OFSDelta: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewRepository(t)
			g.Seed(oracle.History{Seed: 1, Commits: 60, Files: 20})
			v := odbtest.Clone(t, g.Repository)
			request.Wants = g.Tips()
			if name == "shallow" {
				request.Shallow = g.Tips()
			}
			ctx, account, watch := odbtest.NewBystander(t)
			client := &slowClient{Bystander: watch}
			told := 0
			progress := func(string, int64, int64) {
				told++
				watch.Waits()
			}
			plan, err := packgen.Plan(ctx, v, request, progress)
			odbtest.Must(t, err)
			defer plan.Close()
			planned := account.Spent()
			if planned == 0 {
				t.Error("the plan was made without a turn")
			}
			_, err = plan.WriteTo(ctx, client, progress)
			odbtest.Must(t, err)
			if account.Spent() == planned {
				t.Error("the pack was written without a turn")
			}
			if client.writes == 0 || told == 0 {
				t.Errorf("%d writes, told %d times", client.writes, told)
			}
		})
	}
}

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
