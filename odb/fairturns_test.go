package odb_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/ingest"
	"packhorse/odb/packgen"
)

// bystander shares the only processor with some work.
type bystander struct {
	testing.TB
	ctx context.Context // that has ended, so that nothing waits for a turn
}

// newBystander returns a context whose work is charged to an account at the processor, and who
// shares it.
func newBystander(tb testing.TB) (context.Context, *fair.Account, bystander) {
	tb.Helper()
	p := fair.NewProcessors(1)
	account := p.Account(fair.Tenant{Org: "acme"}, 0)
	ended, end := context.WithCancel(fair.With(tb.Context(), p.Account(fair.Tenant{Org: "other"}, 0)))
	end()
	return fair.With(tb.Context(), account), account, bystander{tb, ended}
}

// waits is what a client does: it returns when nobody has a turn. Others who work for the request
// may have one for a while.
func (b bystander) waits() {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		// Which gives up at once when the processor is taken.
		err := fair.Do(b.ctx, func(context.Context) error { return nil })
		switch {
		case err == nil:
			return
		case !errors.Is(err, context.Canceled) || time.Now().After(deadline):
			b.Fatalf("a turn lasts while a client is waited for: %v", err)
		}
	}
}

// slowClient takes a part of a pack only when nobody computes.
type slowClient struct {
	bystander
	writes int
}

func (c *slowClient) Write(p []byte) (int, error) {
	c.writes++
	c.waits()
	return len(p), nil
}

// A pack is planned and written in turns, which do not last while the client takes it.
func TestPackTakesTurns(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]packgen.Request{"everything": {OFSDelta: true}, "shallow": {OFSDelta: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRepository(t)
			g.Seed(oracle.History{Seed: 1, Commits: 60, Files: 20})
			v := viewOf(t, g)
			request.Wants = g.tips()
			if name == "shallow" {
				request.Shallow = g.tips()
			}
			ctx, account, watch := newBystander(t)
			client := &slowClient{bystander: watch}
			told := 0
			progress := func(string, int64, int64) {
				told++
				watch.waits()
			}
			plan, err := packgen.Plan(ctx, v, request, progress)
			must(t, err)
			defer plan.Close()
			planned := account.Spent()
			if planned == 0 {
				t.Error("the plan was made without a turn")
			}
			_, err = plan.WriteTo(ctx, client, progress)
			must(t, err)
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
	bystander
	parts [][]byte
}

func (r *slowSender) Read(p []byte) (int, error) {
	r.waits()
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
	g := newRepository(t)
	g.Seed(oracle.History{Seed: 1, Commits: 400, Files: 40})
	packed := g.Input([]byte(lines("", g.tips())), "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
	h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 10}}) // so that it becomes a segment
	ctx, account, watch := newBystander(t)
	sender := &slowSender{bystander: watch, parts: slices.Collect(slices.Chunk(packed, 16<<10))}
	in, err := ingest.Read(ctx, h.view(), sender, ingest.Options{})
	must(t, err)
	defer in.Close()
	read := account.Spent()
	if read == 0 {
		t.Error("the pack was read without a turn")
	}
	q, _, err := in.Resolve(ctx, func(string, int64, int64) { watch.waits() })
	must(t, err)
	defer q.Close()
	if account.Spent() == read {
		t.Error("the pack was resolved without a turn")
	}
	watch.waits()
}
