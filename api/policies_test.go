package api_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/engine/upstream"
	"packhorse/fuzz/oracle"
)

// Names of refs. No policy here binds refs with "free/", each policy binds those with "bound/".
const (
	here, there       = "refs/heads/bound/t", "refs/heads/bound/n" // a branch, and one that is not there yet
	hereTag, thereTag = "refs/tags/bound/t", "refs/tags/bound/n"
	hereNotes         = "refs/notes/bound/t"
	hereOther         = "refs/bound/t"
	aside             = "refs/namespaces/ephemeral/"
	free              = "refs/heads/free/n"
	zero              = "0000000000000000000000000000000000000000"
	receivePack       = "git-receive-pack"
)

// policies are which refs an op binds, as the claims of a token say it and as a test does.
var policies = map[string]struct {
	claims func(op string) (rules []auth.RefRule, ops []string)
	binds  func(ref string) bool
}{
	"all but some": {
		func(op string) ([]auth.RefRule, []string) {
			return []auth.RefRule{
				{Pattern: "free/*"},
				{Pattern: "refs/tags/free/*"},
				{Pattern: "refs/notes/free/*"},
				{Pattern: aside + "refs/heads/free/*"},
			}, []string{op}
		},
		func(ref string) bool { return !strings.Contains(ref, "/free/") },
	},
	"some": {
		func(op string) (rules []auth.RefRule, _ []string) {
			for _, pattern := range []string{
				"bound/*", "refs/tags/bound/*", "refs/notes/bound/*", "refs/bound/*", aside + "refs/*",
			} {
				rules = append(rules, auth.RefRule{Pattern: pattern, Ops: []string{op}})
			}
			return append([]auth.RefRule{{Pattern: aside + "refs/heads/free/*"}}, rules...), nil
		},
		func(ref string) bool {
			return strings.Contains(ref, "bound/") || strings.HasPrefix(ref, aside) && !strings.Contains(ref, "/free/")
		},
	},
}

// holder is the place where a repository has the objects of a change.
type holder struct {
	ref     string // that leads to it; "" if the repository does not have it
	dropped bool   // the ref has been deleted
	forked  bool   // the repository is a fork of the one that has the ref
	undone  bool   // an undo has brought the ref back since
	odd     bool   // the ref may lead to another object than a commit
	// make lets the server itself make the commit that the ref leads to.
	make func(a *act)
}

var holders = map[string]*holder{
	"nothing":                 {odd: true},
	"a deleted branch":        {ref: "refs/heads/free/h", dropped: true},
	"a free branch":           {ref: "refs/heads/free/h"},
	"an undo":                 {ref: "refs/heads/free/h", dropped: true, undone: true},
	"a free tag":              {ref: "refs/tags/free/h", odd: true},
	"free notes":              {ref: "refs/notes/free/h"},
	"a free ephemeral branch": {ref: aside + "refs/heads/free/h"},
	"a bound branch":          {ref: "refs/heads/bound/h"},
	"a bound ephemeral":       {ref: aside + "refs/heads/bound/h"},
	"a fork":                  {ref: "refs/heads/free/h", forked: true},
	"a merge": {ref: "refs/heads/free/h", make: func(a *act) {
		a.json("POST "+v1+"/merge",
			`{"source_branch":"free/h","target_branch":"free/m","strategy":"merge","commit_message":"m",%s}`, author)
		a.json("POST "+v1+"/merge", `{"source_branch":"free/m","target_branch":"free/h","strategy":"ff_only"}`)
	}},
	"a restored commit": {ref: "refs/heads/free/h", make: func(a *act) {
		a.json("POST "+v1+"/restore-commit", `{"metadata":{"target_branch":"free/h","target_commit_sha":%q,%s}}`,
			a.ids["root"], author)
	}},
}

