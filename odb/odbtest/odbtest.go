// Package odbtest has pools and histories for the tests of packages that read and write objects.
//
// The stores are the real ones on a file system in memory, so nothing is mocked, and nothing stays
// on disk; or a database and a bucket, see [Shared]. The map of the package, by file:
//
//	odbtest              OpenOn; Clone, for tests that only read
//	stores               stores, embedded or shared
//	pool                 Pool: packs come in, maintenance runs
//	world, growing       World: objects are written one by one, beside a model; crashes
//	repository, history  repositories of the installed git; random histories
//	checkpack            packs beside those of git pack-objects
//	pathfilter           changed-path filters, ours and git's
//	packsource           packs that may be wrong
//	plainpack            packs and objects that are stored unchecked
//	storedform, content  how objects are stored; texts, noise, trees and commits
//	meddledkeys          changes between two reads
//	bystander            whether work gives back its turn while it waits
package odbtest

import (
	"context"
	"errors"
	"os"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
)

// OpenOn is [odb.Open] with the parts that the packages above give a store: walks, and auxiliary
// files of large segments, which are built at once when [odb.Options] say which size is large. The
// environment variable PACKHORSE_HOT_COPIES makes copies of hot layers "always", at the first
// lookup, or "never".
func OpenOn(ctx context.Context, keys kv.Store, files file.Store, options odb.Options) (*odb.Store, error) {
	options.Reach = packgen.Reachability{}
	options.RemoteKeys = options.RemoteKeys || Shared()
	switch os.Getenv("PACKHORSE_HOT_COPIES") {
	case "always":
		options.RemoteKeys = true
	case "never":
		options.HotCopyBytes = -1
	}
	var store *odb.Store
	if options.AuxiliaryCount > 0 {
		options.GrewLarge = func(pool odb.PoolID, _ string) {
			if err := repack.BuildAuxiliary(ctx, store, pool, 0); err != nil && !errors.Is(err, odb.ErrNoPool) {
				panic(err) // the caller has no way to return it
			}
		}
	}
	var err error
	store, err = odb.Open(ctx, keys, files, options)
	return store, err
}

// Clone stores all objects that the refs of a repository reach in a new pool, and returns a view
// that stays open until the test ends.
func Clone(tb testing.TB, git *oracle.Repository) *odb.View {
	tb.Helper()
	p := NewPool(tb, odb.Options{})
	_, err := p.Push(PackAll(git, "--delta-base-offset"), ingest.Options{})
	p.Must(err)
	return p.View()
}
