package repack_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// hashed are the trigrams that the tests store: a hash of the text, nothing for an empty one.
func hashed(text []byte) []byte {
	if len(text) == 0 {
		return nil
	}
	return fmt.Appendf(nil, "%x", sha256.Sum256(text))
}

// TestTrigramsOfNewestFiles holds that the files of the newest heads have trigrams, each the right
// ones, and no other file; that a rewrite reads none again; and that a later segment has only those
// of its new files.
func TestTrigramsOfNewestFiles(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 91, CommitCount: 80})
	var calls atomic.Int64
	h := odbtest.NewPool(t, odb.Options{
		Limits: odb.Limits{HotCount: 1}, TrigramBytes: 1, Trigrams: func(text []byte) []byte {
			calls.Add(1)
			return hashed(text)
		},
	})
	newest := g.Commits()[0]
	older := g.IDs("", "rev-parse", newest.String()+"~2")[0]
	h.PushGit(g, older.String()+"\n")
	h.BuildTrigrams()
	h.Fsck()
	checkTrigrams(t, g, h, older)
	first := calls.Load()
	h.BuildTrigrams()
	if again := calls.Load() - first; first == 0 || again != 0 {
		t.Errorf("%d files were read, %d by a second call", first, again)
	}
	h.PushGit(g, newest.String()+"\n^"+older.String()+"\n")
	h.BuildTrigrams()
	h.Fsck()
	checkTrigrams(t, g, h, newest)
	second := calls.Load()
	if got, all := int(second-first), len(filesOf(g, newest)); got >= all {
		t.Errorf("%d files were read for a later segment, of %d", got, all)
	}
	if done := h.CompactAll(false); done.LayerCount != 2 {
		t.Fatalf("%d layers were rewritten", done.LayerCount)
	}
	h.Fsck()
	checkTrigrams(t, g, h, newest)
	if again := calls.Load() - second; again != 0 {
		t.Errorf("%d files were read for a rewrite", again)
	}
}

// filesOf returns the regular files of a commit.
func filesOf(g *odbtest.Repository, commit object.ID) map[object.ID]struct{} {
	files := make(map[object.ID]struct{})
	for line := range strings.Lines(g.Git("ls-tree", "-r", commit.String())) {
		fields := strings.Fields(line)
		id, err := object.ParseID(fields[2])
		if err == nil && strings.HasPrefix(fields[0], "100") {
			files[id] = struct{}{}
		}
	}
	return files
}

// checkTrigrams holds the trigrams of all blobs against their content. Those of the files of the
// commit are known.
func checkTrigrams(t *testing.T, g *odbtest.Repository, h *odbtest.Pool, commit object.ID) {
	t.Helper()
	v := h.View()
	trigrams, err := v.OpenTrigrams(t.Context())
	odbtest.Must(t, err)
	defer trigrams.Close()
	files := filesOf(g, commit)
	for _, id := range g.All() {
		got, err := trigrams.Find(t.Context(), id)
		odbtest.Must(t, err)
		_, isFile := files[id]
		if len(got) == 0 && !isFile {
			continue
		}
		kind, data, err := v.Read(t.Context(), id)
		odbtest.Must(t, err)
		if want := hashed(data); kind != object.TypeBlob || string(got) != string(want) {
			t.Errorf("trigrams of %s %s: %q, want %q", kind, id, got, want)
		}
	}
}

// TestTrigramsOfFewFiles: a segment whose newest files are small has no trigrams, and is not looked
// at again.
func TestTrigramsOfFewFiles(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 92, CommitCount: 40})
	calls := 0
	h := odbtest.NewPool(t, odb.Options{
		Limits: odb.Limits{HotCount: 1}, TrigramBytes: 100 << 10, Trigrams: func(text []byte) []byte {
			calls++
			return hashed(text)
		},
	})
	h.PushGit(g, odbtest.Lines("", g.Tips()))
	h.BuildTrigrams()
	_, err := repack.Compact(t.Context(), h.Store, h.ID, repack.CompactOptions{})
	odbtest.Must(t, err)
	h.Fsck()
	for _, l := range h.View().Segments() {
		if l.Trigrams == nil {
			t.Errorf("segment %s has no trigram file, and would be looked at again", l.ID)
		}
	}
	if calls > 0 {
		t.Errorf("%d files were read", calls)
	}
}
