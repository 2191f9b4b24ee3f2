package s3_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
)

func TestStore(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	opened := make(chan map[file.Store]s3.Options, 1)
	opened <- make(map[file.Store]s3.Options)
	open := func(t *testing.T, options s3.Options) file.Store {
		t.Helper()
		store := s3test.Open(t, options)
		all := <-opened
		all[store] = options
		opened <- all
		return store
	}
	filetest.Run(t, filetest.Harness{
		Open: func(t *testing.T) file.Store {
			t.Helper()
			return open(t, server.Options(t))
		},
		Other: func(t *testing.T, store file.Store) file.Store {
			t.Helper()
			all := <-opened
			options := all[store]
			opened <- all
			options.Dir = t.TempDir()
			return open(t, options)
		},
	})
}

// TestRequests counts what calls cost.
func TestRequests(t *testing.T) {
	t.Parallel()
	service := disturbed(t, s3test.Start(t))
	var told atomic.Int64
	service.options.Request = func(time.Duration) { told.Add(1) }
	store := s3test.Open(t, service.options)
	cost := func(what string, want int64, call func() error) {
		t.Helper()
		before := service.count.Load()
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := service.count.Load() - before; got != want {
			t.Errorf("%s: %d requests, want %d", what, got, want)
		}
	}
	data := sample(1, 100_000)
	cost("write a small file", 1, func() error { return write(t, store, "small", data) })
	cost("write three parts", 5, func() error { return write(t, store, "parts", sample(1, 33<<20)) })
	cost("read a file of the size of a tail", 1, func() error {
		return errors.Join(write(t, store, "tail", data[:16<<10]))
	})
	cost("... in one request", 1, func() error { _, err := read(t, store, "tail"); return err })
	var f file.File
	cost("open", 1, func() (err error) { f, err = store.Open(t.Context(), "small"); return err })
	cost("read the end", 0, func() error { _, err := f.ReadAt(t.Context(), make([]byte, 4096), 100_000-4096); return err })
	cost("read elsewhere", 1, func() error { _, err := f.ReadAt(t.Context(), make([]byte, 50_000), 0); return err })
	cost("close", 0, f.Close)
	cost("list", 1, func() error {
		for _, err := range store.List(t.Context()) {
			return err
		}
		return errors.New("nothing is listed")
	})
	cost("delete", 1, func() error { return store.Delete(t.Context(), "small") })
	if told.Load() != service.count.Load() {
		t.Errorf("the store tells of %d requests of %d", told.Load(), service.count.Load())
	}
}

// TestTaken lets two stores write under one name: the first one stays.
func TestTaken(t *testing.T) {
	t.Parallel()
	options := s3test.Start(t).Options(t)
	first := s3test.Open(t, options)
	options.Dir = t.TempDir()
	second := s3test.Open(t, options)
	for name, size := range map[string]int{"small": 1000, "parts": 17 << 20} {
		if err := write(t, first, name, sample(1, size)); err != nil {
			t.Fatal(err)
		}
		if err := write(t, second, name, sample(2, size)); !errors.Is(err, file.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := read(t, second, name); err != nil || string(got) != string(sample(1, size)) {
			t.Errorf("%s: %d bytes, or others, %v", name, len(got), err)
		}
	}
}

// TestLocked checks that a local folder has one user, and loses what a crash has left.
func TestLocked(t *testing.T) {
	t.Parallel()
	options := s3.Options{
		Location: s3.Location{Bucket: "none", Endpoint: "http://127.0.0.1:1"}, Dir: t.TempDir(), Credentials: anybody{},
	}
	store := s3test.Open(t, options)
	if _, err := store.Create(t.Context(), "crashed"); err != nil {
		t.Fatal(err)
	}
	if _, err := s3.Open(t.Context(), options); !errors.Is(err, file.ErrLocked) {
		t.Errorf("a second store: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if got := len(list(t, options.Dir)); got != 2 {
		t.Errorf("%d files in the folder, want the lock and a spool", got)
	}
	s3test.Open(t, options)
	if got := len(list(t, options.Dir)); got != 1 {
		t.Errorf("%d files in the folder, want the lock", got)
	}
}

// TestOccupy opens a store without a local folder, which it takes later, unless another has it.
func TestOccupy(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	options := s3.Options{Location: s3.Location{Bucket: "none", Endpoint: "http://127.0.0.1:1"}, Credentials: anybody{}}
	without, first, second := s3test.Open(t, options), s3test.Open(t, options), s3test.Open(t, options)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is there: %v", err)
	}
	if err := without.Close(); err != nil {
		t.Error(err)
	}
	if err := first.Occupy(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Create(t.Context(), "name"); err != nil {
		t.Error(err)
	}
	if err := second.Occupy(dir); !errors.Is(err, file.ErrLocked) {
		t.Errorf("a second store: %v", err)
	}
	if err := errors.Join(first.Close(), second.Occupy(dir), second.Close()); err != nil {
		t.Error(err)
	}
}

// TestClientIsQuiet has answers break off behind a complete head: the client of the service tells
// it to the log of the store, at debug level, and to nobody else.
func TestClientIsQuiet(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = w.Write([]byte("short"))
	}))
	t.Cleanup(service.Close)
	var told bytes.Buffer
	log := slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelDebug}))
	store := s3test.Open(t, s3.Options{
		Location: s3.Location{Bucket: "quiet", Endpoint: service.URL, PathStyle: true}, Credentials: anybody{},
		Backoff: time.Microsecond, Log: log,
	})
	if err := store.Occupy(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), "name"); !errors.Is(err, file.ErrUnavailable) {
		t.Errorf("delete: %v", err)
	}
	if got := told.String(); !strings.Contains(got, "level=DEBUG") || !strings.Contains(got, "discard remaining HTTP response body") {
		t.Errorf("the log has %q", got)
	}
}

