package cache_test

import (
	"testing"

	"packhorse/odb/file"
	"packhorse/odb/file/cache"
	"packhorse/odb/file/filetest"
	"packhorse/odb/file/s3/s3test"
)

// openDir returns a store in a folder.
func openDir(t *testing.T) file.Store {
	t.Helper()
	store, err := file.OpenDir(t.TempDir(), file.DirOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// open returns a cache, which is closed when the test ends unless it is closed before.
func open(tb testing.TB, dir string, options cache.Options) *cache.Store {
	tb.Helper()
	store, err := cache.Open(dir, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	return store
}

func TestOverDir(t *testing.T) {
	t.Parallel()
	filetest.Run(t, filetest.Harness{
		Open: func(t *testing.T) file.Store {
			t.Helper()
			return open(t, t.TempDir(), cache.Options{Store: openDir(t)})
		},
	})
}

// TestTiny runs the suite over a cache that can keep nearly nothing.
func TestTiny(t *testing.T) {
	t.Parallel()
	filetest.Run(t, filetest.Harness{
		Open: func(t *testing.T) file.Store {
			t.Helper()
			return open(t, t.TempDir(), cache.Options{Store: openDir(t), Bytes: 1 << 20, Files: 2, Fetches: 1})
		},
	})
}

func TestOverS3(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	filetest.Run(t, filetest.Harness{
		Open: func(t *testing.T) file.Store {
			t.Helper()
			return open(t, t.TempDir(), cache.Options{Store: s3test.Open(t, server.Options(t))})
		},
	})
}
