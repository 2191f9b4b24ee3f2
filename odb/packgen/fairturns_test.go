package packgen_test

import (
	"testing"

	"packhorse/fuzz/oracle"
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
