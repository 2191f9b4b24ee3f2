package engine_test

import (
	"bytes"
	"errors"
	"testing"

	"packhorse/engine"
	"packhorse/engine/archive"
	"packhorse/engine/enginetest"
	"packhorse/engine/pathspec"
	"packhorse/fuzz/oracle"
)

// TestArchive archives the targets of refs, and checks that refusals come before the first byte.
func TestArchive(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 7, Tags: true})
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	for ref, revision := range map[string]string{
		"": "main", "main": "main", "v9": "v9", git.Git("rev-parse", "main~7"): "main~7",
	} {
		a, err := repo.Archive(t.Context(), engine.ArchiveRequest{Ref: ref, Prefix: "p/"})
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := errors.Join(a.WriteTar(t.Context(), &got), a.Close()); err != nil {
			t.Fatal(err)
		}
		if want := git.Input(nil, "archive", "--format=tar", "--prefix=p/", revision); !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%q: another archive than that of git", ref)
		}
	}
	for name, test := range map[string]struct {
		request engine.ArchiveRequest
		err     error
	}{
		"a prefix that leads out": {engine.ArchiveRequest{Prefix: "../"}, archive.ErrPrefix},
		"a bad glob":              {engine.ArchiveRequest{Files: pathspec.Spec{Include: []string{"["}}}, pathspec.ErrInvalid},
		"no such ref":             {engine.ArchiveRequest{Ref: "nope"}, engine.ErrNotFound},
	} {
		if _, err := repo.Archive(t.Context(), test.request); !errors.Is(err, test.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
