package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/grep"
	"packhorse/engine/pathspec"
	"packhorse/pack/object"
)

// A search goes on in the commit that it began with, and its cursor is of no other search.
func TestGrepCursor(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	if _, err := upload(
		repo, acme, main, change{path: "a", content: "x\n"}, change{path: "b", content: "x\n"},
	); err != nil {
		t.Fatal(err)
	}
	request := engine.GrepRequest{Pattern: "x", FilesMax: 1}
	first, err := repo.Grep(t.Context(), request)
	if err != nil || first.Next == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := upload(
		repo, acme, main, change{path: "b", content: "gone\n"}, change{path: "c", content: "x\n"},
	); err != nil {
		t.Fatal(err)
	}
	request.Cursor = first.Next
	second, err := repo.Grep(t.Context(), request)
	if err != nil || second.Next != "" || len(second.Files) != 1 || second.Files[0].Path != "b" ||
		second.Revision.Commit != first.Revision.Commit {
		t.Errorf("%+v, %v", second, err)
	}
	for name, other := range map[string]engine.GrepRequest{
		"pattern":   {Pattern: "y", Cursor: first.Next},
		"case":      {Pattern: "x", IgnoreCase: true, Cursor: first.Next},
		"files":     {Pattern: "x", Files: pathspec.Spec{Paths: []string{"b"}}, Cursor: first.Next},
		"context":   {Pattern: "x", After: 1, Cursor: first.Next},
		"nonsense":  {Pattern: "x", Cursor: "nonsense"},
		"truncated": {Pattern: "x", Cursor: first.Next[:30]},
	} {
		if _, err := repo.Grep(t.Context(), other); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

func TestGrepRefuses(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	if _, err := upload(repo, acme, main, change{
		path: "a", content: strings.Repeat("ab", 1<<20),
	}, change{path: "l", content: "a", mode: object.ModeSymlink}); err != nil {
		t.Fatal(err)
	}
	for pattern, kind := range map[string]error{
		"(": grep.ErrPattern, `\1`: grep.ErrPattern, "(?<=a)b": grep.ErrPattern, "a{1001}": grep.ErrPattern,
		"((a{100}){10}b?){9}":     grep.ErrPattern,
		strings.Repeat("a", 5000): grep.ErrPattern, "[a-z]{1000}|[0-9]{1000}": nil,
	} {
		if _, err := repo.Grep(t.Context(), engine.GrepRequest{Pattern: pattern}); !errors.Is(err, kind) {
			t.Errorf("%.40q: %v", pattern, err)
		}
	}
	if _, err := repo.Grep(t.Context(), engine.GrepRequest{Pattern: "a", Ref: "nope"}); !errors.Is(err,
		engine.ErrNotFound) {
		t.Errorf("no such ref: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := repo.Grep(ended, engine.GrepRequest{Pattern: "b.*c"}); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits: %v", err)
	}
}
