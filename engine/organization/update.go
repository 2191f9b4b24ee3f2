package organization

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"packhorse/odb/kv"
)

// triesMax is how often an update is tried while others change organizations, too.
const triesMax = 16

// Bounds of a batch, which holds whole organizations.
const (
	batchBytes = kv.BatchBytesMax - BytesMax - 1<<20
	batchCount = kv.BatchCountMax - 2*FileCountMax - 10
)

// ErrTooLarge says that an organization is beyond a limit.
var ErrTooLarge = errors.New("organization: too large")

// ErrBusy says that others have changed organizations all the time.
var ErrBusy = errors.New("organization: others change organizations at the same time")

// Update changes organizations, and returns when that is durable. edit is given what is stored, and
// returns the files that organizations are to have: nil ones remove the organization, and those
// that it does not name stay. If another update comes in between, edit is called again.
//
// Each organization changes in one step. Organizations of more than about 10 MiB together change in
// several; all of them do if Update is called again after an error.
//
// Errors: those of edit; [ErrTooLarge], and nothing has changed; [ErrBusy]; those of the store.
func Update(
	ctx context.Context, keys kv.Store, edit func(now State) (map[string]Files, error),
) error {
	for range triesMax {
		now, err := Load(ctx, keys, State{})
		if err != nil {
			return err
		}
		next, err := edit(now)
		if err != nil {
			return err
		}
		err = change(ctx, keys, now, next)
		if !errors.Is(err, kv.ErrConflict) {
			return err
		}
	}
	return ErrBusy
}

// change applies what differs. Errors: [kv.ErrConflict] when what is stored is not now any more.
func change(ctx context.Context, keys kv.Store, now State, next map[string]Files) error {
	for _, org := range slices.Sorted(maps.Keys(next)) {
		if err := checkSize(org, next[org]); err != nil {
			return err
		}
	}
	step := &step{keys: keys, version: now.Version, batch: kv.NewBatch()}
	for _, org := range slices.Sorted(maps.Keys(next)) {
		was, files := now.Orgs[org], next[org]
		if was.Version == (Version{}) && files == nil ||
			was.Version != (Version{}) && files != nil && maps.EqualFunc(was.Files, files, bytes.Equal) {
			continue
		}
		put(step.batch, org, was.Files, files)
		if step.batch.Size() >= batchBytes || step.batch.Count() >= batchCount {
			if err := step.apply(ctx); err != nil {
				return err
			}
		}
	}
	return step.apply(ctx)
}

func checkSize(org string, files Files) error {
	size := 0
	for name, data := range files {
		if len(data) > FileBytesMax {
			return fmt.Errorf("%w: %s of %s has %d bytes, want %d at most", ErrTooLarge, name, org, len(data), FileBytesMax)
		}
		size += len(data)
	}
	if len(files) > FileCountMax || size > BytesMax {
		return fmt.Errorf("%w: %s has %d files of %d bytes, want %d of %d at most", ErrTooLarge, org, len(files), size,
			FileCountMax, BytesMax)
	}
	return nil
}

// put adds the change of one organization to b; no files remove it.
func put(b *kv.Batch, org string, was, files Files) {
	for name := range was {
		if _, stays := files[name]; !stays {
			b.Delete(fileKey(org, name))
		}
	}
	for name, data := range files {
		if before, known := was[name]; !known || !bytes.Equal(before, data) {
			b.Put(fileKey(org, name), data)
		}
	}
	if files == nil {
		b.Delete(Key(org))
		return
	}
	version := drawVersion()
	b.Put(Key(org), version[:])
}

// step is the batch that is being filled, under the version that the one before has left.
type step struct {
	keys    kv.Store
	version Version
	batch   *kv.Batch
}

// apply applies the batch, unless it is empty, and begins the next one.
func (s *step) apply(ctx context.Context) error {
	if s.batch.Count() == 0 {
		return nil
	}
	if s.version == (Version{}) {
		s.batch.RequireAbsent(VersionKey())
	} else {
		s.batch.Require(VersionKey(), s.version[:])
	}
	s.version = drawVersion()
	s.batch.Put(VersionKey(), s.version[:])
	commit, err := s.keys.Apply(ctx, s.batch)
	if err == nil {
		err = commit.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("store organizations: %w", err)
	}
	s.batch = kv.NewBatch()
	return nil
}
