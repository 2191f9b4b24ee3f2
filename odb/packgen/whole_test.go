package packgen_test

import (
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// TestWholeSegments pushes in every way that makes segments. All segments must have summaries,
// which make clones cheap, and a clone must have the objects that the tips reach.
func TestWholeSegments(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 41, CommitCount: 200})
	for name, fill := range map[string]func(h *odbtest.Pool, commits []object.ID){
		"one push": func(h *odbtest.Pool, _ []object.ID) {
			h.PushGit(g, odbtest.Lines("", g.Tips()))
		},
		"thin pushes": func(h *odbtest.Pool, commits []object.ID) {
			h.PushGit(g, odbtest.Lines("", commits[:80]))
			h.PushGit(g, odbtest.Lines("", commits[:140])+"--not\n"+odbtest.Lines("", commits[:80]))
			h.PushGit(g, odbtest.Lines("", g.Tips())+"--not\n"+odbtest.Lines("", commits[:140]))
		},
		"pushes that repeat each other": func(h *odbtest.Pool, commits []object.ID) {
			h.PushGit(g, odbtest.Lines("", commits[:120]))
			h.PushGit(g, odbtest.Lines("", commits[:140])+"--not\n"+odbtest.Lines("", commits[:100]))
			h.PushGit(g, odbtest.Lines("", g.Tips())+"--not\n"+odbtest.Lines("", commits[:130]))
		},
		"written by the API": func(h *odbtest.Pool, _ []object.ID) {
			for part := range slices.Chunk(g.All(), 400) {
				h.Write(g, part)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 30}})
			fill(h, g.IDs("", "rev-list", "--all", "--topo-order", "--reverse"))
			v := h.View()
			if segments, summaries := odbtest.SummaryCount(t, v); segments == 0 || summaries != segments {
				t.Errorf("%d of %d segments have a summary (see Ingest.connect and Ingest.settle)", summaries, segments)
			}
			for _, filter := range []string{"", "blob:none", "blob:limit=100", "tree:0", "object:type=tag"} {
				request := packgen.Request{Wants: g.Tips(), OFSDelta: true}
				if filter != "" {
					parsed, err := packgen.ParseFilter(filter)
					odbtest.Must(t, err)
					request.Filter = parsed
				}
				odbtest.CheckPack(t, g, v, request)
			}
		})
	}
}
