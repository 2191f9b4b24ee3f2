package main_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/api/audit"
)

// operated is what repos prints of a repository, a line each.
type operated struct {
	Org     string
	ID      string `json:"repo_id"`
	Name    string `json:"repo_name"`
	Branch  string `json:"default_branch"`
	Stored  *int64 `json:"stored_bytes"`
	Objects int64
	Refs    int64
	Written string `json:"last_write"`
	By      string `json:"deleted_by"`
	Gone    string `json:"purge_at"`
}

// operator runs packhorse repos as the operator of a folder.
type operator struct {
	t     *testing.T
	flags []string
}

func (o *operator) run(command string, args ...string) result {
	o.t.Helper()
	return packhorse(o.t, nil, slices.Concat([]string{"repos", command}, args, o.flags)...)
}

// lines runs a command that succeeds, and returns what it printed, by organization and name.
func (o *operator) lines(command string, args ...string) (names []string, all []operated) {
	o.t.Helper()
	got := o.run(command, args...)
	if got.status != 0 {
		o.t.Fatalf("%s %q: %+v", command, args, got)
	}
	for line := range strings.Lines(got.out) {
		var one operated
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			o.t.Fatalf("%s: %v", line, err)
		}
		names, all = append(names, one.Org+"/"+one.Name), append(all, one)
	}
	return names, all
}

// says runs a command that ends with a status, and looks for a text in what it prints.
func (o *operator) says(status int, want, command string, args ...string) {
	o.t.Helper()
	if got := o.run(command, args...); got.status != status || !strings.Contains(got.out+got.errOut, want) {
		o.t.Errorf("%s %q: %+v, want %d and %q", command, args, got, status, want)
	}
}

// lists looks at the names of a listing.
func (o *operator) lists(want []string, args ...string) {
	o.t.Helper()
	if got, _ := o.lines("list", args...); !slices.Equal(got, want) {
		o.t.Errorf("list %q: %q, want %q", args, got, want)
	}
}

// operate does all that an operator can do, to the repository acme/web/site with a branch main, and
// leaves it as it was.
func (o *operator) operate() {
	o.t.Helper()
	acme := []string{"--org", "acme"}
	on := func(args ...string) []string { return append(args, acme...) }
	o.lists([]string{"acme/web/site", "acme/other", "beta/web/site"})
	o.lists([]string{"acme/web/site", "acme/other"}, acme...)
	o.lists([]string{"acme/web/site", "beta/web/site"}, "SITE")
	o.lists(nil, "--org", "nobody")
	o.lists(nil, "--deleted")

	_, all := o.lines("list", acme...)
	_, shown := o.lines("show", on("web/site")...)
	site := shown[0]
	if site.ID != all[0].ID || site.Org != "acme" || site.Branch != "main" || site.Objects != 3 || site.Refs != 1 ||
		*site.Stored == 0 || *site.Stored != *all[0].Stored || site.Written == "" || site.Written != all[0].Written {
		o.t.Errorf("shown %+v, listed %+v", site, all[0])
	}

	o.says(1, `organization acme: repository "absent" not found`, "show", on("absent")...)
	o.says(1, `repository "absent" not found`, "rename", on("absent", "a")...)
	o.says(1, `repository "absent" not found`, "delete", on("absent")...)
	o.says(1, `no repository was called "absent"`, "undelete", on("absent")...)
	o.says(1, `repository "web/site" not found`, "delete", "web/site", "--org", "nobody")
	o.says(1, "other", "rename", on("web/site", "other")...)
	o.says(1, `branch "trunk" not found`, "set-default", on("web/site", "trunk")...)
	o.says(1, "a..b", "set-default", on("web/site", "a..b")...)
	o.says(2, "../x", "rename", on("web/site", "../x")...)

	o.says(0, "the default branch of other is trunk\n", "set-default", on("other", "trunk")...)
	if _, all := o.lines("show", on("other")...); all[0].Branch != "trunk" {
		o.t.Errorf("after set-default: %+v", all[0])
	}
	o.says(0, "", "set-default", on("other", "main")...)
	o.says(0, "renamed web/site to web/home\n", "rename", on("web/site", "web/home")...)
	o.lists([]string{"acme/web/home", "acme/other", "beta/web/site"})
	o.says(0, "deleted web/home, which was "+site.ID+"; undelete brings it back until ", "delete",
		on("web/home", "--subject", "jo")...)
	o.says(1, `repository "web/home" has been deleted already`, "delete", on("web/home")...)
	names, all := o.lines("list", "--deleted")
	if !slices.Equal(names, []string{"acme/web/home"}) || all[0].ID != site.ID || all[0].By != "operator: jo" ||
		all[0].Gone == "" || *all[0].Stored != *site.Stored {
		o.t.Errorf("deleted: %+v", all)
	}
	o.lists(nil, "--deleted", "--org", "beta")
	o.says(1, "exists", "undelete", on("web/home", "--as", "other")...)
	o.says(1, `repository "other" exists; the ID says which deleted one of that name is meant`, "undelete", on("other")...)
	o.says(0, site.ID+" is back, as web/site\n", "undelete", on("web/home", "--id", site.ID, "--as", "web/site")...)
	o.lists([]string{"acme/other", "acme/web/site", "beta/web/site"})
	// The listing has what came back last: the others come back, too.
	o.says(0, "", "delete", on("other")...)
	o.says(0, "", "undelete", on("other")...)
}

