package odbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/file/cache"
	"packhorse/odb/file/filetest"
	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// storesVariable says which stores tests are run over.
const storesVariable = "PACKHORSE_TEST_STORES"

// Shared reports whether the stores of tests are those that several servers share, a database and a
// bucket: the environment variable PACKHORSE_TEST_STORES is "shared".
func Shared() bool {
	switch value := os.Getenv(storesVariable); value {
	case "":
		return false
	case "shared":
		return true
	default:
		panic(storesVariable + " is " + value + ": expected shared, or nothing for the embedded stores")
	}
}

// NeedsEmbedded skips a test of the embedded stores where tests are run over others. The reason
// says what the test does that others do not have: "it damages Pebble's files".
func NeedsEmbedded(tb testing.TB, reason string) {
	tb.Helper()
	if Shared() {
		tb.Skip("for the embedded stores only: " + reason)
	}
}

// OpenStores opens the stores of keys and of files in fs. The returned function closes them.
//
// Where tests are run over shared stores, fs has the local files of one server, and says where its
// database and bucket are, which go when the test ends that opened them first.
func OpenStores(tb testing.TB, fs vfs.FS) (keys kv.Store, files file.Store, shut func()) {
	tb.Helper()
	keys, files = OpenKeys(tb, fs), OpenFiles(tb, fs)
	return keys, files, func() {
		tb.Helper()
		if err := errors.Join(files.Close(), keys.Close()); err != nil {
			tb.Error(err)
		}
	}
}

// OpenKeys is the one half of [OpenStores]. The caller closes the store.
func OpenKeys(tb testing.TB, fs vfs.FS) kv.Store {
	tb.Helper()
	var keys kv.Store
	var err error
	if Shared() {
		keys, err = postgres.Open(context.Background(),
			postgres.Options{URL: placeOf(tb, fs).database, Conns: connsMax, Logger: slog.New(slog.DiscardHandler)})
	} else {
		keys, err = kv.OpenPebble("keys",
			kv.PebbleOptions{FS: fs, MemoryBytes: 16 << 20, Logger: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// OpenFiles is the other half of [OpenStores]. The caller closes the store.
func OpenFiles(tb testing.TB, fs vfs.FS) file.Store {
	tb.Helper()
	if Shared() {
		return openBucket(tb, fs)
	}
	files, err := file.OpenDir("files", file.DirOptions{FS: filetest.AtomicRenames(fs)})
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

// connsMax is the number of connections of a store, of which the tests of a binary have many.
const connsMax = 12

// place is where shared stores are.
type place struct {
	database string      // a URL
	bucket   *s3.Options // nil before the files are opened for the first time
}

// places are those of the tests that run, by their names.
var places struct {
	mu sync.Mutex // guards all of them
	by map[string]*place
}

// placeName is the file that has the name of a place.
const placeName = "stores"

// placeOf returns the place that a file system leads to, or gives it a new one until the test ends.
func placeOf(tb testing.TB, fs vfs.FS) *place {
	tb.Helper()
	places.mu.Lock()
	defer places.mu.Unlock()
	name, err := readFile(fs, placeName)
	switch {
	case err == nil:
		if p := places.by[name]; p != nil {
			return p
		}
		tb.Fatal("the stores went with the test that opened them first")
	case !errors.Is(err, os.ErrNotExist):
		tb.Fatal(err)
	}
	name = rand.Text()
	if err := writeFile(fs, placeName, name); err != nil {
		tb.Fatal(err)
	}
	p := &place{database: postgrestest.Schema(tb)}
	if places.by == nil {
		places.by = make(map[string]*place)
	}
	places.by[name] = p
	tb.Cleanup(func() {
		places.mu.Lock()
		defer places.mu.Unlock()
		delete(places.by, name)
	})
	return p
}

// Beside returns a file system in memory for the local files of another server over the shared
// stores of fs.
func Beside(tb testing.TB, fs vfs.FS) vfs.FS {
	tb.Helper()
	other := vfs.NewMem()
	name, err := readFile(fs, placeName)
	if err == nil {
		err = writeFile(other, placeName, name)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return other
}

// openBucket opens the files in the place of fs.
func openBucket(tb testing.TB, fs vfs.FS) file.Store {
	tb.Helper()
	p := placeOf(tb, fs)
	places.mu.Lock()
	if p.bucket == nil {
		p.bucket = new(s3test.Shared(tb).Options(tb))
	}
	options := *p.bucket
	places.mu.Unlock()
	options.FS, options.Dir = fs, "spool"
	bucket, err := s3.Open(context.Background(), options)
	if err != nil {
		tb.Fatal(err)
	}
	files, err := cache.Open("blocks", cache.Options{Store: bucket, FS: fs})
	if err != nil {
		tb.Fatal(errors.Join(err, bucket.Close()))
	}
	return files
}

func readFile(fs vfs.FS, name string) (string, error) {
	f, err := fs.Open(name)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(f)
	return string(data), errors.Join(err, f.Close())
}

// writeFile writes a file that a crash leaves whole.
func writeFile(fs vfs.FS, name, content string) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(content))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := fs.OpenDir("")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
