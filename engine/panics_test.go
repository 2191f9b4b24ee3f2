package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/rescue"
	"packhorse/pack/object"
)

// trap makes one call of the stores panic, in whatever goroutine it is made.
type trap struct{ calls atomic.Int64 }

// step counts a call. The one that counts down to zero panics.
func (p *trap) step() {
	if p.calls.Add(-1) == 0 {
		panic("trapped")
	}
}

type trappedKeys struct {
	kv.Store
	trap *trap
}

func (s trappedKeys) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.trap.step()
	return s.Store.Get(ctx, key)
}

func (s trappedKeys) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	s.trap.step()
	return s.Store.Read(ctx, set)
}

type trappedFiles struct {
	file.Store
	trap *trap
}

func (s trappedFiles) Open(ctx context.Context, name string) (file.File, error) {
	s.trap.step()
	f, err := s.Store.Open(ctx, name)
	return trappedFile{f, s.trap}, err
}

func (s trappedFiles) Create(ctx context.Context, name string) (file.Writer, error) {
	s.trap.step()
	w, err := s.Store.Create(ctx, name)
	return trappedWriter{w, s.trap}, err
}

type trappedFile struct {
	file.File
	trap *trap
}

func (f trappedFile) ReadAt(ctx context.Context, p []byte, at int64) (int, error) {
	f.trap.step()
	return f.File.ReadAt(ctx, p, at)
}

type trappedWriter struct {
	file.Writer
	trap *trap
}

func (w trappedWriter) Write(p []byte) (int, error) {
	w.trap.step()
	return w.Writer.Write(p)
}

func (w trappedWriter) ReadAt(p []byte, at int64) (int, error) {
	w.trap.step()
	return w.Writer.ReadAt(p, at)
}

// TestPanics makes the stores panic in one call after the other, below every kind of work. The
// request fails, or succeeds without the panicking part; the process lives, nothing blocks for
// ever, and the same work succeeds when repeated.
func TestPanics(t *testing.T) {
	t.Parallel()
	works := map[string]func(ctx context.Context, host *engine.Host, repo *engine.Repository, tip object.ID) error{
		"diff": func(ctx context.Context, _ *engine.Host, repo *engine.Repository, tip object.ID) error {
			d, err := repo.CommitDiff(ctx, engine.CommitDiffRequest{Commit: named(tip)}, unlimited{})
			if err != nil {
				return err
			}
			defer d.Close()
			for _, err := range d.Files(func() error { return nil }) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"clone": func(_ context.Context, _ *engine.Host, repo *engine.Repository, tip object.ID) error {
			_, err := clone(repo, engine.FetchRequest{Wants: []object.ID{tip}}, engine.SendOptions{})
			return err
		},
		"shallow clone": func(_ context.Context, _ *engine.Host, repo *engine.Repository, tip object.ID) error {
			_, err := clone(repo, engine.FetchRequest{Wants: []object.ID{tip}, Filter: "blob:limit=10k"}, engine.SendOptions{})
			return err
		},
		"archive": func(ctx context.Context, _ *engine.Host, repo *engine.Repository, _ object.ID) error {
			a, err := repo.Archive(ctx, engine.ArchiveRequest{Ref: "main"})
			if err != nil {
				return err
			}
			return errors.Join(a.Write(ctx, io.Discard), a.Close())
		},
		"contents": func(ctx context.Context, _ *engine.Host, repo *engine.Repository, _ object.ID) error {
			c, err := repo.ReadFiles(ctx, engine.ReadFilesRequest{Ref: "main"})
			if err != nil {
				return err
			}
			for _, err := range c.All(ctx, nil) {
				if err != nil {
					return errors.Join(err, c.Close())
				}
			}
			return c.Close()
		},
		"grep": func(ctx context.Context, _ *engine.Host, repo *engine.Repository, _ object.ID) error {
			_, err := repo.Grep(ctx, engine.GrepRequest{Ref: "main", Pattern: "version"})
			return err
		},
		"commit": func(_ context.Context, _ *engine.Host, repo *engine.Repository, _ object.ID) error {
			_, err := upload(repo, acme, main, change{path: "a", content: "x"})
			return err
		},
		"fsck": func(ctx context.Context, host *engine.Host, _ *engine.Repository, _ object.ID) error {
			for _, err := range host.Fsck(ctx, engine.FsckOptions{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"maintenance": func(ctx context.Context, host *engine.Host, _ *engine.Repository, _ object.ID) error {
			for done, err := range host.Maintain(ctx, engine.MaintainOptions{}) {
				if err = errors.Join(err, done.Err); err != nil {
					return err
				}
			}
			return nil
		},
	}
	files := 300
	if testing.Short() {
		files = 60
	}
	for name, work := range works {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &trap{}
			host, repo := openTrapped(t, p)
			tip := rewritten(t, repo, files)
			told := 0
			for n := int64(1); n < 4000; n += 1 + n/3 {
				p.calls.Store(n)
				err := rescue.Do(func() error { return work(t.Context(), host, repo, tip) })
				sprung := p.calls.Swap(0) <= 0
				if err != nil {
					told++
				}
				if err := work(t.Context(), host, repo, tip); err != nil {
					t.Fatalf("after a panic at call %d (it said %v): %v", n, err, err)
				}
				if !sprung {
					break
				}
			}
			t.Logf("%d panics were told", told)
		})
	}
}

// rewritten commits count files, then other contents of all of them, and returns the second commit.
func rewritten(t *testing.T, repo *engine.Repository, count int) (tip object.ID) {
	t.Helper()
	for version := range 2 {
		changes := make([]change, count)
		for i := range changes {
			changes[i] = change{path: fmt.Sprintf("d%d/f%02d", i/100, i%100), content: fmt.Sprintf("file %d\nin version %d\n", i,
				version)}
		}
		done, err := upload(repo, acme, main, changes...)
		if err != nil {
			t.Fatal(err)
		}
		tip = done.New
	}
	return tip
}

// openTrapped opens a host over stores with a trap, and a repository.
func openTrapped(t *testing.T, p *trap) (*engine.Host, *engine.Repository) {
	t.Helper()
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	host := enginetest.OpenOver(t, trappedKeys{keys, p}, trappedFiles{files, p}, engine.Config{})
	t.Cleanup(func() {
		if err := host.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return host, enginetest.Create(t, host, "r")
}
