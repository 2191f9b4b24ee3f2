package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/hot"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// FsckTables verifies the parts of a store that [Store.Fsck] does not see because no pool names
// them: user keys agree with manifests, every registration, hot layer and file is used or has an
// obsolete entry, and rows can be read. owned reports whether a repository has the pool.
//
// It may run beside readers and writers: layers that are about to be used or deleted are no
// problem. Memory does not depend on the size of the store. The report lists the problems. An error
// says that the check could not be finished.
func (s *Store) FsckTables(
	ctx context.Context, owned func(ctx context.Context, pool PoolID) (bool, error),
) (*FsckReport, error) {
	f := &tablesFsck{fsck: fsck{report: &FsckReport{}}, store: s, owned: owned}
	for _, check := range []func(context.Context) error{
		f.users, f.manifests, f.obsoleteEntries, f.registrations, f.rows, f.intents, f.files,
	} {
		if err := check(ctx); err != nil {
			return nil, fmt.Errorf("check tables: %w", err)
		}
	}
	if err := f.settle(ctx); err != nil {
		return nil, fmt.Errorf("check tables: %w", err)
	}
	return f.report, nil
}

// tablesFsck is one run of [Store.FsckTables].
type tablesFsck struct {
	fsck
	store    *Store
	owned    func(ctx context.Context, pool PoolID) (bool, error)
	suspects []suspect
}

// suspect is a row or a file without a known user. It may be about to be used or deleted.
type suspect struct {
	id      segment.LayerID // or the pool's
	problem error
	// stands reports whether the suspicion still stands at a later look.
	stands func(ctx context.Context) (bool, error)
}

// suspectsMax is the number of suspects that are collected before they are looked up among the
// obsolete entries, which takes a walk over all of those.
const suspectsMax = 4096

func (f *tablesFsck) suspect(ctx context.Context, found suspect) error {
	f.suspects = append(f.suspects, found)
	if len(f.suspects) < suspectsMax {
		return nil
	}
	return f.settle(ctx)
}

// settle clears the suspects that have obsolete entries, and checks the others once more. A layer
// that leaves a manifest gets its row in table d in the same batch, so none is missed in between.
func (f *tablesFsck) settle(ctx context.Context) error {
	if len(f.suspects) == 0 {
		return nil
	}
	waiting := make(map[segment.LayerID]bool, len(f.suspects))
	for _, one := range f.suspects {
		waiting[one.id] = false
	}
	for pair, err := range f.scan(ctx, tableObsolete) {
		if err != nil {
			return err
		}
		if e, err := segment.DecodeObsolete(pair.Key); err == nil {
			if _, ok := waiting[e.ID]; ok {
				waiting[e.ID] = true
			}
		}
	}
	for _, one := range f.suspects {
		if waiting[one.id] {
			continue
		}
		stands, err := one.stands(ctx)
		if err != nil {
			return err
		}
		if stands {
			f.problem(one.id, object.ZeroID, one.problem)
		}
	}
	f.suspects = f.suspects[:0]
	return nil
}

func (f *tablesFsck) scan(ctx context.Context, table byte) func(yield func(kv.Pair, error) bool) {
	return f.store.keys.Scan(ctx, kv.ScanOptions{Start: []byte{table}, End: kv.PrefixEnd([]byte{table})})
}

