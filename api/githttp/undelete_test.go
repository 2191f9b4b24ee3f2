package githttp_test

import (
	"slices"
	"testing"

	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/refs"
)

// TestUndelete has git push to a repository and clone it, which is deleted and comes back in
// between: meanwhile git finds nothing, and afterwards all of it. An undo is what git fetches.
func TestUndelete(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	actor := engine.Actor{Org: enginetest.Org, Subject: "tester"}
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 11, Merges: true, Tags: true})
	r.push(git, "refs/*:refs/*")
	before := r.clone(2)
	at, err := r.repo.Sequence(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := r.host.DeleteRepository(t.Context(), actor, repoName); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"ls-remote", r.url("")}, {"fetch", "-q", r.url("")}, {"push", "-q", r.url(""), "main:again"},
	} {
		if out, err := before.Try(nil, args...); err == nil {
			t.Errorf("git %v of a deleted repository: %s", args, out)
		}
	}
	if _, err := r.host.Undelete(t.Context(), actor, engine.UndeleteRequest{Name: repoName}); err != nil {
		t.Fatal(err)
	}
	if now := allRefs(r.clone(0)); !slices.Equal(now, allRefs(before)) {
		t.Errorf("a clone has %v, and had %v", now, allRefs(before))
	}

	git.Git("update-ref", "refs/heads/more", git.Git("commit-tree", "-m", "more", "-p", "main", "main^{tree}"))
	r.push(git, "refs/heads/more", ":"+git.Git("describe", "--tags", "--abbrev=0", "main"), "+main~3:refs/heads/main")
	undone, err := r.repo.Undo(t.Context(), actor, engine.UndoRequest{To: engine.Moment{BySequence: true, Sequence: at}})
	if err != nil || len(undone.Refs) != 3 {
		t.Fatal(undone, err)
	}
	after := r.clone(1)
	if now := allRefs(after); !slices.Equal(now, allRefs(before)) || !slices.Equal(now, r.refs(refs.Main)) {
		t.Errorf("a clone has %v, and had %v", now, allRefs(before))
	}
	if faults := after.Fsck(); len(faults) > 0 {
		t.Errorf("git fsck: %v", faults)
	}
}