// TestList lists more files than an answer has, and nothing else.
func TestList(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	options := server.Options(t)
	store := s3test.Open(t, options)
	if _, err := store.Claim(t.Context(), "id", ""); err != nil {
		t.Fatal(err)
	}
	const count = 1003
	keys := []string{"00/notes.txt", "a", "xx/a"}
	for i := range count {
		keys = append(keys, s3.Key(store, fmt.Sprintf("f%d", i)))
	}
	for _, key := range keys {
		put(t, server, options, strings.TrimPrefix(key, options.Prefix+"/"))
	}
	seen := make(map[string]bool)
	for info, err := range store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[info.Name] || !strings.HasPrefix(info.Name, "f") {
			t.Errorf("%+v", info)
		}
		seen[info.Name] = true
	}
	if len(seen) != count {
		t.Errorf("%d files are listed, want %d", len(seen), count)
	}
}

// TestClaim lets two installations claim a bucket.
func TestClaim(t *testing.T) {
	t.Parallel()
	service := disturbed(t, s3test.Start(t))
	mine, theirs := s3test.Open(t, service.options), service.options
	theirs.Dir = t.TempDir()
	foreign := s3test.Open(t, theirs)
	if _, err := mine.Claim(t.Context(), "mine", "GONE"); !errors.Is(err, s3.ErrBare) {
		t.Errorf("an empty bucket, with files elsewhere: %v", err)
	}
	place := ""
	for range 2 {
		found, err := mine.Claim(t.Context(), "mine", place)
		if err != nil || found == "" || place != "" && found != place {
			t.Errorf("place %q, %v", found, err)
		}
		place = found
		_, err = foreign.Claim(t.Context(), "theirs", "")
		if !errors.Is(err, s3.ErrForeign) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "mine") {
			t.Errorf("of another installation: %v", err)
		}
	}
	if _, err := mine.Claim(t.Context(), "mine", "GONE"); !errors.Is(err, s3.ErrBare) {
		t.Errorf("another bucket of the same store: %v", err)
	}
	elsewhere := service.options
	elsewhere.Dir, elsewhere.Prefix = t.TempDir(), elsewhere.Prefix+"/elsewhere"
	service.disturb(times(100, says(http.StatusNotImplemented, "NotImplemented"), conditional))
	other := s3test.Open(t, elsewhere)
	if _, err := other.Claim(t.Context(), "theirs", ""); err != nil {
		t.Errorf("without conditional writes: %v", err)
	}
	for marker, want := range map[string]error{
		`{"version":2,"store":"theirs"}`: s3.ErrVersion, `{"version":1,"store":"x"}`: s3.ErrForeign, "": s3.ErrVersion,
		"[]": s3.ErrVersion,
	} {
		service.disturb(times(1, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			_, _ = w.Write([]byte(marker))
		}, isGet))
		if _, err := other.Claim(t.Context(), "theirs", ""); !errors.Is(err, want) {
			t.Errorf("%q: %v", marker, err)
		}
	}
}

// TestProbe takes abilities from a service.
func TestProbe(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	suffix := func(r *http.Request) bool { return strings.HasPrefix(r.Header.Get("Range"), "bytes=-") }
	tests := map[string]struct {
		next    func(*http.Request) fault
		without string
		err     error
		says    string
	}{
		"everything":    {nil, "", nil, ""},
		"no conditions": {times(9, says(501, "NotImplemented"), conditional), "conditional writes", nil, ""},
		"conditions ignored": {times(9, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusOK)
		}, conditional), "conditional writes", nil, ""},
		"checksums ignored": {times(9, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusOK)
		}, func(r *http.Request) bool {
			return isPut(r) && r.Header.Get("X-Amz-Content-Sha256") == fmt.Sprintf("%x", sha256.Sum256(nil))
		}), "checksums of uploads", nil, ""},
		"no suffix ranges": {times(9, says(501, "NotImplemented"), suffix), "", s3.ErrProbe, "suffix ranges ("},
		"ranges ignored": {times(9, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			_, _ = w.Write([]byte("0123456789abcdef"))
		}, suffix), "", s3.ErrProbe, "suffix ranges ("},
		"no parts":                    {times(9, says(501, "NotImplemented"), isPart), "", s3.ErrProbe, "multipart uploads ("},
		"read-only":                   {times(99, says(403, "AccessDenied"), isPut), "", file.ErrUnavailable, "AccessDenied"},
		"no bucket":                   {times(99, says(404, "NoSuchBucket"), every), "", file.ErrUnavailable, "NoSuchBucket"},
		"a missing object is refused": {refuseDeleted(), "", s3.ErrProbe, "deletes (file: store is unavailable"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := disturbed(t, server)
			service.disturb(test.next)
			without, err := s3test.Open(t, service.options).Probe(t.Context(), "a.probe")
			if without != test.without || !errors.Is(err, test.err) ||
				err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%q, %v", without, err)
			}
			for info := range objects(t, server, service.options) {
				t.Errorf("%s is left", info)
			}
		})
	}
}

// refuseDeleted refuses reads behind the first delete.
func refuseDeleted() func(*http.Request) fault {
	var deleted atomic.Bool
	return func(r *http.Request) fault {
		if r.Method == http.MethodDelete {
			deleted.Store(true)
		}
		if isGet(r) && deleted.Load() {
			return says(http.StatusForbidden, "AccessDenied")
		}
		return nil
	}
}
