package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/backup"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// beforeApply is a store that calls before, unless that is nil, before each batch.
type beforeApply struct {
	kv.Store
	before func() error
}

func (s *beforeApply) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	if before := s.before; before != nil {
		s.before = nil
		err := before()
		if s.before = before; err != nil {
			return nil, err
		}
	}
	return s.Store.Apply(ctx, b)
}

// rowsOf counts the rows whose key has an id behind its table, or behind the listener of an outbox.
func rowsOf(t *testing.T, keys kv.Store, id refs.RepoID) (count int) {
	t.Helper()
	for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(pair.Key[:min(len(pair.Key), 2+len(id))], id[:]) {
			count++
		}
	}
	return count
}

// sound wants a store in which fsck finds nothing.
func sound(t *testing.T, host *engine.Host) {
	t.Helper()
	for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
		if err != nil || checked.Damaged() {
			t.Errorf("fsck: %q, %v", checked.Problems(), err)
		}
	}
}

// TestDeleteManyRefs deletes a repository with many refs, and creates another one of its name at
// once. The deletion removes few rows, the rest goes with the purge and the next sweep, and nobody
// finds any of it meanwhile: not fsck, nor usage, nor the events of the organization, nor a
// restored backup.
func TestDeleteManyRefs(t *testing.T) {
	t.Parallel()
	const refCount = 3000
	store := &beforeApply{}
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	store.Store = keys
	host := enginetest.OpenOver(t, store, files, engine.Config{})
	t.Cleanup(func() { must(t, host.Close(context.Background())) })
	pack, tip := oneCommit(t)
	repo := enginetest.Create(t, host, "r")
	names := []string{"refs/heads/main"}
	for i := range refCount {
		names = append(names, fmt.Sprintf("refs/heads/b%05d", i))
	}
	pushRefs(t, repo, refs.Main, pack, tip, names...)
	id := repo.Item().ID
	sound(t, host)

	before := rowsOf(t, keys, id)
	_, err := host.DeleteRepository(t.Context(), acme, "r")
	must(t, err)
	if removed := before - rowsOf(t, keys, id); removed > 5 {
		t.Errorf("the deletion removes %d rows", removed)
	}
	second := enginetest.Create(t, host, "r")
	pushRefs(t, second, refs.Main, pack, tip, "refs/heads/main")
	unseen := func(host *engine.Host) {
		t.Helper()
		sound(t, host)
		now, err := host.Repository(t.Context(), enginetest.Org, "r")
		must(t, err)
		if now.Item().ID == id {
			t.Error("the deleted repository is opened")
		}
		usage, err := now.Usage(t.Context())
		must(t, err)
		if usage.Refs.RefCount != 1 {
			t.Errorf("the new repository has %d refs", usage.Refs.RefCount)
		}
		if _, err := host.RepositoryByID(t.Context(), enginetest.Org, id); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("by its id: %v", err)
		}
		if _, err := repo.Sequence(t.Context()); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("its journal: %v", err)
		}
		for cursor, more := (refs.FeedCursor{}), true; more; {
			page, err := host.OrgEvents(t.Context(), enginetest.Org, cursor, 100)
			must(t, err)
			for _, event := range page.Events {
				if event.Repo == id && event.Kind != refs.FeedDeleted {
					t.Fatalf("an event of the deleted repository: %+v", event)
				}
			}
			cursor, more = page.Next, page.More
		}
	}
	unseen(host)

	if !odbtest.Shared() { // which make no backups
		restoredUnseen(t, keys, files, id, unseen)
	}

	steps := 0
	store.before = func() error {
		steps++
		unseen(host)
		return nil
	}
	purgeAll(t, host)
	store.before = nil
	unseen(host)
	if count := rowsOf(t, keys, id); count > 0 || steps < 2 {
		t.Errorf("%d rows are left of it after %d steps", count, steps)
	}
}

func maintainAll(t *testing.T, host *engine.Host) {
	t.Helper()
	maintainWith(t, host, engine.MaintainOptions{})
}

// purgeAll maintains without a grace: deleted repositories go for good.
func purgeAll(t *testing.T, host *engine.Host) {
	t.Helper()
	maintainWith(t, host, engine.MaintainOptions{Grace: -1})
}

func maintainWith(t *testing.T, host *engine.Host, options engine.MaintainOptions) {
	t.Helper()
	for done, err := range host.Maintain(t.Context(), options) {
		must(t, errors.Join(err, done.Err))
	}
}

// restoredUnseen backs the stores up, restores the backup, and asks whether a repository is seen
// there. The sweep of the restored stores leaves no row of it.
func restoredUnseen(t *testing.T, keys kv.Store, files file.Store, id refs.RepoID, unseen func(host *engine.Host)) {
	t.Helper()
	dest, shutDest := enginetest.OpenBackups(t, vfs.NewMem())
	defer shutDest()
	other := enginetest.OpenOver(t, keys, files, engine.Config{}) // the wrapped store makes no checkpoints
	_, err := other.Backup(t.Context(), dest, backup.Options{})
	must(t, errors.Join(err, other.Close(t.Context())))
	restored := vfs.NewMem()
	must(t, enginetest.RestoreBackup(t, restored, dest, backup.Options{}))
	copiedKeys, copiedFiles, shutCopy := odbtest.OpenStores(t, restored)
	defer shutCopy()
	copied := enginetest.OpenOver(t, copiedKeys, copiedFiles, engine.Config{})
	unseen(copied)
	purgeAll(t, copied)
	if count := rowsOf(t, copiedKeys, id); count > 0 {
		t.Errorf("%d rows are left of it in the restored store", count)
	}
	must(t, copied.Close(t.Context()))
}

// TestDeleteSweepsOutbox deletes a repository with rows of listeners and of an upstream.
func TestDeleteSweepsOutbox(t *testing.T) {
	t.Parallel()
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	defer shut()
	host := enginetest.OpenOver(t, keys, files, engine.Config{})
	repo := enginetest.Create(t, host, "r")
	id := repo.Item().ID
	b := kv.NewBatch()
	for _, listener := range "uw" {
		for n := range byte(100) {
			b.Put(append(append([]byte{'O', byte(listener)}, id[:]...), 0, 0, 0, 0, 0, 0, 0, n), nil)
		}
	}
	for n := range byte(100) {
		b.Put(append(append([]byte{'v'}, id[:]...), 's', n), []byte("last common ref"))
	}
	_, err := keys.Apply(t.Context(), b)
	must(t, err)
	_, err = host.DeleteRepository(t.Context(), acme, "r")
	must(t, err)
	purgeAll(t, host)
	if count := rowsOf(t, keys, id); count > 0 {
		t.Errorf("%d rows are left", count)
	}
	must(t, host.Close(t.Context()))
}
