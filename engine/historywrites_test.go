package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// The writes of [TestHistoryModel]. Each is given a repository and a copy of its refs, makes them
// what they are to be afterwards, and reports whether it has written.

func (m *historyModel) push(r *modelRepo, now map[string]object.ID) bool {
	p := m.pool[m.random.IntN(len(m.pool))]
	name := []string{"refs/heads/main", "refs/heads/one", "refs/heads/two", "refs/tags/pushed"}[m.random.IntN(4)]
	if now[name] == p.tip {
		return false
	}
	maps.Copy(m.files, p.files)
	maps.Copy(m.parents, p.parents)
	enginetest.Push(m.t, r.Repository, p.pack, engine.Command{Name: name, Old: now[name], New: p.tip})
	now[name] = p.tip
	return true
}

// commit makes a commit of some operations, whose files the model knows beforehand.
func (m *historyModel) commit(r *modelRepo, now map[string]object.ID) bool {
	target := engine.CommitTarget{Branch: "main", Namespace: refs.Main}
	from := m.oneOf(now, headsPrefix)
	switch {
	case from == "" && len(now) > 0: // a branch could start from nothing only in an empty repository
		return false
	case from == "":
	case m.random.IntN(6) == 0:
		target = engine.CommitTarget{Branch: "draft", Namespace: refs.Ephemeral, Base: strings.TrimPrefix(from, headsPrefix)}
		if id := now[target.Namespace.Full(headsPrefix+target.Branch)]; !id.IsZero() {
			from = target.Namespace.Full(headsPrefix + target.Branch)
		}
	default:
		target.Branch = strings.TrimPrefix(from, headsPrefix)
	}
	before := m.files[now[from]]
	after := maps.Clone(before)
	if after == nil {
		after = files{}
	}
	m.serial++
	path := []string{"m/a", "m/b", "m/x/c", "m/x/d"}[m.random.IntN(4)]
	text := fmt.Sprintf("%d\n", m.serial)
	put := func(path, text string, mode object.Mode) {
		id := blobOf(text)
		m.texts[id] = text
		after[path] = engine.File{Path: path, Mode: mode, ID: id}
	}
	var some *engine.File
	if len(before) > 0 {
		paths := slices.Sorted(maps.Keys(before))
		file := before[paths[m.random.IntN(len(paths))]]
		some = &file
	}
	contents := map[string]string{}
	var op engine.FileOperation
	switch kind := m.random.IntN(6); {
	case some == nil || kind == 0:
		op, contents = engine.FileOperation{Path: path, Mode: object.ModeBlob, ContentID: "1"}, map[string]string{"1": text}
		put(path, text, object.ModeBlob)
	case kind == 1:
		op = deleted(some.Path)
		delete(after, some.Path)
	case kind == 2 && path != some.Path:
		op = moved(some.Path, path)
		delete(after, some.Path)
		after[path] = engine.File{Path: path, Mode: some.Mode, ID: some.ID}
	case kind == 3 && path != some.Path:
		op = copied(some.Path, path)
		after[path] = engine.File{Path: path, Mode: some.Mode, ID: some.ID}
	case kind == 4 && m.texts[some.ID] != "":
		op = edited(some.Path, commit.Edit{Old: m.texts[some.ID], New: text})
		put(some.Path, text, some.Mode)
	default:
		op = engine.FileOperation{Path: path, Mode: object.ModeExec, ContentID: "1"}
		contents["1"] = strings.Repeat(text, 3000)
		put(path, contents["1"], object.ModeExec)
	}
	result, err := operate(r.Repository, acme, target, contents, op)
	must(m.t, err)
	m.files[result.New] = after
	if found := m.list(r.Repository, result.New); !maps.Equal(found, after) {
		m.t.Errorf("%s of %v: the files are %v, want %v", describeOperations([]engine.FileOperation{op}), before, found, after)
	}
	now[target.Namespace.Full(headsPrefix+target.Branch)] = result.New
	return true
}

func (m *historyModel) merge(r *modelRepo, now map[string]object.ID) bool {
	source, target := m.oneOf(now, headsPrefix), m.oneOf(now, headsPrefix)
	if source == target {
		return false
	}
	outcome, err := r.Merge(m.t.Context(), acme, engine.MergeRequest{
		Source: branchNamed(strings.TrimPrefix(source, headsPrefix)), Strategy: engine.PreferForward, Unrelated: true,
		Target:  engine.MergeBranch{Name: strings.TrimPrefix(target, headsPrefix)},
		Details: engine.CommitDetails{Message: "merge", Author: thor},
	})
	must(m.t, err)
	if outcome.Kind == engine.MergeConflicted {
		return false
	}
	now[target] = outcome.Commit
	return true
}

