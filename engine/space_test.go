package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/engine"
	"packhorse/engine/clonecache"
	"packhorse/engine/enginetest"
	"packhorse/odb/odbtest"
	"packhorse/odb/space"
	"packhorse/refs"
)

const diskBytes = 1 << 40

// TestShort fills the disk: every write is refused, before its body is read, and every read goes
// on, until there is room again.
func TestShort(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	free := func(count uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: count, TotalBytes: diskBytes}) }
	free(diskBytes)
	watch, err := space.Open("", space.Options{FS: fs, MinBytes: 1000, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	clones, err := clonecache.Open("cache", clonecache.Options{FS: fs, CostMin: -1})
	if err != nil {
		t.Fatal(err)
	}
	host, shut := enginetest.OpenOn(t, fs, engine.Config{Space: watch, Clones: clones})
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "r")
	commits := seedHistory(t, repo, 3)
	request := engine.FetchRequest{Wants: commits[2:], OFSDelta: true}
	want, err := clone(repo, request, engine.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pack is kept", func() bool { return clones.Stats().Count == 1 })
	packs := pushes(t)
	unread := errors.New("the body is read")
	writes := map[string]func() error{
		"create": func() error {
			_, err := host.CreateRepository(t.Context(), acme, engine.CreateRequest{Name: "other"})
			return err
		},
		"delete": func() error {
			_, err := host.DeleteRepository(t.Context(), acme, "r")
			return err
		},
		"commit": func() error {
			_, err := upload(repo, acme, main, change{path: "x", content: "1"})
			return err
		},
		"patch": func() error {
			_, err := newPatch(repo)
			return err
		},
		"push": func() error {
			_, err := repo.Receive(t.Context(), acme, engine.PushRequest{
				Commands: []engine.Command{{Name: "refs/heads/pushed", New: packs[0].tip}},
				Pack:     io.MultiReader(failingReader{unread}, bytes.NewReader(packs[0].pack)),
			})
			return err
		},
		"push of a deletion": func() error {
			_, err := repo.Receive(t.Context(), acme,
				engine.PushRequest{Commands: []engine.Command{{Name: "refs/heads/main", Old: commits[2]}}})
			return err
		},
	}
	free(999)
	if err := watch.Look(); !errors.Is(err, space.ErrShort) {
		t.Fatalf("a full disk: %v", err)
	}
	if s := clones.Stats(); s.Count != 0 {
		t.Errorf("the cache keeps %d packs on a full disk", s.Count)
	}
	for name, write := range writes {
		if err := write(); !errors.Is(err, space.ErrShort) {
			t.Errorf("%s: %v, want ErrShort", name, err)
		}
	}
	got, err := clone(repo, request, engine.SendOptions{})
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("a clone from a full disk: %d bytes, %v", len(got), err)
	}
	if s := clones.Stats(); s.Count != 0 {
		t.Errorf("the cache takes %d packs on a full disk", s.Count)
	}
	free(1250)
	if err := watch.Look(); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if err := writes["commit"](); err != nil {
		t.Errorf("a commit with room again: %v", err)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// TestShortMeanwhile fills the disk while an upload is under way.
func TestShortMeanwhile(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: diskBytes, TotalBytes: diskBytes})
	watch, err := space.Open("", space.Options{FS: fs, MinBytes: 1000, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	host, shut := enginetest.OpenOn(t, fs, engine.Config{Space: watch})
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "r")
	u, err := newUpload(repo, "large")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	p, err := newPatch(repo)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1, TotalBytes: diskBytes})
	chunk := make([]byte, 1<<20)
	for name, write := range map[string]func() error{
		"content": func() error { return u.Chunk(t.Context(), "1", chunk, false) },
		"patch":   func() error { return p.Chunk(t.Context(), chunk, false) },
	} {
		for range 64 {
			if err = write(); err != nil {
				break
			}
		}
		if !errors.Is(err, space.ErrShort) {
			t.Errorf("a %s of 64 MiB onto a full disk: %v, want ErrShort", name, err)
		}
	}
}

