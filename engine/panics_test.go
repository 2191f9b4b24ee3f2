package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/backup"
	"packhorse/engine/enginetest"
	"packhorse/engine/migrate"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/rescue"
	"packhorse/pack/object"
	"packhorse/refs"
)

// trapped is a host over stores with a trap, and what its stores hold: the repository "r" with many
// files in two versions on main, a change of its own on side, and a fork of it.
type trapped struct {
	t      *testing.T
	trap   odbtest.Trap
	keys   kv.Store   // with the trap
	files  file.Store // with the trap
	fs     vfs.FS
	packed []byte // all of main
	first  object.ID
	tip    object.ID // of main
	side   object.ID
	count  int // of names given away

	log  *odbtest.Log
	host *engine.Host
	repo *engine.Repository
	fork *engine.Repository
}

func newTrapped(t *testing.T, files int) *trapped {
	t.Helper()
	w := &trapped{t: t, fs: vfs.NewMem(), log: &odbtest.Log{}}
	keys, stored, shut := odbtest.OpenStores(t, w.fs)
	t.Cleanup(shut)
	w.keys, w.files = w.trap.Keys(keys), w.trap.Files(stored)
	w.host = enginetest.OpenOver(t, w.keys, w.files, engine.Config{})
	repo := enginetest.Create(t, w.host, "r")
	w.first, w.tip = rewritten(t, repo, files)
	side, err := upload(repo, acme, engine.CommitTarget{Branch: "side", Base: "main"}, change{path: "side", content: "1\n"})
	must(t, err)
	w.side = side.New
	w.packed, err = clone(repo, engine.FetchRequest{Wants: []object.ID{w.tip}}, engine.SendOptions{})
	must(t, err)
	for done, err := range w.host.Maintain(t.Context(), engine.MaintainOptions{All: true}) {
		must(t, errors.Join(err, done.Err))
	}
	_, err = w.host.CreateRepository(t.Context(), acme, engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "r"}})
	must(t, err)
	must(t, w.host.Close(t.Context()))
	return w
}

// reopen opens the host with empty caches.
func (w *trapped) reopen() {
	w.t.Helper()
	w.host = enginetest.OpenOver(w.t, w.keys, w.files, engine.Config{Logger: slog.New(slog.NewTextHandler(w.log, nil))})
	var err error
	w.repo, err = w.host.Repository(w.t.Context(), enginetest.Org, "r")
	must(w.t, err)
	w.fork, err = w.host.Repository(w.t.Context(), enginetest.Org, "fork")
	must(w.t, err)
}

// name is another one each time.
func (w *trapped) name() string {
	w.count++
	return fmt.Sprint("n", w.count)
}

// branch makes another branch at the first commit.
func (w *trapped) branch(ctx context.Context) (engine.MergeBranch, error) {
	name := w.name()
	_, err := w.repo.CreateBranch(ctx, acme, engine.CreateBranchRequest{Branch: name, Base: named(w.first)})
	return engine.MergeBranch{Name: name}, err
}

// each goes through all that a walk yields.
func each[T any](walk func(yield func(T, error) bool)) (err error) {
	walk(func(_ T, failed error) bool {
		err = failed
		return err == nil
	})
	return err
}

var details = engine.CommitDetails{Message: "m", Author: thor}

