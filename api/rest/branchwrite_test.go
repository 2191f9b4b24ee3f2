package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"packhorse/refs"
)

// post sends a JSON body to a handler that writes.
func (c *client) post(h handler, body string) answer {
	c.t.Helper()
	return c.call(h, http.MethodPost, "/", strings.NewReader(body))
}

// remove sends a JSON body with DELETE.
func (c *client) remove(h handler, body string) answer {
	c.t.Helper()
	return c.call(h, http.MethodDelete, "/", strings.NewReader(body))
}

// bound returns the client with a token whose policy binds a pattern.
func (c *client) bound(pattern string, op refs.Op) *client {
	c.t.Helper()
	policy, err := refs.ParsePolicy([][]any{{pattern, []any{string(op)}}}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	grant := *c.grant
	grant.Policy = policy
	return &client{t: c.t, door: c.door, grant: &grant}
}

// tips returns the branches of a namespace, in the order of creation, with their tips.
func (c *client) tips(query string) (names, tips []string) {
	c.t.Helper()
	var page struct {
		Branches []struct {
			Name    string
			HeadSHA string `json:"head_sha"`
		}
	}
	c.call(c.door.Branches, http.MethodGet, "/?limit=100"+query, nil).want(http.StatusOK).decode(&page)
	for _, branch := range page.Branches {
		names, tips = append(names, branch.Name), append(tips, branch.HeadSHA)
	}
	return names, tips
}

type createdBranch struct {
	Message           string
	TargetBranch      string `json:"target_branch"`
	TargetIsEphemeral *bool  `json:"target_is_ephemeral"`
	CommitSHA         string `json:"commit_sha"`
}

func TestCreateBranch(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	c.post(c.door.CreateTag, `{"name":"v1","target":"`+done[1].Commit.SHA+`"}`).want(http.StatusCreated)
	main, dev := done[2].Commit.SHA, done[3].Commit.SHA
	steps := []struct {
		name, body, tip string
		ephemeral       bool
	}{
		{"from a branch", `"target_branch":"a/1","base_branch":"dev"`, dev, false},
		{"from any ref, a branch", `"target_branch":"a/2","base_ref":"dev"`, dev, false},
		{"from a full ref", `"target_branch":"a/3","base_ref":"refs/heads/main"`, main, false},
		{"from a tag", `"target_branch":"a/4","base_ref":"v1"`, done[1].Commit.SHA, false},
		{"from a commit", `"target_branch":"a/5","base_ref":"` + done[0].Commit.SHA + `"`, done[0].Commit.SHA, false},
		{
			"from the beginning of an id", `"target_branch":"a/6","base_ref":"` + done[0].Commit.SHA[:12] + `"`,
			done[0].Commit.SHA, false,
		},
		{"ephemeral from a branch", `"target_branch":"spike","base_branch":"dev","target_is_ephemeral":true`, dev, true},
		{
			"ephemeral from ephemeral",
			`"target_branch":"deeper","base_branch":"spike","base_is_ephemeral":true,"target_is_ephemeral":true`, dev, true,
		},
		{
			"ephemeral of the default branch's name",
			`"target_branch":"main","base_branch":"dev","target_is_ephemeral":true`, dev, true,
		},
		{"promotion", `"target_branch":"spike","base_branch":"spike","base_is_ephemeral":true`, dev, false},
		{"promotion by base_ref", `"target_branch":"spike2","base_ref":"spike","base_is_ephemeral":true`, dev, false},
	}
	for _, step := range steps {
		got := c.post(c.door.CreateBranch, "{"+step.body+"}").want(http.StatusCreated)
		var created createdBranch
		got.decode(&created)
		if created.Message == "" || created.CommitSHA != step.tip || created.TargetIsEphemeral == nil ||
			*created.TargetIsEphemeral != step.ephemeral ||
			!strings.Contains(step.body, `"target_branch":"`+created.TargetBranch+`"`) {
			t.Errorf("%s: %s, want the tip %s", step.name, got.Body, step.tip)
		}
		if got.Header.Get("X-Repo-Sequence") == "" {
			t.Errorf("%s: no X-Repo-Sequence", step.name)
		}
	}
	names, tips := c.tips("")
	if got, want := strings.Join(names, " "), "main dev a/1 a/2 a/3 a/4 a/5 a/6 spike spike2"; got != want {
		t.Errorf("branches are %s, want %s", got, want)
	}
	if tips[8] != dev {
		t.Errorf("the promoted branch is at %s, want %s", tips[8], dev)
	}
	names, _ = c.tips("&ephemeral=true")
	if got, want := strings.Join(names, " "), "spike deeper main"; got != want {
		t.Errorf("ephemeral branches are %s, want %s", got, want)
	}
}

func TestCreateBranchRefuses(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	tests := map[string]struct {
		body   string
		status int
		says   string
	}{
		"no body":    {``, 400, "JSON object"},
		"no JSON":    {`{`, 400, "JSON"},
		"no target":  {`{"base_branch":"main"}`, 400, "target_branch is required"},
		"no base":    {`{"target_branch":"x"}`, 400, "base_branch or base_ref"},
		"two bases":  {`{"target_branch":"x","base_branch":"main","base_ref":"none"}`, 404, `ref "none" not found`},
		"wrong type": {`{"target_branch":1,"base_branch":"main"}`, 400, "target_branch"},
		"wrong flag": {
			`{"target_branch":"x","base_branch":"main","target_is_ephemeral":"true"}`, 400, "target_is_ephemeral",
		},
		"given twice":          {`{"target_branch":"x","target_branch":"y","base_branch":"main"}`, 400, "target_branch"},
		"bad target":           {`{"target_branch":"a..b","base_branch":"main"}`, 400, "target_branch"},
		"target with refs/":    {`{"target_branch":"refs/heads/x","base_branch":"main"}`, 400, "target_branch"},
		"target like an id":    {`{"target_branch":"` + done[0].Commit.SHA + `","base_branch":"main"}`, 400, "object ID"},
		"base_branch is a ref": {`{"target_branch":"x","base_branch":"refs/heads/main"}`, 400, "base_branch"},
		"no such base":         {`{"target_branch":"x","base_branch":"nope"}`, 404, "nope"},
		"no such ref":          {`{"target_branch":"x","base_ref":"nope"}`, 404, "nope"},
		"base_branch is an id": {
			`{"target_branch":"x","base_branch":"` + done[0].Commit.SHA[:12] + `"}`, 404, done[0].Commit.SHA[:12],
		},
		"unknown commit": {`{"target_branch":"x","base_ref":"` + strings.Repeat("1", 40) + `"}`, 404, "1111"},
		"a tree for a commit": {
			`{"target_branch":"x","base_ref":"` + done[0].Commit.Tree + `"}`, 404, done[0].Commit.Tree,
		},
		"base not ephemeral":     {`{"target_branch":"x","base_branch":"dev","base_is_ephemeral":true}`, 404, "dev"},
		"exists":                 {`{"target_branch":"dev","base_branch":"main"}`, 409, "already exists"},
		"exists at the same tip": {`{"target_branch":"dev","base_branch":"dev"}`, 409, "already exists"},
		"below a branch":         {`{"target_branch":"dev/x","base_branch":"main"}`, 409, "refs/heads/dev"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &client{t: t, door: c.door, grant: c.grant}
			c.post(c.door.CreateBranch, test.body).refused(test.status, test.says)
		})
	}
	c.as("nope").post(c.door.CreateBranch, `{"target_branch":"x","base_branch":"main"}`).refused(http.StatusNotFound,
		"nope")
	c.bound("x*", refs.NoPush).post(c.door.CreateBranch, `{"target_branch":"x1","base_branch":"main"}`).
		refused(http.StatusForbidden, "denied by policy")
	if names, _ := c.tips(""); len(names) != 2 {
		t.Errorf("after refusals the branches are %v", names)
	}
	empty := c.as("empty")
	empty.create("").want(http.StatusCreated)
	empty.post(empty.door.CreateBranch, `{"target_branch":"x","base_branch":"main"}`).refused(http.StatusNotFound, "main")
}

