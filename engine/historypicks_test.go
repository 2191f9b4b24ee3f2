package engine_test

import (
	"maps"
	"strings"

	"packhorse/engine"
	"packhorse/pack/object"
)

// pick repeats a commit on a branch, or takes it back.
func (m *historyModel) pick(r *modelRepo, now map[string]object.ID) bool {
	target, source := m.oneOf(now, headsPrefix), m.oneOf(now, headsPrefix)
	if target == "" {
		return false
	}
	commit := now[source]
	for range m.random.IntN(4) {
		if parents := m.parents[commit]; len(parents) > 0 {
			commit = parents[0]
		}
	}
	request := engine.PickRequest{
		Revert: m.random.IntN(2) == 0, Commits: []engine.CommitName{named(commit)}, Author: thor, Committer: thor,
		Target: engine.MergeBranch{Name: strings.TrimPrefix(target, headsPrefix)}, Empty: engine.EmptyKeeps,
	}
	parents := m.parents[commit]
	if len(parents) > 1 {
		request.Mainline = 1 + m.random.IntN(len(parents))
	}
	before := files{}
	if len(parents) > 0 {
		before = m.files[parents[max(0, request.Mainline-1)]]
	}
	tip := now[target]
	outcome, err := r.Pick(m.t.Context(), acme, request)
	must(m.t, err)
	m.did["pick "+string(outcome.Kind)]++
	if outcome.Kind != engine.PickCommitted {
		return true
	}
	now[target] = outcome.Commit
	from, to := before, m.files[commit]
	if request.Revert {
		from, to = to, from
	}
	if want, plain := applied(m.files[tip], from, to); plain {
		m.did["plain pick"]++
		m.files[outcome.Commit] = want
		m.holdFiles(r, outcome.Commit)
	}
	return true
}

// applied makes the changes between two trees to a third one. It is not plain where a path was
// changed on both sides, or where one is missing, which may be a rename.
func applied(now, from, to files) (after files, plain bool) {
	after = maps.Clone(to)
	for path, was := range from {
		is, there := to[path]
		here, kept := now[path]
		if !there || !kept || is != was && here != was && is != here {
			return nil, false
		}
		if is == was {
			after[path] = here
		}
	}
	for path, file := range now {
		if _, was := from[path]; was {
			continue
		}
		if other, added := to[path]; added && other != file {
			return nil, false
		}
		after[path] = file
	}
	return after, true
}
