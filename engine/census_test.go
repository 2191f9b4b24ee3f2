package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
	"packhorse/odb/odbtest"
	"packhorse/odb/segment"
)

// auxiliaryBytes is the size of all files but segments.
func auxiliaryBytes(t *testing.T, files file.Store) (sum int64) {
	t.Helper()
	suffix := strings.TrimPrefix(segment.FileName(segment.LayerID{}), segment.LayerID{}.String())
	for info, err := range files.List(t.Context()) {
		must(t, err)
		if !strings.HasSuffix(info.Name, suffix) {
			sum += info.Size
		}
	}
	return sum
}

// TestCensus counts repositories and files while they come and go.
func TestCensus(t *testing.T) {
	t.Parallel()
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	host := enginetest.OpenOver(t, keys, files, smallHot)
	t.Cleanup(func() { must(t, host.Close(context.Background())) })
	take := func(repositories, deleted int) engine.Census {
		t.Helper()
		got, err := host.TakeCensus(t.Context())
		must(t, err)
		if got.RepositoryCount != repositories || got.DeletedCount != deleted || got.Time.IsZero() {
			t.Fatalf("counted %+v, want %d and %d repositories", got, repositories, deleted)
		}
		return got
	}
	if got := take(0, 0); got.Files.Segments+got.Files.Auxiliary+got.Files.Obsolete != 0 {
		t.Errorf("an empty store: %+v", got)
	}
	fill := func(name string) *engine.Repository {
		repo := enginetest.Create(t, host, name)
		for i := range 3 {
			var changes []change
			for k := range 12 {
				changes = append(changes, change{path: fmt.Sprintf("%d/%d", i, k), content: string(noise(byte(16*i+k), 1000))})
			}
			_, err := upload(repo, acme, main, changes...)
			must(t, err)
		}
		return repo
	}
	first, second := fill("first"), fill("second")
	stored := func(repos ...*engine.Repository) (sum int64) {
		for _, repo := range repos {
			usage, err := repo.Usage(t.Context())
			must(t, err)
			sum += usage.Stored.Bytes
		}
		return sum
	}
	maintainWith(t, host, engine.MaintainOptions{All: true, ReaderGrace: time.Hour})
	before := take(2, 0).Files
	if before.Segments != stored(first, second) || before.Obsolete == 0 {
		t.Errorf("after a merge: %+v, want segments of %d bytes, and obsolete ones", before, stored(first, second))
	}
	maintainWith(t, host, engine.MaintainOptions{All: true, ReaderGrace: -1})
	got := take(2, 0).Files
	if want := auxiliaryBytes(t, files); got.Auxiliary != want || want == 0 || got.Obsolete != 0 {
		t.Errorf("after a sweep: %+v, and the auxiliary files have %d bytes", got, want)
	}

	_, err := host.CreateRepository(t.Context(), acme, engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "first"}})
	must(t, err)
	want := stored(second)
	_, err = host.DeleteRepository(t.Context(), acme, "second")
	must(t, err)
	after := take(2, 1)
	if after.DeletedBytes != want || want == 0 || after.Files.Segments != got.Segments {
		t.Errorf("after a deletion: %+v, want %d bytes of the deleted one", after, want)
	}
	if want := auxiliaryBytes(t, files); after.Files.Auxiliary != want {
		t.Errorf("with a fork: %+v, and the auxiliary files have %d bytes", after.Files, want)
	}
}
