package engine_test

import (
	"fmt"
	"slices"
	"strings"

	"packhorse/engine"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// clone clones a moment and fetches another one into the clone, as git clients do from the remotes
// of moments. Both packs hold all that the refs of their moments reach, and nothing else.
func (m *historyModel) clone(r *modelRepo, sequence, other int) {
	git := oracle.New(m.t)
	tips := m.tips(r, sequence)
	if len(tips) == 0 {
		return
	}
	then, err := r.At(m.t.Context(), atSequence(uint64(sequence)))
	must(m.t, err)
	pack, err := clone(then, engine.FetchRequest{Wants: tips}, engine.SendOptions{})
	must(m.t, err)
	git.Input(pack, "index-pack", "--strict", "--stdin")
	m.holdClone(r, sequence, git, tips)
	if other < r.floor {
		return
	}
	m.did["fetch"]++
	// The other moment may know nothing of what the clone has.
	wants := slices.DeleteFunc(m.tips(r, other), func(id object.ID) bool { return slices.Contains(tips, id) })
	if len(wants) == 0 {
		return
	}
	then, err = r.At(m.t.Context(), atSequence(uint64(other)))
	must(m.t, err)
	request := engine.FetchRequest{Wants: wants, Haves: tips, Thin: true, OFSDelta: true}
	pack, err = clone(then, request, engine.SendOptions{})
	must(m.t, err)
	git.Input(pack, "index-pack", "--strict", "--stdin", "--fix-thin")
	m.holdClone(r, other, git, append(wants, tips...))
}

// tips are the values of the refs that a clone of a state asks for.
func (m *historyModel) tips(r *modelRepo, sequence int) (tips []object.ID) {
	for name, id := range r.states[sequence].refs {
		if !strings.HasPrefix(name, refs.Ephemeral.Full("")) && !slices.Contains(tips, id) {
			tips = append(tips, id)
		}
	}
	slices.SortFunc(tips, object.ID.Compare)
	return tips
}

// holdClone holds a clone to the files of the commits that it got, and to having nothing that they
// do not reach.
func (m *historyModel) holdClone(r *modelRepo, sequence int, git *oracle.Repository, tips []object.ID) {
	m.t.Helper()
	var named strings.Builder
	for _, id := range tips {
		fmt.Fprintln(&named, id)
		var listed, want []string
		for entry := range strings.SplitSeq(git.Git("ls-tree", "-rz", id.String()), "\x00") {
			if entry != "" {
				listed = append(listed, entry)
			}
		}
		for _, file := range m.files[id] {
			want = append(want, fmt.Sprintf("%s %s %s\t%s", file.Mode, file.Mode.Type(), file.ID, file.Path))
		}
		slices.Sort(want)
		slices.Sort(listed)
		if !slices.Equal(listed, want) {
			m.t.Errorf("%s at %d: git lists %q, want %q", r.name, sequence, listed, want)
		}
	}
	reached := strings.Fields(string(git.Input([]byte(named.String()), "rev-list", "--objects", "--no-object-names", "--stdin")))
	var stored []string
	for _, line := range git.Objects() {
		id, _, _ := strings.Cut(line, " ")
		stored = append(stored, id)
	}
	slices.Sort(reached)
	if !slices.Equal(stored, reached) {
		m.t.Errorf("%s at %d: a clone holds %d objects, and %d are reached", r.name, sequence, len(stored), len(reached))
	}
}
