package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/engine/patch"
	"packhorse/engine/patch/patchtest"
	"packhorse/fuzz/oracle"
)

// TestPatchesThroughServer posts patches of a generated history, and mutated ones, to a server on
// the loopback.
func TestPatchesThroughServer(t *testing.T) {
	t.Parallel()
	count := 150
	if testing.Short() {
		count = 40
	}
	git := oracle.New(t)
	git.Evolve(rand.New(rand.NewPCG(200, 4)), nil, 60)
	s := newPatchServer(t, git)
	patchtest.Histories(t, git, s.apply, count)
	patchtest.Mutations(t, git, s.apply, 2, count)
}

// TestPatchesOfRepository does the same with patches of a real repository; PACKHORSE_REAL_COUNT is
// how many of each kind are tried.
func TestPatchesOfRepository(t *testing.T) {
	t.Parallel()
	git, count := oracle.Real(t), oracle.RealCount(t, 1000)
	s := newPatchServer(t, git)
	patchtest.Histories(t, git, s.apply, count)
	patchtest.Mutations(t, git, s.apply, 1, count)
}

// patchServer is a server with a repository of git's as "patches".
type patchServer struct {
	*writable
	commits map[string]string // by the tree that they hold
	count   atomic.Int64      // of patches
}

func newPatchServer(t *testing.T, git *oracle.Repository) *patchServer {
	t.Helper()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{})
	t.Cleanup(shut)
	branches := git.Git("for-each-ref", "--format=%(objectname)", "refs/heads")
	packed := git.Input([]byte(branches+"\n"), "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset")
	enginetest.Push(t, enginetest.Create(t, host, "patches"), packed,
		engine.Command{Name: "refs/heads/main", New: parsedID(git.Git("rev-list", "--max-count=1", "--branches"))})
	s := &patchServer{writable: newWritableOn(t, host), commits: map[string]string{}}
	for line := range strings.Lines(git.Git("log", "--branches", "--format=%H %T")) {
		id, tree, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.commits[tree] = id
	}
	return s
}

// apply makes a branch of a commit that holds the tree base, or a repository when base is the empty
// tree, and posts the patch to it.
func (s *patchServer) apply(tb testing.TB, text []byte, base string) patchtest.Verdict {
	tb.Helper()
	number := s.count.Add(1)
	repo, branch := "patches", fmt.Sprintf("p%d", number)
	create := call{"POST " + v1 + "/branches/create", repo, fmt.Sprintf(`{"target_branch":%q,"base_ref":%q}`, branch,
		s.commits[base])}
	if base == oracle.EmptyTree {
		repo, branch = branch, "main"
		create = call{"POST " + v1, repo, ""}
	}
	if answer := s.do(create, nil); answer.status != http.StatusCreated {
		tb.Errorf("%s: %d %s", create.route, answer.status, answer.body)
	}
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	metadata := map[string]any{
		"target_branch": branch, "commit_message": "m", "author": map[string]string{"name": "A", "email": "a@example.com"},
	}
	if err := lines.Encode(map[string]any{"metadata": metadata}); err != nil {
		tb.Error(err)
	}
	chunkBytes := 1 + int(number*977)%(1<<20) // each patch is cut otherwise
	for eof := false; !eof; {
		size := min(chunkBytes, len(text))
		eof = size == len(text)
		if err := lines.Encode(map[string]any{"diff_chunk": map[string]any{"data": text[:size], "eof": eof}}); err != nil {
			tb.Error(err)
		}
		text = text[size:]
	}
	return verdictOf(tb, s.do(call{"POST " + v1 + "/diff-commit", repo, body.String()}, nil))
}

// verdictOf reads an answer to diff-commit.
func verdictOf(tb testing.TB, answer written) patchtest.Verdict {
	tb.Helper()
	var told struct {
		Error  string
		Commit struct {
			Tree string `json:"tree_sha"`
		}
		Result struct {
			Success bool
			Status  string
		}
	}
	if err := json.Unmarshal(answer.body, &told); err != nil {
		tb.Errorf("%v in %s", err, answer.body)
	}
	if answer.status == http.StatusCreated {
		if !told.Result.Success || told.Result.Status != "ok" {
			tb.Errorf("a commit is told as %s", answer.body)
		}
		return patchtest.Verdict{Tree: told.Commit.Tree}
	}
	v := patchtest.Verdict{Refusal: told.Error}
	switch word := told.Result.Status; {
	case word == "conflict":
	case word == "precondition_failed":
		v.Err = patch.ErrEmpty
	case word == "invalid" && strings.HasPrefix(told.Error, "line "):
		v.Err = patch.ErrMalformed
	case word == "invalid" && strings.HasPrefix(told.Error, "path "):
		v.Err = commit.ErrInvalid
	}
	if answer.status != http.StatusBadRequest || told.Error == "" || told.Result.Success {
		tb.Errorf("status %d: %s", answer.status, answer.body)
	}
	return v
}