// trappedWorks are the kinds of work of a host. Each may be done again and again.
var trappedWorks = map[string]func(ctx context.Context, w *trapped) error{
	"advertisement": func(ctx context.Context, w *trapped) (err error) {
		ad, err := w.repo.Advertise(ctx, refs.Main)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, ad.Close()) }()
		return each(ad.All(ctx, "refs/"))
	},
	"clone": func(ctx context.Context, w *trapped) error {
		_, err := cloneWhile(ctx, w.repo, engine.FetchRequest{Wants: []object.ID{w.tip}}, engine.SendOptions{})
		return err
	},
	"filtered clone": func(ctx context.Context, w *trapped) error {
		_, err := cloneWhile(ctx, w.repo, engine.FetchRequest{Wants: []object.ID{w.tip}, Filter: "blob:limit=10k"},
			engine.SendOptions{})
		return err
	},
	"thin fetch": func(ctx context.Context, w *trapped) error {
		_, err := cloneWhile(ctx, w.repo, engine.FetchRequest{
			Wants: []object.ID{w.tip}, Haves: []object.ID{w.first}, Thin: true, OFSDelta: true,
		}, engine.SendOptions{})
		return err
	},
	"clone of a fork": func(ctx context.Context, w *trapped) error {
		_, err := cloneWhile(ctx, w.fork, engine.FetchRequest{Wants: []object.ID{w.tip}, Depth: 1}, engine.SendOptions{})
		return err
	},
	"push": func(ctx context.Context, w *trapped) error {
		return receive(ctx, w.repo, w.packed, engine.Command{Name: "refs/heads/" + w.name(), New: w.tip})
	},
	"push to a new repository": func(ctx context.Context, w *trapped) error {
		name := w.name()
		if _, err := w.host.CreateRepository(ctx, acme, engine.CreateRequest{Name: name}); err != nil {
			return err
		}
		repo, err := w.host.Repository(ctx, enginetest.Org, name)
		if err != nil {
			return err
		}
		return receive(ctx, repo, w.packed, engine.Command{Name: "refs/heads/main", New: w.tip})
	},
	"diff": func(ctx context.Context, w *trapped) (err error) {
		d, err := w.repo.CommitDiff(ctx, engine.CommitDiffRequest{Commit: named(w.tip)}, unlimited{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		return each(d.Files(func() error { return nil }))
	},
	"archive": func(ctx context.Context, w *trapped) (err error) {
		a, err := w.repo.Archive(ctx, engine.ArchiveRequest{Ref: "main"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.Close()) }()
		return a.Write(ctx, io.Discard)
	},
	"contents": func(ctx context.Context, w *trapped) (err error) {
		c, err := w.repo.ReadFiles(ctx, engine.ReadFilesRequest{Ref: "main"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		return each(c.All(ctx, nil))
	},
	"listing": func(ctx context.Context, w *trapped) (err error) {
		f, err := w.fork.Files(ctx, engine.FilesRequest{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		return each(f.All(ctx))
	},
	"last commits": func(ctx context.Context, w *trapped) (err error) {
		m, err := w.repo.Metadata(ctx, engine.MetadataRequest{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		return each(m.Commits(ctx))
	},
	"history of a path": func(ctx context.Context, w *trapped) error {
		page, err := w.repo.Commits(ctx, engine.CommitsRequest{Path: "d0", Limit: 10})
		if err != nil {
			return err
		}
		return page.Close()
	},
	"blame": func(ctx context.Context, w *trapped) (err error) {
		b, err := w.repo.Blame(ctx, engine.BlameRequest{Path: "d0/f01"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		return each(b.Lines(ctx))
	},
	"grep": func(ctx context.Context, w *trapped) error {
		_, err := w.repo.Grep(ctx, engine.GrepRequest{Ref: "main", Pattern: "version"})
		return err
	},
	"commit": func(ctx context.Context, w *trapped) error {
		_, err := uploadWhile(ctx, w.repo, acme, main, change{path: "a", content: w.name()})
		return err
	},
	"commits at once": func(ctx context.Context, w *trapped) error {
		group, ctx := rescue.WithContext(ctx)
		for range 8 {
			target := engine.CommitTarget{Branch: w.name(), Base: "side"}
			group.Go(func() error {
				_, err := uploadWhile(ctx, w.repo, acme, target, change{path: "a", content: target.Branch})
				return err
			})
		}
		return group.Wait()
	},
	"patch": func(ctx context.Context, w *trapped) (err error) {
		u, err := w.repo.NewPatchUpload(ctx, acme, engine.PatchRequest{
			Target: engine.CommitTarget{Branch: w.name(), Base: "side"}, Details: details,
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, u.Close()) }()
		if err := u.Chunk(ctx, []byte("--- a/side\n+++ b/side\n@@ -1 +1 @@\n-1\n+2\n"), true); err != nil {
			return err
		}
		_, err = u.Finish(ctx)
		return err
	},
	"merge": func(ctx context.Context, w *trapped) error {
		target, err := w.branch(ctx)
		if err != nil {
			return err
		}
		_, err = w.repo.Merge(ctx, acme, engine.MergeRequest{
			Source: branchNamed("side"), Target: target, Strategy: engine.AlwaysMerge, Details: details,
		})
		return err
	},
	"preview": func(ctx context.Context, w *trapped) error {
		target, err := w.branch(ctx)
		if err != nil {
			return err
		}
		_, err = w.repo.PreviewMerge(ctx, branchNamed("side"), target, true)
		return err
	},
	"pick": func(ctx context.Context, w *trapped) error {
		target, err := w.branch(ctx)
		if err != nil {
			return err
		}
		_, err = w.repo.Pick(ctx, acme, engine.PickRequest{
			Commits: []engine.CommitName{named(w.side)}, Target: target, Author: thor,
		})
		return err
	},
	"land": func(ctx context.Context, w *trapped) error {
		target, err := w.branch(ctx)
		if err != nil {
			return err
		}
		_, err = w.repo.Land(ctx, acme, engine.LandRequest{
			Target: target, Sources: []engine.LandSource{{Source: named(w.side)}}, Author: thor,
		})
		return err
	},
	"restored commit": func(ctx context.Context, w *trapped) error {
		_, err := w.repo.RestoreCommit(ctx, acme, engine.RestoreRequest{
			Target: main, Details: details, Commit: named(w.first),
		})
		return err
	},
	"note": func(ctx context.Context, w *trapped) error {
		target := engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(w.tip)}
		if _, err := w.repo.AddNote(ctx, acme, target, w.name(), true); err != nil {
			return err
		}
		_, err := w.repo.Note(ctx, target)
		return err
	},
	"undo": func(ctx context.Context, w *trapped) error {
		name := w.name()
		made, err := w.repo.CreateBranch(ctx, acme, engine.CreateBranchRequest{Branch: name, Base: named(w.first)})
		if err != nil {
			return err
		}
		_, err = w.repo.Undo(ctx, acme, engine.UndoRequest{Sequence: made.Sequence})
		return err
	},
	"transaction": func(ctx context.Context, w *trapped) error {
		name := w.name()
		_, err := transact(ctx, w.host, []engine.Part{{Repo: w.repo, Actor: acme}, {Repo: w.fork, Actor: acme}},
			[]engine.Step{commitStep(0, name, "a", "1"), commitStep(1, name, "a", "2")},
			map[string][]byte{"1": []byte(name), "2": []byte("2")})
		return err
	},
	"fork": func(ctx context.Context, w *trapped) error {
		name := w.name()
		if _, err := w.host.CreateRepository(ctx, acme,
			engine.CreateRequest{Name: name, Base: &engine.Base{Name: "r", Ref: "side"}}); err != nil {
			return err
		}
		fork, err := w.host.Repository(ctx, enginetest.Org, name)
		if err != nil {
			return err
		}
		_, err = upload(fork, acme, engine.CommitTarget{Branch: "own", Base: "side"}, change{path: "own", content: name})
		return err
	},
	"deletion": func(ctx context.Context, w *trapped) error {
		name := w.name()
		if _, err := w.host.CreateRepository(ctx, acme, engine.CreateRequest{Name: name}); err != nil {
			return err
		}
		if _, err := w.host.DeleteRepository(ctx, acme, name); err != nil {
			return err
		}
		_, err := w.host.Undelete(ctx, acme, engine.UndeleteRequest{Name: name})
		return err
	},
	"fsck": func(ctx context.Context, w *trapped) error { return each(w.host.Fsck(ctx, engine.FsckOptions{})) },
	"scrub": func(ctx context.Context, w *trapped) error {
		if err := w.host.Scrub(ctx, fast); err != nil {
			return err
		}
		if n := w.host.ScrubStats().ProblemCount; n > 0 {
			return fmt.Errorf("%d problems", n)
		}
		return nil
	},
	"census": func(ctx context.Context, w *trapped) error {
		_, err := w.host.TakeCensus(ctx)
		return err
	},
	"maintenance": func(ctx context.Context, w *trapped) error {
		return maintained(ctx, w, engine.MaintainOptions{ReaderGrace: -1})
	},
	"maintenance of everything": func(ctx context.Context, w *trapped) error {
		return maintained(ctx, w, engine.MaintainOptions{All: true, ReaderGrace: -1})
	},
	"backup": func(ctx context.Context, w *trapped) (err error) {
		dest, shut := enginetest.OpenBackups(w.t, vfs.NewMem())
		defer shut()
		if _, err := w.host.Backup(ctx, dest, backup.Options{}); err != nil {
			return err
		}
		return enginetest.RestoreBackup(w.t, vfs.NewMem(), w.trap.Files(dest), backup.Options{})
	},
	"migration": func(ctx context.Context, w *trapped) error {
		source, target := w.pair(), w.pair()
		host := enginetest.OpenOver(w.t, source.Keys, source.Files, engine.Config{})
		_, err := upload(enginetest.Create(w.t, host, "r"), acme, main, change{path: "f", content: "1"})
		if err = errors.Join(err, host.Close(ctx)); err != nil {
			return err
		}
		for _, end := range []*migrate.Stores{&source, &target} {
			end.Keys, end.Files = w.trap.Keys(end.Keys), w.trap.Files(end.Files)
		}
		_, err = migrate.Run(ctx, source, target, migrate.Options{})
		return err
	},
}

// pair opens an empty pair of stores without the trap.
func (w *trapped) pair() migrate.Stores {
	keys, files, shut := odbtest.OpenStores(w.t, vfs.NewMem())
	w.t.Cleanup(shut)
	return migrate.Stores{Keys: keys, Files: files, Place: w.name()}
}

// maintained maintains what has changed since the last time.
func maintained(ctx context.Context, w *trapped, options engine.MaintainOptions) error {
	for _, repo := range []*engine.Repository{w.repo, w.fork} {
		if _, err := upload(repo, acme, engine.CommitTarget{Branch: w.name(), Base: "side"},
			change{path: "a", content: w.name()}); err != nil {
			return err
		}
	}
	for done, err := range w.host.Maintain(ctx, options) {
		if err = errors.Join(err, done.Err); err != nil {
			return err
		}
	}
	return nil
}

// receive pushes a pack.
func receive(ctx context.Context, repo *engine.Repository, pack []byte, command engine.Command) (err error) {
	p, err := repo.Receive(ctx, acme, engine.PushRequest{
		Commands: []engine.Command{command}, Pack: strings.NewReader(string(pack)),
	})
	if err != nil {
		return err
	}
	defer p.Close()
	result, err := p.Finish(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(result.Unpack, result.Commands[0].Err)
}

// TestPanics makes the stores panic in one call after the other, below every kind of work. The
// panic is the error of the work, or is logged where the work goes on without the part that has
// panicked. The process lives, nothing is held or blocks for ever, and the same work succeeds when
// repeated.
func TestPanics(t *testing.T) {
	t.Parallel()
	files := 300
	if testing.Short() {
		files = 60
	}
	for name, work := range trappedWorks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTrapped(t, files)
			told, logged := 0, 0
			var hosts []*engine.Host
			for n := int64(1); n < 4000; n += 1 + n/3 {
				w.reopen()
				w.log.Take()
				w.trap.Set(n)
				err := rescue.Do(func() error { return work(t.Context(), w) })
				sprung := w.trap.Take()
				panicked, _ := errors.AsType[*rescue.PanicError](err)
				switch text := w.log.Take(); {
				case panicked != nil && panicked.Value == odbtest.Trapped:
					told++
				case err == nil && strings.Contains(text, "panic: "+odbtest.Trapped):
					logged++
				case sprung || err != nil:
					t.Errorf("a panic at call %d: the error is %v, and this is logged: %s", n, err, text)
				}
				if err := work(t.Context(), w); err != nil {
					t.Fatalf("after a panic at call %d (it said %v): %v", n, err, err)
				}
				must(t, w.host.Close(context.Background()))
				hosts = append(hosts, w.host)
				if !sprung {
					break
				}
			}
			if told == 0 {
				t.Error("no panic was told")
			}
			w.host, w.repo, w.fork = nil, nil, nil
			for tries := 0; ; tries++ {
				open := int64(0)
				for _, host := range hosts {
					open += host.ObjectStats().ViewCount
				}
				if open == 0 {
					break
				}
				if tries == 100 {
					t.Fatalf("%d views are open", open)
				}
				runtime.GC() // closes views that nobody can reach, in a goroutine of its own
				runtime.Gosched()
			}
			t.Logf("%d panics were told, %d logged", told, logged)
		})
	}
}

// rewritten commits count files, then other contents of all of them.
func rewritten(t *testing.T, repo *engine.Repository, count int) (first, tip object.ID) {
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
		first, tip = tip, done.New
	}
	return first, tip
}
