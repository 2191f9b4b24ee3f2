package rest_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestMissingBranchElsewhere asks for branches that are in the other namespace.
func TestMissingBranchElsewhere(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.commit("main", "a.txt", "1")
	c.post(c.door.CreateBranch, `{"target_branch":"draft","base_branch":"main","target_is_ephemeral":true}`).
		want(http.StatusCreated)
	preview := func(query string) answer { return c.call(c.door.PreviewMerge, http.MethodGet, "/?"+query, nil) }
	const ephemeral, plain = `"draft" not found; there is one among the ephemeral branches`,
		`"main" not found; there is one that is not ephemeral`
	preview("source_branch=draft&target_branch=main").refused(http.StatusNotFound, "branch "+ephemeral)
	preview("source_branch=draft&target_branch=main&source_is_ephemeral=true&target_is_ephemeral=true").
		refused(http.StatusNotFound, "branch "+plain)
	preview("source_branch=draft&target_branch=main&source_is_ephemeral=true").want(http.StatusOK)
	c.call(c.door.Files, http.MethodGet, "/?ref=draft", nil).refused(http.StatusNotFound, "ref "+ephemeral)
	c.call(c.door.Commits, http.MethodGet, "/?branch=draft", nil).refused(http.StatusNotFound, "branch "+ephemeral)
	c.begin(`"target_branch":"draft"`, "m", "x").refused(http.StatusNotFound, "branch "+ephemeral)
	c.begin(`"target_branch":"x","base_branch":"draft"`, "m", "x").refused(http.StatusNotFound, "base branch "+ephemeral)
	c.post(c.door.CreateBranch, `{"target_branch":"x","base_branch":"draft"}`).refused(http.StatusNotFound,
		"base branch "+ephemeral)
	if got := preview("source_branch=none&target_branch=main").
		refused(http.StatusNotFound, `"none" not found`); strings.Contains(got.Error, "ephemeral") {
		t.Errorf("a branch that is nowhere: %q", got.Error)
	}
}

// TestRefusedPaths checks the messages about paths of a commit: git's words, and no others.
func TestRefusedPaths(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	for path, want := range map[string]string{
		"../x":   `path "../x" has the component "..", which git refuses (hasDotdot)`,
		".git/x": `path ".git/x" has the component ".git", which git refuses (hasDotgit)`,
	} {
		got := c.begin(`"target_branch":"main"`, "m", path).refused(http.StatusBadRequest, want)
		if strings.Contains(got.Error, "object: ") {
			t.Errorf("the refusal of %q tells what is inside: %s", path, got.Error)
		}
	}
	fields := `"target_branch":"main","commit_message":"m",` + author +
		`,"files":[{"path":".gitmodules","content_id":"1"}]`
	got := c.commitPack(newPack(fields).chunk("1", "[submodule \"x\"]\n\tpath = x\n\turl = -oops\n", true)).
		refused(http.StatusBadRequest, `path ".gitmodules" is refused, as git fsck refuses it: gitmodulesUrl: `)
	if strings.Contains(got.Error, "object: ") {
		t.Errorf("the refusal tells what is inside: %s", got.Error)
	}
}