// has reports whether a key exists.
func (f *tablesFsck) has(ctx context.Context, key []byte) (bool, error) {
	_, err := f.store.keys.Get(ctx, key)
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// isUsed reports whether a pool uses a layer or auxiliary file.
func (f *tablesFsck) isUsed(ctx context.Context, id segment.LayerID) (bool, error) {
	key, err := f.first(ctx, usersOf(id))
	return key != nil, err
}

// usersMax is the number of user keys whose manifests are read together. A manifest has at most a
// few KiB.
const usersMax = 500

// users checks the manifest of each user key.
func (f *tablesFsck) users(ctx context.Context) error {
	var keys [][]byte
	for pair, err := range f.scan(ctx, tableUser) {
		if err != nil {
			return err
		}
		if keys = append(keys, bytes.Clone(pair.Key)); len(keys) < usersMax {
			continue
		}
		if err := f.usersOf(ctx, keys); err != nil {
			return err
		}
		keys = keys[:0]
	}
	return f.usersOf(ctx, keys)
}

// usersOf checks the manifests of some user keys.
func (f *tablesFsck) usersOf(ctx context.Context, keys [][]byte) error {
	var users []struct {
		id   segment.LayerID
		pool PoolID
	}
	var set kv.ReadSet
	for _, key := range keys {
		id, pool, err := decodeUserKey(key)
		if err != nil {
			f.problem(segment.LayerID{}, object.ZeroID, err)
			continue
		}
		users = append(users, struct {
			id   segment.LayerID
			pool PoolID
		}{id, pool})
		set.Keys = append(set.Keys, manifestKey(pool))
	}
	rows, err := f.store.keys.Read(ctx, set)
	if err != nil {
		return err
	}
	for i, user := range users {
		if data := rows.Values[i]; data != nil {
			m, err := f.store.manifestOf(user.pool, data)
			if err != nil {
				continue // the check of the pool reports it
			}
			if m.parts().has(user.id) {
				continue
			}
		}
		there, err := f.has(ctx, userKey(user.id, user.pool)) // a pool that releases it deletes the key in the same batch
		if err != nil {
			return err
		}
		if there {
			f.problem(user.id, object.ZeroID, fmt.Errorf("%w: pool %s has a key as its user, and does not name it", ErrDisagree,
				user.pool))
		}
	}
	return nil
}

// manifests checks that each pool has a repository.
func (f *tablesFsck) manifests(ctx context.Context) error {
	for pair, err := range f.scan(ctx, tableManifest) {
		if err != nil {
			return err
		}
		if len(pair.Key) != 1+len(PoolID{}) {
			f.problem(segment.LayerID{}, object.ZeroID, fmt.Errorf("%w: key %x is no manifest's", segment.ErrFormat, pair.Key))
			continue
		}
		pool := PoolID(pair.Key[1:])
		isOwned, err := f.owned(ctx, pool)
		if err == nil && !isOwned {
			err = f.suspect(ctx, suspect{
				id: segment.LayerID(pool), problem: fmt.Errorf("%w: a pool that no repository has", ErrDisagree),
				stands: func(ctx context.Context) (bool, error) { return f.has(ctx, manifestKey(pool)) },
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// obsoleteEntries reads table d: an entry that cannot be read would keep all behind it waiting.
func (f *tablesFsck) obsoleteEntries(ctx context.Context) error {
	for pair, err := range f.scan(ctx, tableObsolete) {
		if err != nil {
			return err
		}
		e, err := segment.DecodeObsolete(pair.Key)
		if err == nil && e.Kind != segment.KindPool && !e.Kind.Known() {
			err = fmt.Errorf("%w: obsolete entry of kind %d", segment.ErrFormat, e.Kind)
		}
		if err != nil {
			f.problem(e.ID, object.ZeroID, err)
		}
	}
	return nil
}

// registrations checks that each registered file has a user. The check of the pool opens the file.
func (f *tablesFsck) registrations(ctx context.Context) error {
	for pair, err := range f.scan(ctx, tableRegistration) {
		if err != nil {
			return err
		}
		if len(pair.Key) != 1+len(segment.LayerID{}) {
			f.problem(segment.LayerID{}, object.ZeroID,
				fmt.Errorf("%w: key %x is no registration's", segment.ErrFormat, pair.Key))
			continue
		}
		id := segment.LayerID(pair.Key[1:])
		if _, err := segment.DecodeRegistration(pair.Value); err != nil {
			f.problem(id, object.ZeroID, err)
			continue
		}
		used, err := f.isUsed(ctx, id)
		if err == nil && !used {
			err = f.suspect(ctx, suspect{
				id: id, problem: fmt.Errorf("%w: a file is registered that no pool uses", ErrDisagree),
				stands: func(ctx context.Context) (bool, error) { return f.hasUnused(ctx, id, registrationKey(id)) },
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasUnused reports whether a key of a layer exists that no pool uses.
func (f *tablesFsck) hasUnused(ctx context.Context, id segment.LayerID, key []byte) (bool, error) {
	there, err := f.has(ctx, key)
	if !there || err != nil {
		return false, err
	}
	used, err := f.isUsed(ctx, id)
	return !used, err
}

// rows checks that each hot layer and each visibility set has a user. It reads one key of each.
func (f *tablesFsck) rows(ctx context.Context) error {
	for _, table := range append([]byte{hot.TableAdditions, tableVisibility}, hot.Tables...) {
		start := []byte{table}
		for {
			key, err := f.first(ctx, kv.ScanOptions{Start: start, End: kv.PrefixEnd([]byte{table})})
			if err != nil {
				return err
			}
			if key == nil {
				break
			}
			id, ok := hot.LayerOfKey(key)
			if table == tableVisibility {
				id, ok = visibilityOfKey(key)
			}
			if !ok {
				f.problem(segment.LayerID{}, object.ZeroID, fmt.Errorf("%w: key %x is no layer's", segment.ErrFormat, key))
				start = append(key, 0)
				continue
			}
			start = hot.Range(table, id).End
			used, err := f.isUsed(ctx, id)
			if err == nil && !used {
				err = f.suspect(ctx, suspect{
					id: id, problem: fmt.Errorf("%w: rows of a layer that no pool uses", ErrDisagree),
					stands: func(ctx context.Context) (bool, error) { return f.hasUnused(ctx, id, key) },
				})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// first returns the first key of a range, nil if there is none.
func (f *tablesFsck) first(ctx context.Context, keys kv.ScanOptions) ([]byte, error) {
	keys.Limit = 1
	for pair, err := range f.store.keys.Scan(ctx, keys) {
		if err != nil {
			return nil, err
		}
		return append([]byte(nil), pair.Key...), nil
	}
	return nil, nil
}

// unsettledAge is the age up to which a file that is not settled may lack a registration: that of a
// running push (docs/invariants.md 14).
const unsettledAge = 24 * time.Hour

// intents reads the rows about files that are being stored.
func (f *tablesFsck) intents(ctx context.Context) error {
	for err := range intent.Check(ctx, f.store.keys) {
		if !errors.Is(err, kv.ErrCorrupt) {
			return err
		}
		f.problem(segment.LayerID{}, object.ZeroID, err)
	}
	return nil
}

// files checks that each file is registered. Where files have intents, those that are not are what
// older releases have left, and no damage.
func (f *tablesFsck) files(ctx context.Context) error {
	if f.store.intents != nil {
		for info, err := range f.store.Unregistered(ctx) {
			if err != nil {
				return err
			}
			f.report.UnregisteredCount++
			f.report.UnregisteredBytes += info.Size
		}
		return nil
	}
	for info, err := range f.store.Files.List(ctx) {
		if err != nil {
			return err
		}
		id, ok := segment.LayerOfFile(info.Name)
		if !ok {
			f.problem(segment.LayerID{}, object.ZeroID,
				fmt.Errorf("%w: file %s has a name that nothing gave it", ErrDisagree, info.Name))
			continue
		}
		name, err := registeredName(ctx, f.store.keys, id)
		if errors.Is(err, ErrCorrupt) {
			continue // the registration has been reported
		}
		if err != nil {
			return err
		}
		if name == info.Name || !info.Settled && f.store.options.Now().Sub(info.Time) < unsettledAge {
			continue
		}
		if err := f.unregistered(ctx, id, info); err != nil {
			return err
		}
	}
	return nil
}

// unregistered reports a file, unless it has been removed meanwhile.
func (f *tablesFsck) unregistered(ctx context.Context, id segment.LayerID, info file.Info) error {
	open, err := f.store.Files.Open(ctx, info.Name)
	if errors.Is(err, file.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	f.problem(id, object.ZeroID, fmt.Errorf("%w: file %s of %d bytes is not registered", ErrDisagree, info.Name,
		info.Size))
	return open.Close()
}