func (m *historyModel) restore(r *modelRepo, now map[string]object.ID) bool {
	target, source := m.oneOf(now, headsPrefix), m.oneOf(now, "")
	if target == "" || strings.HasPrefix(source, "refs/notes/") {
		return false
	}
	result, err := r.RestoreCommit(m.t.Context(), acme, engine.RestoreRequest{
		Target:  engine.CommitTarget{Branch: strings.TrimPrefix(target, headsPrefix)},
		Details: engine.CommitDetails{Message: "restore", Author: thor}, Commit: named(now[source]),
	})
	must(m.t, err)
	m.files[result.New] = m.files[now[source]]
	now[target] = result.New
	return true
}

func (m *historyModel) branch(r *modelRepo, now map[string]object.ID) bool {
	from := m.oneOf(now, headsPrefix)
	if from == "" {
		return false
	}
	name := []string{"one", "two", "three"}[m.random.IntN(3)]
	if headsPrefix+name == from {
		return false
	}
	_, err := r.CreateBranch(m.t.Context(), acme, engine.CreateBranchRequest{
		Branch: name, Base: named(now[from]), Force: true,
	})
	must(m.t, err)
	now[headsPrefix+name] = now[from]
	return true
}

func (m *historyModel) deleteBranch(r *modelRepo, now map[string]object.ID) bool {
	name := m.oneOf(now, headsPrefix)
	if name == "" || name == headsPrefix+"main" {
		return false
	}
	_, err := r.DeleteBranch(m.t.Context(), acme, refs.Main, strings.TrimPrefix(name, headsPrefix))
	must(m.t, err)
	delete(now, name)
	return true
}

func (m *historyModel) tag(r *modelRepo, now map[string]object.ID) bool {
	if name := m.oneOf(now, "refs/tags/"); name != "" && m.random.IntN(2) == 0 {
		_, err := r.DeleteTag(m.t.Context(), acme, refs.Main, strings.TrimPrefix(name, "refs/tags/"))
		must(m.t, err)
		delete(now, name)
		return true
	}
	from := m.oneOf(now, headsPrefix)
	if from == "" {
		return false
	}
	m.serial++
	name := fmt.Sprint("v", m.serial)
	_, err := r.CreateTag(m.t.Context(), acme, refs.Main, name, named(now[from]))
	must(m.t, err)
	now["refs/tags/"+name] = now[from]
	return true
}

func (m *historyModel) addNote(r *modelRepo, now map[string]object.ID) bool {
	from := m.oneOf(now, headsPrefix)
	if from == "" {
		return false
	}
	m.serial++
	result, err := r.AddNote(m.t.Context(), acme,
		engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(now[from])}, fmt.Sprint("note ", m.serial), true)
	must(m.t, err)
	now[result.Ref] = result.New
	return true
}

// transact moves a branch and makes a tag and a commit in one repository, and sometimes branches in
// another one, too: in one transaction, which may be a dry run.
func (m *historyModel) transact(r *modelRepo, now map[string]object.ID) bool {
	from := m.oneOf(now, headsPrefix)
	if from == "" || now["refs/heads/main"].IsZero() {
		return false
	}
	m.serial++
	tag, branch := fmt.Sprint("t", m.serial), []string{"one", "two", "three"}[m.random.IntN(3)]
	text, path := fmt.Sprintf("%d\n", m.serial), []string{"m/a", "m/b"}[m.random.IntN(2)]
	tip := now[from]
	created := func(part int, name string, at object.ID) engine.Step {
		return engine.Step{Part: part, Operation: &engine.CreateBranchOperation{
			CreateBranchRequest: engine.CreateBranchRequest{Branch: name, Base: named(at), Force: true},
		}}
	}
	steps := []engine.Step{
		created(0, branch, tip),
		{Operation: &engine.CreateTagOperation{Name: tag, Target: branchNamed(branch)}},
		commitStep(0, branch, path, "1"),
	}
	parts := []engine.Part{{Repo: r.Repository, Actor: acme}}
	other := m.repos[m.random.IntN(len(m.repos))]
	theirs := maps.Clone(other.states[len(other.states)-1].refs)
	their := theirs["refs/heads/main"]
	if other == r || their.IsZero() || m.random.IntN(2) == 0 {
		other = nil
	} else {
		parts = append(parts, engine.Part{Repo: other.Repository, Actor: acme})
		steps = append(steps, created(1, "three", their))
	}
	dry := m.random.IntN(4) == 0
	for i := range parts {
		parts[i].Actor.DryRun = dry
	}
	result, err := transact(m.t.Context(), m.host, parts, steps, map[string][]byte{"1": []byte(text)})
	must(m.t, err)
	if dry {
		m.did["dry transaction"]++
		if other != nil {
			m.note(other, other.states[len(other.states)-1].refs)
		}
		return true
	}
	now["refs/tags/"+tag] = tip
	now[headsPrefix+branch] = result.Outcomes[2].Commit.New
	after := maps.Clone(m.files[tip])
	id := blobOf(text)
	m.texts[id] = text
	after[path] = engine.File{Path: path, Mode: object.ModeBlob, ID: id}
	if mode := m.files[tip][path].Mode; mode != 0 {
		after[path] = engine.File{Path: path, Mode: mode, ID: id}
	}
	m.files[now[headsPrefix+branch]] = after
	if other != nil {
		m.did["transaction of two"]++
		theirs["refs/heads/three"] = their
		m.note(other, theirs)
	}
	return true
}