func TestDeleteBranch(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	c.post(c.door.CreateBranch, `{"target_branch":"dev","base_branch":"dev","target_is_ephemeral":true}`).
		want(http.StatusCreated)
	c.post(c.door.CreateBranch, `{"target_branch":"main","base_branch":"dev","target_is_ephemeral":true}`).
		want(http.StatusCreated)

	c.bound("dev", refs.NoForcePush).remove(c.door.DeleteBranch, `{"name":"dev"}`).refused(http.StatusForbidden,
		"denied by policy")
	c.bound("*", refs.NoPush).remove(c.door.DeleteBranch, `{"name":"dev","ephemeral":true}`).refused(http.StatusForbidden,
		"denied by policy")
	// A pattern of branches binds no ephemeral one.
	got := c.bound("refs/heads/*", refs.NoPush).remove(c.door.DeleteBranch, `{"name":"dev","ephemeral":true}`).
		want(http.StatusOK)
	var deleted struct {
		Name, Message string
		Ephemeral     *bool
	}
	got.decode(&deleted)
	if deleted.Name != "dev" || deleted.Message == "" || deleted.Ephemeral == nil || !*deleted.Ephemeral ||
		got.Header.Get("X-Repo-Sequence") == "" {
		t.Errorf("answer is %s with %v", got.Body, got.Header)
	}
	c.remove(c.door.DeleteBranch, `{"name":"dev"}`).want(http.StatusOK).decode(&deleted)
	if *deleted.Ephemeral {
		t.Errorf("deleted %+v", deleted)
	}
	// The default branch is one of the main namespace only.
	c.remove(c.door.DeleteBranch, `{"name":"main","ephemeral":true}`).want(http.StatusOK)

	tests := map[string]struct {
		body   string
		status int
		says   string
	}{
		"no body":            {``, 400, "JSON object"},
		"no name":            {`{}`, 400, "name is required"},
		"wrong type":         {`{"name":["dev"]}`, 400, "name"},
		"bad name":           {`{"name":"a..b"}`, 400, "name"},
		"full ref":           {`{"name":"refs/heads/dev"}`, 400, "refs/"},
		"gone":               {`{"name":"dev"}`, 404, "dev"},
		"gone and ephemeral": {`{"name":"dev","ephemeral":true}`, 404, "dev"},
		"default branch":     {`{"name":"main"}`, 409, "default branch"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &client{t: t, door: c.door, grant: c.grant}
			c.remove(c.door.DeleteBranch, test.body).refused(test.status, test.says)
		})
	}
	c.as("nope").remove(c.door.DeleteBranch, `{"name":"dev"}`).refused(http.StatusNotFound, "nope")
	if names, _ := c.tips(""); len(names) != 1 {
		t.Errorf("branches are %v, want main alone", names)
	}
}
