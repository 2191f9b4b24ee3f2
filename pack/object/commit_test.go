package object_test

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

const (
	treeLine   = "tree " + hexA + "\n"
	parentLine = "parent " + hexB + "\n"
	authorLine = "author A U Thor <author@example.com> 1112911993 -0700\n"
	commitLine = "committer C O Mitter <committer@example.com> 1112912053 +0200\n"
)

// oddCommits are objects made by various tools that must be reproduced unchanged.
var oddCommits = map[string]string{
	"plain":                   treeLine + authorLine + commitLine + "\nsubject\n\nbody\n",
	"two parents":             treeLine + parentLine + parentLine + authorLine + commitLine + "\nmerge\n",
	"no trailing newline":     treeLine + authorLine + commitLine + "\nsubject",
	"empty message":           treeLine + authorLine + commitLine + "\n",
	"no empty line":           treeLine + authorLine + commitLine,
	"message begins in blank": treeLine + authorLine + commitLine + "\n\n\nsubject\n",
	"NUL in message":          treeLine + authorLine + commitLine + "\nsub\x00ject\n",
	"latin1":                  treeLine + authorLine + commitLine + "encoding ISO-8859-1\n\ngr\xfc\xdfe\n",
	"signature": treeLine + authorLine + commitLine +
		"gpgsig -----BEGIN PGP SIGNATURE-----\n \n abc=\n -----END PGP SIGNATURE-----\n\nx\n",
	"encoding behind gpgsig": treeLine + authorLine + commitLine + "gpgsig a\n b\nencoding latin1\n\nx\n",
	"two encodings":          treeLine + authorLine + commitLine + "encoding a\nencoding b\n\nx\n",
	"mergetag": treeLine + authorLine + commitLine + "mergetag object " + hexB +
		"\n type commit\n tag v1\n tagger T <t> 1 +0000\n \n message\n\nx\n",
	"mercurial":            treeLine + authorLine + commitLine + "HG:extra rebase_source:abc\nHG:rename a:b\n\nx\n",
	"header without value": treeLine + authorLine + commitLine + "alone\nspaced \n\nx\n",
	"odd zones":            treeLine + "author A <a> 1 +051800\ncommitter B <b> 2 -7\n\nx\n",
	"no zone":              treeLine + "author A <a> 1\ncommitter B <b> 2 \n\nx\n",
	"no name":              treeLine + "author <a@b> 1 +0000\ncommitter  <> 2 +0000\n\nx\n",
	"no space before date": treeLine + "author A <a>1 +0000\ncommitter B <b>2 +0000\n\nx\n",
	"brackets in name":     treeLine + "author A <x> <a@b> 1 +0000\ncommitter B > <b> 2 +0000\n\nx\n",
	"zero-padded date":     treeLine + "author A <a> 0001 +0000\ncommitter B <b> 2  +0000\n\nx\n",
	"negative date":        treeLine + "author A <a> -5 +0000\ncommitter B <b> 99999999999999999999 +0000\n\nx\n",
	"tab in line":          treeLine + "author A\t <a>\t1 +0000\ncommitter B <b> 2 +0000 \n\nx\n",
	"no author":            treeLine + commitLine + "\nx\n",
	"two authors":          treeLine + authorLine + authorLine + commitLine + "\nx\n",
	"no people":            treeLine + "\nx\n",
	"tree only":            treeLine,
	"parent behind author": treeLine + authorLine + parentLine + commitLine + "\nx\n",
	"upper-case tree":      "tree " + strings.ToUpper(hexA) + "\n" + authorLine + commitLine + "\nx\n",
	"header cut off":       treeLine + authorLine + "committer B <b> 2 +0000",
	"continuation cut off": treeLine + authorLine + commitLine + "gpgsig a\n b",
	"CR LF":                treeLine + "author A <a> 1 +0000\r\ncommitter B <b> 2 +0000\r\n\r\nx\r\n",
}

