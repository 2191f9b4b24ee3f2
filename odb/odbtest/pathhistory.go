package odbtest

import (
	"fmt"
	"strconv"
	"strings"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// PathChanges are the changes of the paths, folders among them, of a repository.
type PathChanges map[string][]segment.PathChange

// IsFile reports whether a path is never a folder.
func (p PathChanges) IsFile(path string) bool {
	for _, c := range p[path] {
		if c.Old.Mode.IsTree() || c.New.Mode.IsTree() {
			return false
		}
	}
	return true
}

// Commits counts the commits that changed a path against their first parent.
func (p PathChanges) Commits(path string) (count int) {
	for _, c := range p[path] {
		if c.Parent == 0 {
			count++
		}
	}
	return count
}

// Of returns the changes of some commits.
func (p PathChanges) Of(commits []object.ID) PathChanges {
	is := make(map[object.ID]bool)
	for _, id := range commits {
		is[id] = true
	}
	some := make(PathChanges)
	for path, changes := range p {
		for _, c := range changes {
			if is[c.Commit] {
				some[path] = append(some[path], c)
			}
		}
	}
	return some
}

// PathChanges returns what all commits changed against each of their parents, or have and no
// parent, according to git.
func (g *Repository) PathChanges() PathChanges {
	g.tb.Helper()
	all := make(PathChanges)
	for line := range strings.Lines(g.Git("rev-list", "--all", "--parents")) {
		ids := strings.Fields(line)
		commit, err := object.ParseID(ids[0])
		Must(g.tb, err)
		parents := ids[1:]
		if len(parents) == 0 {
			parents = []string{object.EmptyTreeID.String()}
		}
		for i, parent := range parents {
			g.addPathChanges(all, commit, i, parent)
		}
	}
	return all
}

// addPathChanges adds the changes of a commit against one parent.
func (g *Repository) addPathChanges(all PathChanges, commit object.ID, index int, parent string) {
	g.tb.Helper()
	out := g.Input(nil, "diff-tree", "-r", "-t", "-z", "--raw", "--no-abbrev", "--no-renames", parent, commit.String())
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		var modes [2]string
		var ids [2]string
		var status string
		_, err := fmt.Sscanf(fields[i], ":%s %s %s %s %s", &modes[0], &modes[1], &ids[0], &ids[1], &status)
		Must(g.tb, err)
		c := segment.PathChange{Commit: commit, Parent: index}
		for k, v := range [2]*segment.Version{&c.Old, &c.New} {
			mode, err := strconv.ParseUint(modes[k], 8, 32)
			Must(g.tb, err)
			v.Mode = object.Mode(mode)
			v.ID, err = object.ParseID(ids[k])
			Must(g.tb, err)
		}
		all[fields[i+1]] = append(all[fields[i+1]], c)
	}
}
