package rest_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/engine/enginetest"
)

// stored is the answer to a credential's creation or update.
type stored struct {
	ID        string
	CreatedAt string `json:"created_at"`
}

// vault is a client with the repositories "r" and "other", of a server with a secret key.
func vault(t *testing.T) (*client, *engine.Host) {
	t.Helper()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{SecretKey: bytes.Repeat([]byte{1}, credential.KeySize)})
	t.Cleanup(shut)
	c := &client{
		t: t, door: rest.New(rest.Config{Host: host}),
		grant: &auth.Grant{Org: enginetest.Org, Subject: "tester", Repo: "r", Scopes: auth.RepoWrite},
	}
	c.create("{}").want(http.StatusCreated)
	c.as("other").create("{}").want(http.StatusCreated)
	return c, host
}

// credential makes a call whose body names the repository.
func (c *client) credential(method, fields string, headers ...string) answer {
	c.t.Helper()
	return c.credentialAt(nil, method, fields, headers...)
}

// credentialAt makes a call whose path has parts.
func (c *client) credentialAt(parts map[string]string, method, fields string, headers ...string) answer {
	c.t.Helper()
	h := map[string]handler{
		http.MethodPost: c.door.CreateCredential, http.MethodPut: c.door.UpdateCredential,
		http.MethodDelete: c.door.DeleteCredential,
	}[method]
	return c.callAt(parts, h, method, "/api/v1/repos/git-credentials", strings.NewReader("{"+fields+"}"), headers...)
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	c, host := vault(t)
	repo, err := host.Repository(context.Background(), enginetest.Org, "r")
	if err != nil {
		t.Fatal(err)
	}
	holds := func(want credential.Login) {
		t.Helper()
		if got, err := repo.Credential(context.Background()); err != nil || got != want {
			t.Errorf("the credential is %q %q, %v", string(got.Username), string(got.Password), err)
		}
	}
	org := c.as("org")
	for name, who := range map[string]*client{"r": c, repo.Item().ID.String(): c, "by the organization": org} {
		id := name
		if who == org {
			id = "r"
		}
		var made, updated stored
		a := who.credential(http.MethodPost, fmt.Sprintf(`"repo_id":%q,"username":"u","password":"p1"`, id)).
			want(http.StatusCreated)
		a.decode(&made)
		if made.ID == "" || made.CreatedAt == "" || a.Header.Get("X-Repo-Sequence") == "" ||
			strings.Contains(string(a.Body), "p1") {
			t.Errorf("created %s", a.Body)
		}
		holds(credential.Login{Username: "u", Password: "p1"})
		who.credential(http.MethodPut, fmt.Sprintf(`"id":%q,"password":"p2"`, made.ID)).want(http.StatusOK).decode(&updated)
		if updated != made {
			t.Errorf("updated %+v, want %+v", updated, made)
		}
		holds(credential.Login{Password: "p2"})
		a = who.credential(http.MethodDelete, fmt.Sprintf(`"id":%q`, made.ID)).want(http.StatusNoContent)
		if len(a.Body) != 0 || a.Header.Get("X-Repo-Sequence") == "" {
			t.Errorf("deleted %s, %v", a.Body, a.Header)
		}
	}
}

// TestCredentialsErrors provokes the errors of docs/api.md, "Errors", and the rules for the repo
// claim.
func TestCredentialsErrors(t *testing.T) {
	t.Parallel()
	c, _ := vault(t)
	var made stored
	c.credential(http.MethodPost, `"repo_id":"r","password":"p"`).want(http.StatusCreated).decode(&made)
	id := fmt.Sprintf(`"id":%q`, made.ID)
	elsewhere := c.as("org")
	elsewhere.grant.Org = "elsewhere"
	unknown := fmt.Sprintf(`"id":%q`, strings.Repeat("0", len(made.ID)))
	tests := map[string]struct {
		got    answer
		status int
		says   string
	}{
		"create without repo_id": {
			c.credential(http.MethodPost, `"password":"p"`), http.StatusBadRequest, "repo_id is required",
		},
		"create without password": {
			c.credential(http.MethodPost, `"repo_id":"r"`), http.StatusBadRequest, "password is required",
		},
		"create, password no string": {
			c.credential(http.MethodPost, `"repo_id":"r","password":12345`), http.StatusBadRequest, `"password"`,
		},
		"create, no such repository": {
			c.credential(http.MethodPost, `"repo_id":"none","password":"p"`), http.StatusNotFound, "not found",
		},
		"create, the other repository": {
			c.credential(http.MethodPost, `"repo_id":"other","password":"p"`), http.StatusNotFound, "another repository",
		},
		"create, another organization": {
			elsewhere.credential(http.MethodPost, `"repo_id":"r","password":"p"`), http.StatusNotFound, "not found",
		},
		"create a second": {
			c.credential(http.MethodPost, `"repo_id":"r","password":"p"`), http.StatusConflict, "already has a credential",
		},
		"update without id": {
			c.credential(http.MethodPut, `"password":"p"`), http.StatusBadRequest, "id is required",
		},
		"update without password": {
			c.credential(http.MethodPut, id), http.StatusBadRequest, "password is required",
		},
		"update, unknown": {
			c.credential(http.MethodPut, unknown+`,"password":"p"`), http.StatusNotFound, "not found",
		},
		"update, no id": {
			c.credential(http.MethodPut, `"id":"x","password":"p"`), http.StatusNotFound, "not found",
		},
		"update, token of the other": {
			c.as("other").credential(http.MethodPut, id+`,"password":"p"`), http.StatusNotFound, "not found",
		},
		"update, another organization": {
			elsewhere.credential(http.MethodPut, id+`,"password":"p"`), http.StatusNotFound, "not found",
		},
		"delete without id": {c.credential(http.MethodDelete, ``), http.StatusBadRequest, "id is required"},
		"delete, unknown":   {c.credential(http.MethodDelete, unknown), http.StatusNotFound, "not found"},
		"delete, token of the other": {
			c.as("other").credential(http.MethodDelete, id), http.StatusNotFound, "not found",
		},
		"delete, from another organization": {elsewhere.credential(http.MethodDelete, id), http.StatusNotFound, "not found"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.got.t = t
			test.got.refused(test.status, test.says)
		})
	}
	c.credential(http.MethodDelete, id).want(http.StatusNoContent)
}