// undo goes back to a state, or takes a transaction back.
func (m *historyModel) undo(r *modelRepo, now map[string]object.ID) bool {
	main := func(state map[string]object.ID) map[string]object.ID {
		kept := maps.Clone(state)
		maps.DeleteFunc(kept, func(name string, _ object.ID) bool { return strings.HasPrefix(name, refs.Ephemeral.Full("")) })
		return kept
	}
	last := len(r.states) - 1
	to := m.anyState(r)
	then := main(r.states[to].refs)
	request := engine.UndoRequest{To: seq(uint64(to))}
	one := to < last && m.random.IntN(3) == 0
	if one {
		request = engine.UndoRequest{Sequence: uint64(to) + 1, Force: true}
	}
	m.reopen(r) // the default branch may have been chosen since
	undone, err := r.Undo(m.t.Context(), acme, request)
	_, isDefault := then[headsPrefix+r.Item().DefaultBranch]
	switch {
	case to < r.floor:
		m.did["refused undo"]++
		if !errors.Is(err, engine.ErrPast) {
			m.t.Errorf("%s to %d, from %d on: %v", r.name, to, r.floor, err)
		}
		return false
	case errors.Is(err, engine.ErrDefaultBranch) && !isDefault:
		return false
	case one && errors.Is(err, engine.ErrInvalid) && maps.Equal(r.states[to].refs, r.states[to+1].refs):
		return false // it changed no ref
	}
	must(m.t, err)
	if one { // what the transaction changed is as it was before
		for _, state := range []map[string]object.ID{r.states[to].refs, r.states[to+1].refs} {
			for name := range state {
				if was := r.states[to].refs[name]; was != r.states[to+1].refs[name] {
					if now[name] = was; was.IsZero() {
						delete(now, name)
					}
				}
			}
		}
		m.did["undo of one"]++
	} else {
		maps.DeleteFunc(now, func(name string, _ object.ID) bool { return !strings.HasPrefix(name, refs.Ephemeral.Full("")) })
		maps.Copy(now, then)
	}
	for _, ref := range undone.Refs {
		if now[ref.Name] != ref.After {
			m.t.Errorf("%s: undone %v, want %s", r.name, ref, now[ref.Name])
		}
	}
	return true
}

func (m *historyModel) fork(_ *modelRepo, _ map[string]object.ID) bool {
	base := m.repos[1+m.random.IntN(len(m.repos)-1)]
	now := base.states[len(base.states)-1].refs
	if len(m.repos) > 4 || m.oneOf(now, headsPrefix) == "" {
		return false
	}
	name := fmt.Sprint("fork", len(m.repos))
	request := engine.CreateRequest{Name: name, Base: &engine.Base{Name: base.name}}
	_, err := m.host.CreateRepository(m.t.Context(), acme, request)
	must(m.t, err)
	taken := maps.Clone(now)
	maps.DeleteFunc(taken, func(name string, _ object.ID) bool { return strings.HasPrefix(name, refs.Ephemeral.Full("")) })
	m.did["fork"]++
	base.shared = true
	m.add(name, taken).shared = true
	return false
}
