package api_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"packhorse/api/auth"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/pack/object"
)

// protected are patterns of paths that a token lets nobody change, and the paths as a test sees
// them.
var protected = map[string]func(path string) bool{
	"f":       func(path string) bool { return path == "f" },
	"{h,new}": func(path string) bool { return path == "h" || path == "new" },
	"**":      func(string) bool { return true },
}

// pathToken is a token for a repository in which nothing may change at the paths of a pattern.
func pathToken(repo, pattern string) string {
	text, err := auth.Mint(keys().private, auth.Claims{
		Org: "acme", Subject: "ci", Repo: repo, Scopes: []string{"git:write", "repo:write"},
		Expires: time.Now().Add(time.Hour), Paths: []auth.PathRule{{Pattern: pattern, Ops: []string{"no-write"}}},
	})
	must(err)
	return text
}

// inside looks into the objects of a repository, in the simplest way.
type inside struct {
	t    *testing.T
	view *odb.View
}

func (s *policyServer) inside(repo string) inside {
	s.t.Helper()
	r, err := s.host.Repository(context.Background(), "acme", repo)
	must(err)
	view, err := r.Objects(context.Background())
	must(err)
	return inside{s.t, view.Linked()}
}

// commit follows tags, and returns "" if they lead to no commit.
func (in inside) commit(id string) string {
	in.t.Helper()
	kind, data, err := in.view.Read(in.t.Context(), parsedID(id))
	must(err)
	switch kind {
	case object.TypeCommit:
		return id
	case object.TypeTag:
		return in.commit(string(data[len("object "):][:40]))
	default:
		return ""
	}
}

func (in inside) parents(id string) (parents []string) {
	in.t.Helper()
	row, err := in.view.Graph(in.t.Context(), parsedID(id))
	must(err)
	for _, parent := range row.Parents {
		parents = append(parents, parent.String())
	}
	return parents
}

// files returns mode and ID of every file that a ref's value leads to.
func (in inside) files(id string) map[string]string {
	in.t.Helper()
	files := map[string]string{}
	commit := in.commit(id)
	if commit == "" {
		return files
	}
	row, err := in.view.Graph(in.t.Context(), parsedID(commit))
	must(err)
	in.folder(row.Tree, "", files)
	return files
}

func (in inside) folder(id object.ID, prefix string, files map[string]string) {
	in.t.Helper()
	data, err := in.view.ReadTree(in.t.Context(), id)
	must(err)
	for it := object.IterTree(data); it.Next(); {
		path := prefix + string(it.Name)
		if it.Mode.IsTree() {
			in.folder(it.ID, path+"/", files)
		} else {
			files[path] = fmt.Sprint(it.Mode, it.ID)
		}
	}
}

// reach returns the commits that values of refs lead to.
func (in inside) reach(ids ...string) map[string]bool {
	in.t.Helper()
	all := map[string]bool{}
	for len(ids) > 0 {
		id := in.commit(ids[len(ids)-1])
		ids = ids[:len(ids)-1]
		if id != "" && !all[id] {
			all[id] = true
			ids = append(ids, in.parents(id)...)
		}
	}
	return all
}

// begins returns what the paths of a new ref are compared with: the files of the commits on which
// those build that no ref had.
func (in inside) begins(id string, before *standing) (begins []map[string]string) {
	in.t.Helper()
	known := in.reach(slices.Collect(maps.Values(before.refs))...)
	tip := in.commit(id)
	if known[tip] {
		return []map[string]string{in.files(tip)}
	}
	if tip != "" {
		for id := range in.reach(tip) {
			if known[id] {
				continue
			}
			for _, parent := range in.parents(id) {
				if known[parent] {
					begins = append(begins, in.files(parent))
				}
			}
		}
	}
	if len(begins) == 0 {
		begins = append(begins, nil)
	}
	return begins
}

// changes reports whether a ref that gets the value to changes a path of a pattern.
func (in inside) changes(pattern string, before *standing, old, to string) bool {
	in.t.Helper()
	begins := []map[string]string{}
	if old == "" {
		begins = in.begins(to, before)
	} else {
		begins = append(begins, in.files(old))
	}
	after := in.files(to)
	paths := map[string]bool{}
	for _, files := range append(begins, after) {
		for path := range files {
			paths[path] = true
		}
	}
	for path := range paths {
		same := func(files map[string]string) bool { return files[path] == after[path] }
		if protected[pattern](path) && !slices.ContainsFunc(begins, same) {
			return true
		}
	}
	return false
}

// expectPaths is expect under a policy that protects paths.
func (w *way) expectPaths(s *policyServer, repo, pattern string, before, twin *standing) (want standing, refused bool) {
	s.t.Helper()
	switch {
	case w.syncs, twin.refs == nil && before.refs != nil: // documented: so are those that remove the repository
		return *before, true
	case w.forks: // documented: the refs of a new repository change no path
		return *twin, false
	}
	in := s.inside(repo)
	defer in.view.Close()
	return w.without(false, before, twin, func(ref, to string) bool {
		old := before.refs[ref]
		if w.anew {
			old = ""
		}
		return to != "" && in.changes(pattern, before, old, to)
	})
}

// TestPathPolicies changes refs in all possible ways with tokens that protect paths. The effect of
// a token without a policy on a twin of the repository tells what changes at which paths, by
// listing all files; a refused change must leave nothing behind.
func TestPathPolicies(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	count := oracle.CaseCount(t, 4, 2)
	for name, w := range ways {
		if name == "push, back and forth" { // each step counts: TestPathPolicySteps
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPolicyServer(t, h)
			cases := w.cases(h)
			choose(name, cases)
			for i, c := range cases[:min(count, len(cases))] {
				w.tryPaths(s, fmt.Sprint("p", i), c)
			}
		})
	}
}

// tryPaths makes one change under each of the policies.
func (w *way) tryPaths(s *policyServer, name string, c policyCase) {
	s.t.Helper()
	free := s.prepare(name, w, c.what, holders[c.held])
	before := s.standing(w.target(free))
	did := w.run(free, nil, nil)
	twin := s.standing(w.target(free))
	for pattern := range protected {
		name += "x"
		a := s.prepare(name, w, c.what, holders[c.held])
		files := s.files()
		a.token = pathToken(w.target(a), pattern)
		got := w.do(a)
		now := s.standing(w.target(a))
		want, refused := w.expectPaths(s, w.target(free), pattern, &before, &twin)
		if !now.equal(&want) || refused && !got.denied() || !refused && got.done() != did.done() {
			s.t.Errorf("%s, held by %s, %q protected: want it refused: %t\nit says %d: %s\na free token heard %d: %s\n"+
				"refs before: %v\nof the free: %v\nand now:     %v",
				c.what, c.held, pattern, refused, got.status, got.text, did.status, did.text, before, twin, now)
		}
		if left := s.files(); refused && now.equal(&before) && !slices.Equal(left, files) {
			s.t.Errorf("%s, %q protected: files were %q and are %q", c.what, pattern, files, left)
		}
	}
}

// TestPathPolicySteps moves a branch to a state with another file and on to one with the old: each
// step of a request is a change.
func TestPathPolicySteps(t *testing.T) {
	t.Parallel()
	s := newPolicyServer(t, newHistory(t))
	w := ways["push, back and forth"]
	a := s.prepare("steps", &w, "signed", holders["a free branch"])
	before := s.standing("steps")
	a.token = pathToken("steps", "f")
	if got, now := w.do(a), s.standing("steps"); !got.denied() || !now.equal(&before) {
		t.Errorf("it says %d: %s, and the refs are %v", got.status, got.text, now)
	}
}
