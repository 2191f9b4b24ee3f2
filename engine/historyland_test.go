package engine_test

import (
	"slices"
	"strings"

	"packhorse/engine"
	"packhorse/pack/object"
)

// land merges other branches into a branch.
func (m *historyModel) land(r *modelRepo, now map[string]object.ID) bool {
	target := m.oneOf(now, headsPrefix)
	request := engine.LandRequest{
		Target: engine.MergeBranch{Name: strings.TrimPrefix(target, headsPrefix)}, Author: thor, Committer: thor,
		StopOnConflict: m.random.IntN(3) == 0,
	}
	for range 1 + m.random.IntN(3) {
		if source := m.oneOf(now, headsPrefix); source != target {
			request.Sources = append(request.Sources, engine.LandSource{
				Source: branchNamed(strings.TrimPrefix(source, headsPrefix)), Squash: m.random.IntN(3) == 0,
			})
		}
	}
	if len(request.Sources) == 0 {
		return false
	}
	outcome, err := r.Land(m.t.Context(), acme, request)
	must(m.t, err)
	tip, stopped := now[target], false
	for i, landed := range outcome.Sources {
		source := now[headsPrefix+request.Sources[i].Source.Text]
		m.did["land "+string(landed.Kind)]++
		if stopped != (landed.Kind == engine.LandSkipped) {
			m.t.Errorf("%s: source %d of %+v is %s", r.name, i, request, landed.Kind)
		}
		var parents []object.ID
		switch landed.Kind {
		case engine.LandMerged:
			parents = []object.ID{tip, source}
		case engine.LandSquashed:
			parents = []object.ID{tip}
		case engine.LandConflicted:
			stopped = request.StopOnConflict
			continue
		case engine.LandUnrelated, engine.LandNothing, engine.LandSkipped:
			continue
		}
		made, err := r.Commit(m.t.Context(), named(landed.Commit))
		must(m.t, err)
		if !slices.Equal(made.Parents, parents) {
			m.t.Errorf("%s: source %d came to a commit of %s, want %s", r.name, i, made.Parents, parents)
		}
		tip = landed.Commit
	}
	if outcome.Old != now[target] || outcome.Commit != tip {
		m.t.Errorf("%s: %s went from %s to %s, want %s to %s", r.name, target, outcome.Old, outcome.Commit, now[target], tip)
	}
	now[target] = outcome.Commit
	return true
}