// TestCredentialsOfNamesake is about a repository whose name is the id of another one.
func TestCredentialsOfNamesake(t *testing.T) {
	t.Parallel()
	c, host := vault(t)
	repo, err := host.Repository(context.Background(), enginetest.Org, "r")
	if err != nil {
		t.Fatal(err)
	}
	id := repo.Item().ID.String()
	namesake := c.as(id)
	stored1 := fmt.Sprintf(`"repo_id":%q,"password":"p"`, id)
	namesake.credential(http.MethodPost, stored1).refused(http.StatusNotFound, "another repository")
	namesake.create("{}").want(http.StatusCreated)
	namesake.credential(http.MethodPost, stored1).refused(http.StatusNotFound, "another repository")
	var made stored
	c.as("org").credential(http.MethodPost, stored1).want(http.StatusCreated).decode(&made)
	if got, err := repo.Credential(context.Background()); err != nil || got.Password != "p" {
		t.Errorf("the repository of the id has the credential %v, %v", got, err)
	}
	of := fmt.Sprintf(`"id":%q,"password":"q"`, made.ID)
	namesake.credential(http.MethodPut, of).refused(http.StatusNotFound, "not found")
	namesake.credential(http.MethodDelete, of).refused(http.StatusNotFound, "not found")
	if got, err := repo.Credential(context.Background()); err != nil || got.Password != "p" {
		t.Errorf("the repository of the id has the credential %v, %v", got, err)
	}
}

func TestCredentialsWithoutKey(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("{}").want(http.StatusCreated)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		c.credential(method, `"repo_id":"r","id":"x","password":"p"`).refused(http.StatusServiceUnavailable, "no secret key")
	}
}

// TestCredentialsOnce sends each change again under its key.
func TestCredentialsOnce(t *testing.T) {
	t.Parallel()
	c, _ := vault(t)
	var made stored
	c.credential(http.MethodPost, `"repo_id":"r","password":"p"`, "Idempotency-Key", "1").want(http.StatusCreated).
		decode(&made)
	id := fmt.Sprintf(`"id":%q`, made.ID)
	for _, w := range []struct {
		method, fields, other string
		status                int
	}{
		{http.MethodPost, `"repo_id":"r","password":"p"`, `"repo_id":"r","password":"q"`, http.StatusCreated},
		{http.MethodPut, id + `,"password":"p"`, id + `,"password":"q"`, http.StatusOK},
		{http.MethodDelete, id, id + `,"x":1`, http.StatusNoContent},
	} {
		first := c.credential(w.method, w.fields, "Idempotency-Key", "1").want(w.status)
		again := c.credential(w.method, w.fields, "Idempotency-Key", "1").want(w.status)
		if string(first.Body) != string(again.Body) ||
			first.Header.Get("X-Repo-Sequence") != again.Header.Get("X-Repo-Sequence") {
			t.Errorf("%s: first %s, then %s", w.method, first.Body, again.Body)
		}
		c.credential(w.method, w.other, "Idempotency-Key", "1").refused(http.StatusConflict, "idempotency key")
	}
}

// TestCredentialsNamed makes the calls whose path names the repository and the credential.
func TestCredentialsNamed(t *testing.T) {
	t.Parallel()
	c, _ := vault(t)
	org := c.as("org")
	at := func(repo, id string) map[string]string { return map[string]string{"n": repo, "id": id} }
	var made stored
	c.credentialAt(at("r", ""), http.MethodPost, `"repo_id":"other","password":"p"`).
		refused(http.StatusBadRequest, "repo_id: the path names repository")
	c.credentialAt(at("none", ""), http.MethodPost, `"password":"p"`).refused(http.StatusNotFound, "not found")
	c.credentialAt(at("r", ""), http.MethodPost, `"repo_id":"r","password":"p"`).want(http.StatusCreated).decode(&made)
	org.credentialAt(at("other", ""), http.MethodPost, `"password":"p"`).want(http.StatusCreated)
	c.credentialAt(at("r", made.ID), http.MethodPut, ``).refused(http.StatusBadRequest, "password is required")
	c.credentialAt(at("r", made.ID), http.MethodPut, `"id":"x","password":"q"`).refused(http.StatusBadRequest, "id: ")
	org.credentialAt(at("other", made.ID), http.MethodPut, `"password":"q"`).refused(http.StatusNotFound, "not found")
	c.credentialAt(at("r", made.ID), http.MethodPut, `"password":"q"`).want(http.StatusOK)
	c.credentialAt(at("r", made.ID), http.MethodDelete, ``).want(http.StatusNoContent)
	c.credentialAt(at("r", made.ID), http.MethodDelete, ``).refused(http.StatusNotFound, "not found")
}
