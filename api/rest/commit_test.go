package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// commitOf is a commit in an answer.
type commitOf struct {
	Commit struct {
		SHA            string
		ParentSHAs     []string `json:"parent_shas"`
		Message        string
		AuthorName     string `json:"author_name"`
		AuthorEmail    string `json:"author_email"`
		CommitterName  string `json:"committer_name"`
		CommitterEmail string `json:"committer_email"`
		Date           string
		Signature      *string
		Payload        *string
	}
}

// pushed is a repository with one commit, made of its stored bytes without the line of its tree.
func pushed(t *testing.T, stored string) (*client, string) {
	t.Helper()
	host := enginetest.Open(t)
	git := oracle.New(t)
	git.Write("tree", nil)
	id := git.Write("commit", []byte("tree "+object.EmptyTreeID.String()+"\n"+stored))
	tip, err := object.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Push(t, enginetest.Create(t, host, "r"), git.Input([]byte(id+"\n"), "pack-objects", "--revs", "--stdout",
		"-q"),
		engine.Command{Name: "refs/heads/main", New: tip})
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: host})
	return c, id
}

func TestCommit(t *testing.T) {
	t.Parallel()
	const (
		people    = "author \u00c4da <a@x> 1000000000 +0200\ncommitter Bob <b@x> 1100000000 -0300\n"
		date      = "2004-11-09T11:33:20Z"
		armor     = "-----BEGIN SSH SIGNATURE-----\n\nabc\n-----END SSH SIGNATURE-----"
		signature = "gpgsig -----BEGIN SSH SIGNATURE-----\n \n abc\n -----END SSH SIGNATURE-----\n"
	)
	tree := "tree " + object.EmptyTreeID.String() + "\n"
	tests := map[string]struct {
		stored             string
		author, date       string
		message            string
		signature, payload string
	}{
		"plain": {
			stored: people + "\nsubject\n\nbody\n", author: "\u00c4da", date: date, message: "subject\n\nbody",
		},
		"no line end": {stored: people + "\nsubject", author: "\u00c4da", date: date, message: "subject"},
		"many line ends": {
			stored: people + "\n\nsubject\n\n\n", author: "\u00c4da", date: date, message: "\nsubject",
		},
		"no message": {stored: people + "\n", author: "\u00c4da", date: date},
		"signed":     {people + signature + "\nm\n", "\u00c4da", date, "m", armor, tree + people + "\nm\n"},
		"signed twice": {
			stored: people + signature + signature + "\nm\n", author: "\u00c4da", date: date, message: "m",
		},
		"Latin 1": {
			stored: "author \xc4da <a@x> 1 +0000\ncommitter B <b@x> 1100000000 +0000\nencoding ISO-8859-1\n\nf\xfcr\n",
			author: "\u00c4da", date: date, message: "f\u00fcr",
		},
		"no UTF-8": {
			stored: "author \xc4da <a@x> 1 +0000\ncommitter B <b@x> 1100000000 +0000\n\nf\xfcr\n", author: "\ufffdda",
			date: date, message: "f\ufffdr",
		},
		"signed, no UTF-8": {
			stored: people + signature + "\nf\xfcr\n", author: "\u00c4da", date: date, message: "f\ufffdr", signature: armor,
		},
		"a date beyond calendar": {
			stored: "author A <a@x> 1 +0000\ncommitter B <b@x> 99999999999999 +0000\n\nm\n", author: "A",
			date: "1970-01-01T00:00:00Z", message: "m",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, id := pushed(t, test.stored)
			var got commitOf
			c.call(c.door.Commit, http.MethodGet, "/?sha="+id, nil).want(http.StatusOK).decode(&got)
			told := got.Commit
			if told.SHA != id || told.AuthorName != test.author || told.Date != test.date || told.Message != test.message ||
				len(told.ParentSHAs) != 0 {
				t.Errorf("told %+v", told)
			}
			if told.Signature != nil != (test.signature != "") || told.Signature != nil && *told.Signature != test.signature {
				t.Errorf("signature is %v, want %q", told.Signature, test.signature)
			}
			if told.Payload != nil != (test.payload != "") || told.Payload != nil && *told.Payload != test.payload {
				t.Errorf("payload is %v, want %q", told.Payload, test.payload)
			}
			var listed struct {
				Commits []struct{ Message, Date string }
			}
			c.call(c.door.Commits, http.MethodGet, "/", nil).want(http.StatusOK).decode(&listed)
			if listed.Commits[0].Message != test.message || listed.Commits[0].Date != test.date {
				t.Errorf("listed as %+v", listed.Commits[0])
			}
		})
	}
}

func TestCommitRefused(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	get := func(sha string) answer { return c.call(c.door.Commit, http.MethodGet, "/?sha="+sha, nil) }
	for _, sha := range []string{"", "main", "abc", "xyzxyzxyz", strings.Repeat("1", 41)} {
		get(sha).refused(http.StatusBadRequest, "sha")
	}
	for _, sha := range []string{strings.Repeat("1", 40), strings.Repeat("1", 7), done[0].Commit.Tree} {
		get(sha).refused(http.StatusNotFound, sha)
	}
	var got commitOf
	get(strings.ToUpper(done[1].Commit.SHA[:8])).want(http.StatusOK).decode(&got)
	if got.Commit.SHA != done[1].Commit.SHA || len(got.Commit.ParentSHAs) != 1 ||
		got.Commit.ParentSHAs[0] != done[0].Commit.SHA {
		t.Errorf("by its first digits: %+v", got.Commit)
	}
	c.as("nope").call(c.door.Commit, http.MethodGet, "/?sha="+done[0].Commit.SHA, nil).refused(http.StatusNotFound, "nope")
}
