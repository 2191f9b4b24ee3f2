package remote_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/engine/upstream/remote"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// described is how git would list the refs of an advertisement.
func described(ad *remote.Advertisement) string {
	var out strings.Builder
	for _, ref := range ad.Refs {
		peeled := ""
		if !ref.Peeled.IsZero() {
			peeled = ref.Peeled.String()
		}
		fmt.Fprintf(&out, "%s %s %s\n", ref.ID, ref.Name, peeled)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func TestRefs(t *testing.T) {
	t.Parallel()
	repo := oracle.New(t)
	tip := repo.Seed(oracle.History{Seed: 3, Commits: 10, Tags: true})
	repo.Git("tag", "-a", "-m", "annotated", "v-annotated", "main")
	repo.Git("tag", "-a", "-m", "nested", "v-nested", "v-annotated")
	unlisted := "refs/heads/" + strings.Repeat("ab", 20)
	var packed strings.Builder // as git keeps them, because making so many files takes long
	for i := range 2000 {
		fmt.Fprintf(&packed, "%s refs/heads/many/%04d\n", tip, i)
	}
	for _, name := range []string{"refs/notes/commits", "refs/namespaces/a/refs/heads/b", unlisted} {
		fmt.Fprintf(&packed, "%s %s\n", tip, name)
	}
	if err := os.WriteFile(filepath.Join(repo.Dir, "packed-refs"), []byte(packed.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	repo.Git("symbolic-ref", "HEAD", "refs/heads/many/0007")
	const format = "--format=%(objectname) %(refname) %(*objectname)"
	for _, version := range versions {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			repo := oracle.Open(t, repo.Dir)
			r := serve(t, repo, version, "").remote()
			for _, prefixes := range [][]string{nil, {"refs/heads/", "refs/tags/"}, {"refs/tags/"}, {"refs/none/"}} {
				var want []string
				for line := range strings.Lines(repo.Git(append([]string{"for-each-ref", format}, prefixes...)...)) {
					if !strings.Contains(line, "refs/namespaces/") && !strings.Contains(line, unlisted) {
						want = append(want, peelOnce(t, repo, strings.TrimSuffix(line, "\n")))
					}
				}
				ad := list(t, r, prefixes...)
				if got := described(ad); got != strings.Join(want, "\n") {
					t.Errorf("%q: %d refs, want %d", prefixes, len(ad.Refs), len(want))
				}
				if ad.Head != "refs/heads/many/0007" || fmt.Sprint(ad.Version) != version {
					t.Errorf("%q: HEAD %q, version %d", prefixes, ad.Head, ad.Version)
				}
				if skipped := len(prefixes) != 1; (ad.Skipped == 1) != skipped {
					t.Errorf("%q: %d refs skipped", prefixes, ad.Skipped)
				}
			}
		})
	}
}

// peelOnce corrects what for-each-ref says about tags of tags: it peels once where the protocol
// peels to the end.
func peelOnce(t *testing.T, repo *oracle.Repository, line string) string {
	t.Helper()
	if strings.Contains(line, "refs/tags/v-nested ") {
		line = line[:len(line)-object.HexSize] + repo.Git("rev-parse", "v-nested^{}")
	}
	return line
}

func TestRefsOfEmptyRepository(t *testing.T) {
	t.Parallel()
	repo := oracle.New(t)
	repo.Git("symbolic-ref", "HEAD", "refs/heads/unborn")
	for _, version := range versions {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			ad := list(t, serve(t, oracle.Open(t, repo.Dir), version, "").remote())
			want := "" // the older versions do not tell
			if version == "2" {
				want = "refs/heads/unborn"
			}
			if len(ad.Refs) != 0 || ad.Head != want {
				t.Errorf("refs %v, HEAD %q", ad.Refs, ad.Head)
			}
		})
	}
}