// TestReposOperator works as the operator through a server, and then without one.
func TestReposOperator(t *testing.T) {
	t.Parallel()
	a := startAuditing(t, t.TempDir())
	if err := a.AddOrg(t.Context(), "beta"); err != nil {
		t.Fatal(err)
	}
	a.reload(t)
	commit(t, a.Server, create(t, a.Server, "web/site"), 1, 100)
	create(t, a.Server, "other")
	token, err := a.Token(t.Context(), "web/site", "--org", "beta", "--scope", "repo:write")
	if err != nil {
		t.Fatal(err)
	}
	if status, text := call(t, http.DefaultClient, "POST", a.URL+"/api/v1/repos", token); status != http.StatusCreated {
		t.Fatal(status, text)
	}
	data := filepath.Join(a.dir, "data")
	o := &operator{t, []string{"--data", data}}
	o.operate()

	limit := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(a.OrgDir(), "org.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// What the operator does is bound by the organization's number of repositories, and the API tells
	// of it.
	limit("limits: {repositories: 1}\n")
	a.reload(t)
	o.says(0, "", "delete", "other", "--org", "acme")
	o.says(1, "limit", "undelete", "other", "--org", "acme")
	got := packhorse(t, nil, append([]string{"repos", "list", "--deleted"}, apiArgs(a.Server, a.URL)...)...)
	if got.status != 0 || strings.Count(got.out, "\n") != 1 || !strings.Contains(got.out, `"deleted_by":"operator"`) ||
		strings.Contains(got.out, `"org"`) {
		t.Errorf("the API lists %+v", got)
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	o.says(1, "limit", "undelete", "other", "--org", "acme", "--orgs", filepath.Dir(a.OrgDir()))
	o.says(0, " is back, as other\n", "undelete", "other", "--org", "acme")
	for _, part := range []string{"task=repos-delete", `\"Subject\":\"jo\"`} {
		if !strings.Contains(a.Output(), part) {
			t.Errorf("the log does not have %s", part)
		}
	}
	all, _ := records(t, a.path)
	checkOperated(t, all)

	path := filepath.Join(a.dir, "tasks.jsonl")
	o.flags = append(o.flags, "--audit", path, "--log-level", "warn")
	o.operate()
	all, _ = records(t, path)
	checkOperated(t, all)
	o.flags = []string{"--data", t.TempDir()}
	o.says(2, "contains no store", "list")
}

// checkOperated looks for the changes of [operator.operate] among the records of an audit log.
func checkOperated(t *testing.T, all []audit.Record) {
	t.Helper()
	type act struct {
		action, org, repo, sub string
		status                 int
	}
	var found []act
	for _, r := range all {
		if r.Via == audit.Admin {
			found = append(found, act{r.Action, r.Organization, r.Repository, r.Subject, r.Status})
		}
	}
	for _, want := range []act{
		{"repos-list", "", "", "operator", 200},
		{"repos-show", "acme", "web/site", "operator", 200},
		{"repos-delete", "nobody", "web/site", "operator", 500},
		{"repos-set-default", "acme", "other", "operator", 200},
		{"repos-rename", "acme", "web/site", "operator", 200},
		{"repos-delete", "acme", "web/home", "operator: jo", 200},
		{"repos-undelete", "acme", "web/home", "operator", 200},
	} {
		if !slices.Contains(found, want) {
			t.Errorf("no record %+v among %+v", want, found)
		}
	}
}

// TestReposWays gives flags that mean nothing together.
func TestReposWays(t *testing.T) {
	t.Parallel()
	folder, key := t.TempDir(), write(t, "k.pem", "no key")
	server := []string{"--url", "http://127.0.0.1:1", "--org", "acme", "--key", key}
	for name, test := range map[string]struct {
		env, args []string
		want      string
	}{
		"neither": {args: []string{"list", "--org", "acme"}, want: "want one of --url"},
		"both":    {args: append([]string{"list", "--data", folder}, server...), want: "want one of --url"},
		"both, from the environment": {
			env: []string{"PACKHORSE_URL=http://127.0.0.1:1", "PACKHORSE_DATA=" + folder}, args: []string{"list"}, want: "want one of --url",
		},
		"no key":                  {args: []string{"list", "--url", "http://127.0.0.1:1"}, want: "missing flags: --key=PRIVATE.pem, --org=NAME"},
		"no organization":         {args: []string{"show", "a", "--data", folder}, want: "missing flags: --org=NAME"},
		"a key for a folder":      {args: []string{"list", "--data", folder, "--key", key}, want: "--key: goes with --url, and means nothing with --data"},
		"a key's ID for a folder": {args: []string{"list", "--data", folder, "--kid", "a"}, want: "--kid: goes with --url"},
		"a wait for the API":      {args: append([]string{"list", "--wait", "1s"}, server...), want: "--wait: goes with --data, and means nothing with --url"},
		"memory for the API":      {args: append([]string{"list", "--memory", "1GiB"}, server...), want: "--memory: goes with --data"},
		"typed before the environment": {
			env: []string{"PACKHORSE_URL=http://127.0.0.1:1", "PACKHORSE_KEY=" + key}, args: []string{"list", "--data", folder},
			want: "contains no store",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := packhorse(t, test.env, append([]string{"repos"}, test.args...)...)
			if got.status != 2 || got.out != "" || !strings.Contains(got.errOut, test.want) {
				t.Errorf("%+v, want status 2 and %q", got, test.want)
			}
		})
	}
}