func TestCommitRoundTrip(t *testing.T) {
	t.Parallel()
	for name, data := range oddCommits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := object.ParseCommit([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(c.Append([]byte("x"))); got != "x"+data {
				t.Errorf("got  %q\nwant %q", got, "x"+data)
			}
			tree, parents, _, err := object.CommitLinks([]byte(data))
			if err != nil || tree != c.Tree || !reflect.DeepEqual(parents, c.Parents) {
				t.Errorf("links %s %v, %v", tree, parents, err)
			}
		})
	}
}

func TestParseCommit(t *testing.T) {
	t.Parallel()
	data := treeLine + parentLine + authorLine + commitLine + "encoding latin1\ngpgsig a\n \n c\n\nsubject\n"
	got, err := object.ParseCommit([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	want := &object.Commit{
		Tree: mustID(t, hexA), Parents: []object.ID{mustID(t, hexB)},
		Author:    object.Signature{Name: "A U Thor", Email: "author@example.com", Seconds: 1112911993, Zone: "-0700"},
		Committer: object.Signature{Name: "C O Mitter", Email: "committer@example.com", Seconds: 1112912053, Zone: "+0200"},
		Encoding:  "latin1", Extra: []object.Header{{Name: "gpgsig", Value: "a\n\nc"}}, Message: "subject\n",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseCommitMalformed(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"empty":     "",
		"no tree":   authorLine + commitLine + "\nx\n",
		"bad tree":  "tree " + hexA[1:] + "x\n",
		"long tree": "tree " + hexA + "0\n",
		"cut off":   "tree " + hexA,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := object.ParseCommit([]byte(data)); !errors.Is(err, object.ErrMalformed) {
				t.Errorf("ParseCommit: error %v", err)
			}
			if _, _, _, err := object.CommitLinks([]byte(data)); !errors.Is(err, object.ErrMalformed) {
				t.Errorf("CommitLinks: error %v", err)
			}
		})
	}
}

func TestChangedCommitIsWrittenInOrder(t *testing.T) {
	t.Parallel()
	c, err := object.ParseCommit([]byte(oddCommits["encoding behind gpgsig"]))
	if err != nil {
		t.Fatal(err)
	}
	c.Message = "y\n"
	want := treeLine + authorLine + commitLine + "encoding latin1\ngpgsig a\n b\n\ny\n"
	if got := string(c.Append(nil)); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestCommitDateAgreesWithGit compares the date that orders history with git's, on commits that git
// can read at all.
func TestCommitDateAgreesWithGit(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	// For misplaced people git's log shows a date that its walks do not use; Check refuses such
	// commits, and one that is a tree line only.
	outOfPlace := map[string]bool{"two authors": true, "parent behind author": true, "no author": true}
	for name, data := range oddCommits {
		if name == "tree only" {
			continue
		}
		id := r.Write("commit", []byte(data))
		out, err := r.Try(nil, "log", "-1", "--no-walk", "--format=%ct%n%cn%n%ce%n%an%n%ae%n%at", id)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		lines := strings.Split(string(out), "\n")
		_, _, seconds, err := object.CommitLinks([]byte(data))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c, err := object.ParseCommit([]byte(data))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// A date that does not fit is 0 here and the largest of all there.
		if want, err := strconv.ParseInt(lines[0], 10, 64); err == nil && seconds != want && !outOfPlace[name] {
			t.Errorf("%s: committer date %d, git has %s", name, seconds, lines[0])
		}
		if c.Committer.Name != lines[1] || c.Committer.Email != lines[2] {
			t.Errorf("%s: committer %q %q, git has %q %q", name, c.Committer.Name, c.Committer.Email, lines[1], lines[2])
		}
		if c.Author.Name != lines[3] || c.Author.Email != lines[4] {
			t.Errorf("%s: author %q %q, git has %q %q", name, c.Author.Name, c.Author.Email, lines[3], lines[4])
		}
	}
}