// prepare makes the repository that an act is about.
func (s *policyServer) prepare(name string, w *way, what string, held *holder) *act {
	s.t.Helper()
	a := &act{policyServer: s, repo: name, id: s.ids[what], held: held, token: boundToken(name, nil)}
	create := engine.CreateRequest{Name: name, DefaultBranch: "main"}
	if w.upstream {
		create.Upstream = &engine.UpstreamBase{Origin: upstream.Origin{Provider: "gitlab", Owner: "o", Name: "n"}}
	}
	if held.forked {
		create.Name += "-base"
	}
	repo := s.create(create)
	pairs := []string{
		"refs/heads/main", s.ids["base"], here, s.ids["base"], aside + here, s.ids["base"],
		hereTag, s.ids["base"], hereNotes, s.ids["notes"], hereOther, s.ids["base"], "refs/heads/free/m", s.ids["base"],
	}
	seeds := []string{s.ids["base"], s.ids["notes"]}
	if held.ref != "" {
		pairs, seeds = append(pairs, held.ref, a.id), append(seeds, a.id)
	}
	s.place(repo, s.pack(seeds...), pairs...)
	if held.make != nil {
		held.make(a)
		made := s.standing(name).refs[held.ref]
		if s.parents[made] != nil || made == "" {
			s.t.Fatalf("the server has made no commit: %s", made)
		}
		a.id = made
	}
	if held.dropped {
		s.place(repo, s.empty, held.ref, "")
	}
	if held.undone {
		a.json("POST "+v1+"/undo", `{"sequence":%d}`, s.standing(name).sequence)
		if s.standing(name).refs[held.ref] != a.id {
			s.t.Fatalf("%s has not come back", held.ref)
		}
	}
	if held.forked {
		s.create(engine.CreateRequest{Name: name, Base: &engine.Base{Name: create.Name}})
	}
	if strings.HasSuffix(w.route, "/git-credentials") && !strings.HasPrefix(w.route, "POST") {
		stored, err := repo.CreateCredential(context.Background(), engine.Actor{Org: "acme"}, credential.Login{Password: "p"})
		must(err)
		a.credential = stored.ID.String()
	}
	return a
}

func (s *policyServer) create(request engine.CreateRequest) *engine.Repository {
	s.t.Helper()
	_, err := s.host.CreateRepository(context.Background(), engine.Actor{Org: "acme", Subject: "seed"}, request)
	must(err)
	repo, err := s.host.Repository(context.Background(), "acme", request.Name)
	must(err)
	return repo
}

// target is the repository whose refs a way changes.
func (w *way) target(a *act) string {
	if w.forks {
		return a.repo + "-new"
	}
	return a.repo
}

// run acts with a token of some rules.
func (w *way) run(a *act, rules []auth.RefRule, ops []string) reply {
	a.token = boundToken(w.target(a), rules, ops...)
	return w.do(a)
}

// refuses reports whether the change of a ref that an op binds must be refused, according to the
// documents, and to git for the history.
func (w *way) refuses(s *policyServer, op string, binds func(string) bool, before *standing, ref, to string) bool {
	switch {
	case op == noPush, w.forks:
		return true
	case to == "":
		return false
	case before.refs[ref] != "" && !w.anew:
		return s.brings(to, before.refs[ref])
	}
	var others []string // a created ref may begin with commits that other bound refs contain
	for name, id := range before.refs {
		if binds(name) {
			others = append(others, id)
		}
	}
	return s.brings(to, others...)
}

// expect returns the expected state of a repository, and whether any change that a free token has
// made in its twin must be refused.
func (w *way) expect(
	s *policyServer, op string, binds func(string) bool, before, twin *standing,
) (want standing, refused bool) {
	return w.without(w.syncs, before, twin, func(ref, to string) bool {
		return binds(ref) && w.refuses(s, op, binds, before, ref, to)
	})
}

// without returns the state without the changes of refs that are to be refused, and whether any is.
// refused says that something else is.
func (w *way) without(
	refused bool, before, twin *standing, refuses func(ref, to string) bool,
) (standing, bool) {
	want := standing{twin.head, before.sequence, map[string]string{}}
	maps.Copy(want.refs, before.refs)
	moves := false
	for _, ref := range changed(before, twin) {
		to := twin.refs[ref]
		if refuses(ref, to) {
			refused = true
			continue
		}
		moves = true
		if want.refs[ref] = to; to == "" {
			delete(want.refs, ref)
		}
	}
	switch {
	case !refused:
		return *twin, false
	case !w.each || !moves:
		return *before, true
	}
	want.sequence++
	return want, true
}

// changed returns the names of refs that differ.
func changed(before, after *standing) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(before.refs)) {
		if before.refs[name] != after.refs[name] {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.refs)) {
		if before.refs[name] == "" {
			names = append(names, name)
		}
	}
	return names
}

// TestPolicies uses tokens whose policies have the ops verify-sig and no-push to change refs in all
// possible ways, with signed and unsigned commits, new to the repository or not. The effect of a
// token without a policy on a twin of the repository defines the change; git determines the commits
// that it adds to a ref, and their signers. A refused change must leave nothing behind.
func TestPolicies(t *testing.T) {
	t.Parallel()
	looked := map[string]bool{}
	for _, w := range ways {
		looked[w.route] = true
	}
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		name := route.Method + " " + route.Path
		if writes := route.Scope&(auth.GitWrite|auth.RepoWrite) != 0; writes && !looked[name] {
			t.Errorf("%s is not looked at", name)
		}
	}
	h := newHistory(t)
	count := oracle.CaseCount(t, 7, 4)
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPolicyServer(t, h)
			cases := w.cases(h)
			choose(name, cases)
			done, moved := false, false
			for i, c := range cases[:min(count, len(cases))] {
				did, move := w.try(s, fmt.Sprint("c", i), c)
				done, moved = done || did, moved || move
			}
			if !done || moved == w.still {
				t.Errorf("nobody refuses it: %t; refs move: %t", done, moved)
			}
		})
	}
}

