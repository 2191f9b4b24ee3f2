package odb_test

import (
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// TestWholeSegments pushes in every way that makes segments: all of them must know what they are as
// a whole, which is what makes a clone cheap, and a clone from that alone must be what the tips
// reach.
func TestWholeSegments(t *testing.T) {
	t.Parallel()
	g := newHistory(t, historyOptions{seed: 41, commitCount: 200})
	for name, fill := range map[string]func(h *ingestHost, commits []object.ID){
		"one push": func(h *ingestHost, _ []object.ID) {
			h.pushPack(g, lines("", g.tips()))
		},
		"thin pushes": func(h *ingestHost, commits []object.ID) {
			h.pushPack(g, lines("", commits[:80]))
			h.pushPack(g, lines("", commits[:140])+"--not\n"+lines("", commits[:80]))
			h.pushPack(g, lines("", g.tips())+"--not\n"+lines("", commits[:140]))
		},
		"pushes that repeat each other": func(h *ingestHost, commits []object.ID) {
			h.pushPack(g, lines("", commits[:120]))
			h.pushPack(g, lines("", commits[:140])+"--not\n"+lines("", commits[:100]))
			h.pushPack(g, lines("", g.tips())+"--not\n"+lines("", commits[:130]))
		},
		"written by the API": func(h *ingestHost, _ []object.ID) {
			for part := range slices.Chunk(g.all(), 400) {
				h.write(g, part)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 30}})
			fill(h, g.ids("", "rev-list", "--all", "--topo-order", "--reverse"))
			v := h.view()
			segments, outlines, err := odb.Outlines(t.Context(), v)
			if err != nil || segments == 0 || outlines != segments {
				t.Errorf("%d of %d segments have an outline (see Ingest.connect and Ingest.settle), %v", outlines, segments, err)
			}
			for _, filter := range []string{"", "blob:none", "blob:limit=100", "tree:0", "object:type=tag"} {
				request := packgen.Request{Wants: g.tips(), OFSDelta: true}
				if filter != "" {
					request.Filter, err = packgen.ParseFilter(filter)
					must(t, err)
				}
				checkPack(t, g, v, request)
			}
		})
	}
}
