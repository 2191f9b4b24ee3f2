package remote_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/engine/upstream/remote"
	"packhorse/fuzz/oracle"
)

// packOf writes a pack of what revisions reach, as git makes it.
func packOf(t *testing.T, repo *oracle.Repository, revisions ...string) func(io.Writer) error {
	t.Helper()
	data := repo.Input([]byte(strings.Join(revisions, "\n")+"\n"), "pack-objects", "--revs", "--stdout",
		"--delta-base-offset", "-q")
	return func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	}
}

func push(t *testing.T, r *remote.Remote, q remote.PushRequest) []remote.Result {
	t.Helper()
	results, err := r.Push(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestPush(t *testing.T) {
	t.Parallel()
	here := oracle.New(t)
	here.Seed(oracle.History{Seed: 4, Commits: 30})
	first, second := resolve(t, here, "main~10"), resolve(t, here, "main")
	there := oracle.New(t)
	server := serve(t, there, "2", "secret")
	r := server.remote()
	r.Authorize = password("user", "secret")
	steps := []struct {
		commands []remote.Command
		pack     func(io.Writer) error
	}{
		{[]remote.Command{{Name: "refs/heads/main", New: first}, {Name: "refs/heads/old", New: first}}, packOf(t, here,
			first.String())},
		{[]remote.Command{{Name: "refs/heads/main", Old: first, New: second}}, packOf(t, here, second.String(),
			"^"+first.String())},
		{[]remote.Command{{Name: "refs/heads/old", Old: first}}, nil},
		{[]remote.Command{{Name: "refs/tags/v1", New: second}}, packOf(t, here, second.String(), "^"+second.String())},
	}
	for i, step := range steps {
		for _, result := range push(t, r, remote.PushRequest{Commands: step.commands, Pack: step.pack}) {
			if result.Reason != "" {
				t.Errorf("step %d: %v", i, result)
			}
		}
	}
	want := second.String() + " refs/heads/main\n" + second.String() + " refs/tags/v1"
	if got := there.Git("for-each-ref", "--format=%(objectname) %(refname)"); got != want {
		t.Errorf("refs %s", got)
	}
	there.Git("fsck", "--strict", "--full")
	if server.chunked.Load() != 0 {
		t.Error("a small pack went in chunks")
	}
}

// TestPushLarge is a pack too long to be held: it goes as it is made.
func TestPushLarge(t *testing.T) {
	t.Parallel()
	here, there := oracle.New(t), oracle.New(t)
	blob := make([]byte, 3<<20)
	for i, state := 0, uint32(1); i < len(blob); i++ {
		state = state*1664525 + 1013904223
		blob[i] = byte(state >> 24)
	}
	tree := here.Input([]byte("100644 blob "+here.Write("blob", blob)+"\tfile\n"), "mktree")
	tip := parseID(t, here.Git("commit-tree", "-m", "large", strings.TrimSpace(string(tree))))
	server := serve(t, there, "2", "")
	results := push(t, server.remote(), remote.PushRequest{
		Commands: []remote.Command{{Name: "refs/heads/main", New: tip}}, Pack: packOf(t, here, tip.String()),
	})
	if len(results) != 1 || results[0].Reason != "" || server.chunked.Load() != 1 {
		t.Errorf("%v, %d requests in chunks", results, server.chunked.Load())
	}
	there.Git("fsck", "--strict", "--full")
}

// TestPushRefused is refs that the far side does not let us change, beside one that it does.
func TestPushRefused(t *testing.T) {
	t.Parallel()
	here, there := oracle.New(t), oracle.New(t)
	here.Seed(oracle.History{Seed: 4, Commits: 9})
	tip, old := resolve(t, here, "main"), resolve(t, here, "main~3")
	there.Git("fetch", "-q", here.Dir, "main:refs/heads/main", "main:refs/heads/keep")
	there.Git("config", "receive.denyDeletes", "true")
	there.Git("config", "receive.denyNonFastForwards", "true")
	hooks := filepath.Join(there.Dir, "hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	oracle.WriteScript(t, filepath.Join(hooks, "update"),
		"#!/bin/sh\nif [ \"$1\" = refs/heads/hooked ]; then echo not this one >&2; exit 1; fi\n")
	var progress bytes.Buffer
	results := push(t, serve(t, there, "2", "").remote(), remote.PushRequest{
		Commands: []remote.Command{
			{Name: "refs/heads/main", Old: tip, New: old},
			{Name: "refs/heads/keep", Old: tip},
			{Name: "refs/heads/hooked", New: tip},
			{Name: "refs/heads/stale", Old: old, New: tip},
			{Name: "refs/heads/new", New: tip},
		},
		Pack:     packOf(t, here, tip.String(), "^"+tip.String()),
		Progress: &progress,
	})
	want := map[string]string{
		"refs/heads/main": "non-fast-forward", "refs/heads/keep": "deletion prohibited", "refs/heads/hooked": "hook declined",
		"refs/heads/stale": "failed to update ref", "refs/heads/new": "",
	}
	if len(results) != len(want) {
		t.Fatalf("%v", results)
	}
	for _, result := range results {
		if reason := want[result.Name]; result.Reason != reason {
			t.Errorf("%s: %q, want %q", result.Name, result.Reason, reason)
		}
	}
	if !strings.Contains(progress.String(), "not this one") {
		t.Errorf("progress %q", progress.String())
	}
	if got := there.Git(
		"rev-parse", "main", "keep", "new",
	); got != strings.TrimSpace(strings.Repeat(tip.String()+"\n", 3)) {
		t.Errorf("refs %s", got)
	}
}

func TestPushOfBadPacks(t *testing.T) {
	t.Parallel()
	here, there := oracle.New(t), oracle.New(t)
	tip := parseID(t, here.Seed(oracle.History{Seed: 4, Commits: 3}))
	r := serve(t, there, "2", "").remote()
	command := []remote.Command{{Name: "refs/heads/main", New: tip}}
	broken := errors.New("broken")
	tests := map[string]struct {
		pack func(io.Writer) error
		err  error
	}{
		"no pack":    {func(w io.Writer) error { _, err := io.WriteString(w, "no pack"); return err }, remote.ErrRejected},
		"missing":    {packOf(t, here, tip.String(), "^"+tip.String()), nil},
		"fails":      {func(io.Writer) error { return broken }, broken},
		"ends early": {func(io.Writer) error { return io.ErrUnexpectedEOF }, io.ErrUnexpectedEOF},
	}
	for name, test := range tests {
		results, err := r.Push(t.Context(), remote.PushRequest{Commands: command, Pack: test.pack})
		// The far side may have refused the first part of a pack before the rest of it failed.
		if name == "fails later" && errors.Is(err, remote.ErrRejected) {
			continue
		}
		if !errors.Is(err, test.err) || test.err == nil && (err != nil || len(results) != 1 || results[0].Reason == "") {
			t.Errorf("%s: %v, %v", name, results, err)
		}
	}
	// One that fails when much of it has gone. The far side may have seen before that it is none.
	_, err := r.Push(t.Context(), remote.PushRequest{Commands: command, Pack: func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 4<<20)); err != nil {
			return err
		}
		return broken
	}})
	if !errors.Is(err, broken) && !errors.Is(err, remote.ErrRejected) && !errors.Is(err, remote.ErrUnavailable) {
		t.Errorf("fails later: %v", err)
	}
	if got := there.Git("for-each-ref"); got != "" {
		t.Errorf("refs %s", got)
	}
	results, err := r.Push(t.Context(), remote.PushRequest{})
	if err != nil || len(results) != 0 {
		t.Errorf("nothing to push: %v, %v", results, err)
	}
}