// policyCase is the object of a change, and its place in the repository.
type policyCase struct{ what, held string }

// always are the cases that are tried however few there are to be: the others differ from one way
// to the next.
var always = []policyCase{{"unsigned", "a free branch"}, {"unsigned", "a bound branch"}, {"signed", "a free branch"}}

// choose puts some of the cases of a way first.
func choose(name string, cases []policyCase) {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(name))
	random := rand.New(rand.NewPCG(seed.Sum64(), 0)) //nolint:gosec // the same each time
	random.Shuffle(len(cases), func(i, k int) { cases[i], cases[k] = cases[k], cases[i] })
	slices.SortStableFunc(cases, func(a, b policyCase) int {
		switch first := slices.Contains(always, a); {
		case first == slices.Contains(always, b):
			return 0
		case first:
			return -1
		default:
			return 1
		}
	})
}

// cases are those of a way: every holder with commits of three kinds, every kind of object with the
// two most common holders.
func (w *way) cases(h *history) (cases []policyCase) {
	if w.once {
		return []policyCase{{"unsigned", "a free branch"}}
	}
	for _, held := range slices.Sorted(maps.Keys(holders)) {
		for _, what := range slices.Sorted(maps.Keys(h.ids)) {
			holder := holders[held]
			_, branch := strings.CutPrefix(strings.TrimPrefix(holder.ref, aside), "refs/heads/")
			switch {
			case what == "root" || what == "base" || what == "notes" || what == "note":
			case h.parents[h.ids[what]] == nil && !holder.odd:
			case holder.ref == "" && (w.stored || w.branch), w.branch && (!branch || holder.dropped && !holder.undone):
			case holder.make != nil && what != "unsigned":
			case what == "signed", what == "unsigned", what == "signed on unsigned", held == "nothing", held == "a free branch",
				held == "a free tag":
				cases = append(cases, policyCase{what, held})
			}
		}
	}
	return cases
}

// try makes one change under all policies. It reports whether a token without one may make it, and
// whether refs move then.
func (w *way) try(s *policyServer, name string, c policyCase) (done, moved bool) {
	s.t.Helper()
	free := s.prepare(name, w, c.what, holders[c.held])
	before := s.standing(w.target(free))
	did := w.run(free, nil, nil)
	twin := s.standing(w.target(free))
	var a *act // stays while everything is refused
	var was standing
	for kind, policy := range policies {
		for _, op := range []string{verifySig, noPush} {
			what := fmt.Sprintf("%s, held by %s, %s under %q", c.what, c.held, op, kind)
			if a == nil {
				name += "x"
				a = s.prepare(name, w, c.what, holders[c.held])
				if was = s.standing(w.target(a)); !was.equal(&before) {
					s.t.Fatalf("%s: the twin is %v, not %v", what, before, was)
				}
			}
			source, files := s.standing(a.repo), s.files()
			had := map[string]bool{}
			for _, ref := range changed(&before, &twin) {
				if id := twin.refs[ref]; id != "" {
					had[id] = s.has(w.target(a), id)
				}
			}
			rules, ops := policy.claims(op)
			got := w.run(a, rules, ops)
			now := s.standing(w.target(a))
			want, refused := w.expect(s, op, policy.binds, &before, &twin)
			if !now.equal(&want) || refused && !got.denied() || !refused && got.done() != did.done() {
				s.t.Errorf(
					"%s: want it refused: %t\nit says %d: %s\na free token heard %d: %s\nrefs before: %v\nof the free: %v\nand now:     %v",
					what, refused, got.status, got.text, did.status, did.text, before, twin, now,
				)
			}
			if !refused || !now.equal(&was) {
				a = nil
				continue
			}
			for id, before := range had {
				if !before && s.has(w.target(a), id) {
					s.t.Errorf("%s: the refused object %s can be read", what, id)
				}
			}
			if left := s.files(); !slices.Equal(left, files) {
				s.t.Errorf("%s: files were %q and are %q", what, files, left)
			}
			if is := s.standing(a.repo); w.forks && !is.equal(&source) {
				s.t.Errorf("%s: the base of the fork changed from %v to %v", what, source, is)
			}
		}
	}
	return did.done(), len(changed(&before, &twin)) > 0
}
