package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// TestTagChains pushes tags of tags: a chain behind a ref may not be longer than the limit, and the
// limit also holds for tags that are readable by ID alone.
func TestTagChains(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	commit := git.Seed(oracle.History{Seed: 7, Commits: 1})
	chain := []string{commit}
	for i := range 101 {
		kind := "tag"
		if i == 0 {
			kind = "commit"
		}
		chain = append(chain,
			git.Write("tag", fmt.Appendf(nil, "object %s\ntype %s\ntag t%d\ntagger A <a@x> 1 +0000\n\nm\n", chain[i], kind, i)))
	}
	id := func(depth int) object.ID {
		parsed, err := object.ParseID(chain[depth])
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	host := enginetest.Open(t)
	repo := enginetest.Create(t, host, "r")
	pack := git.Input([]byte(strings.Join(chain, "\n")+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	push, err := repo.Receive(t.Context(), engine.Actor{Org: enginetest.Org}, engine.PushRequest{
		Pack: strings.NewReader(string(pack)),
		Commands: []engine.Command{
			{Name: "refs/heads/main", New: id(0)},
			{Name: "refs/tags/deep", New: id(100)},
			{Name: "refs/tags/deeper", New: id(101)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer push.Close()
	result, err := push.Finish(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.Commands[0].Err != nil || result.Commands[1].Err != nil {
		t.Errorf("a chain within the limit is refused: %v, %v", result.Commands[0].Err, result.Commands[1].Err)
	}
	if err := result.Commands[2].Err; err != engine.RefusedTagChain { //nolint:errorlint // it is that word in the report
		t.Errorf("a chain of 101 tags gives %v", err)
	}
	read := func(ref string) error {
		files, err := repo.Files(context.Background(), engine.FilesRequest{Namespace: refs.Main, Ref: ref})
		if err == nil {
			err = files.Close()
		}
		return err
	}
	if err := read("deep"); err != nil {
		t.Errorf("a tag behind 99 others: %v", err)
	}
	if err := read(chain[101]); err == nil ||
		!strings.Contains(err.Error(), "tag objects that lead from one to the next: more than the limit of 100") {
		t.Errorf("101 tags by their ID: %v", err)
	}
}