// newPatch begins a commit from a patch.
func newPatch(repo *engine.Repository) (*engine.PatchUpload, error) {
	return repo.NewPatchUpload(context.Background(), acme, engine.PatchRequest{
		Target: main, Details: engine.CommitDetails{Message: "m", Author: thor},
	})
}

// newUpload begins a commit of one file, whose content is "1".
func newUpload(repo *engine.Repository, path string) (*engine.Upload, error) {
	return repo.NewUpload(context.Background(), acme, engine.UploadRequest{
		Target:     main,
		Details:    engine.CommitDetails{Message: "m", Author: thor},
		Operations: []engine.FileOperation{{Path: path, ContentID: "1"}},
	})
}

// TestFullFiles makes writes to large files fail, from each one on: an upload and a push fail with
// the system's error, nothing of them is visible, and nothing is left.
func TestFullFiles(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it fills the disk of the files")
	content := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	packs := pushes(t)
	writes := map[string]func(repo *engine.Repository) error{
		"upload": func(repo *engine.Repository) error {
			u, err := newUpload(repo, "large")
			if err != nil {
				return err
			}
			defer u.Close()
			for rest := content; len(rest) > 0; rest = rest[1<<20:] {
				if err := u.Chunk(context.Background(), "1", rest[:1<<20], len(rest) == 1<<20); err != nil {
					return err
				}
			}
			_, err = u.Finish(context.Background())
			return err
		},
		"push": func(repo *engine.Repository) error {
			p, err := repo.Receive(context.Background(), acme, engine.PushRequest{
				Commands: []engine.Command{{Name: "refs/heads/pushed", New: packs[0].tip}},
				Pack:     bytes.NewReader(packs[0].pack),
			})
			if err != nil {
				return err
			}
			defer p.Close()
			result, err := p.Finish(context.Background(), func(string) {})
			if err == nil {
				err = errors.Join(result.Unpack, result.Commands[0].Err)
			}
			return err
		},
	}
	for name, write := range writes {
		for _, fault := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
			t.Run(name+"/"+fault.Error(), func(t *testing.T) {
				t.Parallel()
				failed := 0
				for at := int64(1); ; at++ {
					if !tryFull(t, write, fault, at) {
						break
					}
					failed++
				}
				if failed < 2 {
					t.Errorf("only %d writes to fail", failed)
				}
			})
		}
	}
}

// tryFull runs a write with the file system failing from its at-th operation on large files, and
// reports whether it came to that.
func tryFull(t *testing.T, write func(*engine.Repository) error, fault syscall.Errno, at int64) bool {
	t.Helper()
	fs := vfs.NewMem()
	var left atomic.Int64
	left.Store(1 << 60)
	failing := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		growing := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileWriteAt || op.Kind == errorfs.OpCreate
		if growing && strings.HasPrefix(op.Path, "files/") && left.Add(-1) <= 0 {
			return fault
		}
		return nil
	}))
	config := engine.Config{}
	config.Objects.Limits.HotCount = 1 // so that a push is a segment
	host, shut := enginetest.OpenOn(t, failing, config)
	defer shut()
	repo := enginetest.Create(t, host, "r")
	left.Store(at)
	err := write(repo)
	if left.Load() > 0 {
		if err != nil {
			t.Errorf("without a fault: %v", err)
		}
		return false
	}
	left.Store(1 << 60)
	if !errors.Is(err, fault) {
		t.Errorf("fault %d: %v, want %v", at, err, fault)
	}
	page, err := repo.Branches(t.Context(), refs.Main, "", 10)
	if err != nil || len(page.Items) != 0 {
		t.Errorf("fault %d: branches %v, %v", at, page.Items, err)
	}
	names, err := fs.List("files/incoming/local")
	if err != nil || len(names) != 1 {
		t.Errorf("fault %d: left %q, %v", at, names, err)
	}
	return true
}
