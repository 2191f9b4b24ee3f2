package refs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"packhorse/odb/kv"
)

// FsckReport is the result of [Store.Fsck].
type FsckReport struct {
	// RefCount and EntryCount are the numbers of checked refs and journal entries.
	RefCount, EntryCount int64
	// ProblemCount is how many problems there are, and Problems the first of them. They match
	// [ErrCorrupt].
	ProblemCount int64
	Problems     []error
}

const (
	// fsckProblemsMax bounds the problems that a report holds.
	fsckProblemsMax = 1000
	// fsckNamesMax is the approximate number of names in the journal that are held at once; more of
	// them take several passes.
	fsckNamesMax = 100_000
)

// fsckTriesMax is how often a check begins anew because the repository has changed.
const fsckTriesMax = 3

// Fsck verifies the refs of a repository, as of one instant: that every row can be read, that the
// head counts the refs, that branches can be listed in the order of their creation, that the
// journal is without gaps up to the head, and that each change in it begins where the one before it
// ended and leads to the current value of the ref, and that the former states of refs are those
// that the journal tells, no more and no fewer. It cannot verify trimmed entries.
//
// The report lists the faults. Errors: [ErrRepositoryNotFound]; [ErrBusy] when the repository
// changes while a check takes longer than a snapshot lives; and those that keep the check from
// being finished.
func (s *Store) Fsck(ctx context.Context, repo RepoID) (*FsckReport, error) {
	for range fsckTriesMax {
		report, err := s.fsck(ctx, repo)
		if !errors.Is(err, errMoved) {
			return report, err
		}
	}
	return nil, fmt.Errorf("check refs: %w: it changes faster than it can be checked", ErrBusy)
}

func (s *Store) fsck(ctx context.Context, repo RepoID) (*FsckReport, error) {
	rows, err := openSteady(ctx, s.kv, repo)
	if err != nil {
		return nil, fmt.Errorf("check refs: %w", err)
	}
	f := &fsck{rows: rows, repo: repo, report: &FsckReport{}}
	err = f.run(ctx)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, kv.ErrCorrupt) {
		f.problem(err)
		err = nil
	}
	if err = errors.Join(err, rows.Close()); err != nil {
		return nil, fmt.Errorf("check refs: %w", err)
	}
	return f.report, nil
}

// fsck is one run of [Store.Fsck].
type fsck struct {
	rows   *steady
	repo   RepoID
	head   head
	oldest uint64 // sequence that the journal begins with; beyond the head when it is empty
	report *FsckReport
}

func (f *fsck) problem(err error) {
	f.report.ProblemCount++
	if len(f.report.Problems) < fsckProblemsMax {
		f.report.Problems = append(f.report.Problems, err)
	}
}

func (f *fsck) run(ctx context.Context) (err error) {
	if f.head, err = f.rows.head(); err != nil {
		return err
	}
	if err := f.refs(ctx); err != nil {
		return err
	}
	if err := f.creations(ctx); err != nil {
		return err
	}
	entries, err := f.sequences(ctx)
	if err != nil {
		return err
	}
	if err := f.formers(ctx); err != nil {
		return err
	}
	if err := f.history(ctx); err != nil {
		return err
	}
	passes := uint32(entries/fsckNamesMax + 1)
	for pass := range passes {
		if err := f.changes(ctx, func(name string) bool { return nameHash(name)%passes == pass }); err != nil {
			return err
		}
	}
	return nil
}

func nameHash(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum32()
}

// scan calls visit with the rows of a table. An error of visit is a problem of that row.
func (f *fsck) scan(ctx context.Context, table byte, visit func(pair kv.Pair) error) error {
	prefix := tableKey(table, f.repo, 0)
	for pair, err := range f.rows.Scan(ctx, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
		if err != nil {
			return err
		}
		err := visit(pair)
		if errors.Is(err, ErrCorrupt) {
			f.problem(err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// refs reads every ref and counts.
func (f *fsck) refs(ctx context.Context) error {
	var count, nameBytes uint64
	var branches lookups
	err := f.scan(ctx, refTable, func(pair kv.Pair) error {
		count++
		ref, err := decodeRow(pair.Key[1+len(f.repo):], pair.Value)
		if err != nil {
			return err
		}
		nameBytes += uint64(len(ref.Name))
		if string(refKey(f.repo, ref.Name)) != string(pair.Key) {
			return corrupt("ref %q lies under the key of another name", ref.Name)
		}
		if ref.Created.Sequence > f.head.sequence {
			return corrupt("ref %q was created by transaction %d, the last one is %d", ref.Name, ref.Created.Sequence,
				f.head.sequence)
		}
		ns, short := SplitNamespace(ref.Name)
		if len(short) <= len(branchPrefix) || short[:len(branchPrefix)] != branchPrefix {
			return nil
		}
		return f.lookUp(ctx, &branches, creationKey(f.repo, ns, ref.Created), func(name []byte) error {
			if string(name) != ref.Name {
				return corrupt("branch %q is not listed by its creation", ref.Name)
			}
			return nil
		})
	})
	if err == nil {
		err = f.flush(ctx, &branches)
	}
	f.report.RefCount = int64(count)
	if err == nil && (count != f.head.count || nameBytes != f.head.nameBytes) {
		f.problem(corrupt("the head counts %d refs with %d bytes of names, there are %d with %d", f.head.count,
			f.head.nameBytes, count, nameBytes))
	}
	return err
}

// creations looks up the branch of each row of the order of creation.
func (f *fsck) creations(ctx context.Context) error {
	var branches lookups
	err := f.scan(ctx, creationTable, func(pair kv.Pair) error {
		key := pair.Key[1+len(f.repo):]
		if len(key) != 1+8+4 {
			return corrupt("creation key of %d bytes", len(pair.Key))
		}
		at := Creation{Sequence: binary.BigEndian.Uint64(key[1:]), Index: binary.BigEndian.Uint32(key[9:])}
		name := string(pair.Value)
		named := refKey(f.repo, name)
		return f.lookUp(ctx, &branches, named, func(value []byte) error {
			ref := Ref{}
			if value != nil {
				var err error
				if ref, err = decodeNamed(named, value, name); err != nil {
					return nil //nolint:nilerr // already reported for the row
				}
			}
			if value == nil || ref.Created != at {
				return corrupt("the creation %d.%d is that of no branch %q", at.Sequence, at.Index, name)
			}
			return nil
		})
	})
	if err == nil {
		err = f.flush(ctx, &branches)
	}
	return err
}

// lookups are rows that are read together.
type lookups struct {
	keys   [][]byte
	checks []func(value []byte) error
}

// lookUp has check called with the value of a key, nil if there is none, at the latest by
// [fsck.flush]. An error of check is a problem of the row that was scanned.
func (f *fsck) lookUp(ctx context.Context, l *lookups, key []byte, check func(value []byte) error) error {
	l.keys, l.checks = append(l.keys, key), append(l.checks, check)
	if len(l.keys) < kv.ReadCountMax {
		return nil
	}
	return f.flush(ctx, l)
}

// flush reads what has been put off.
func (f *fsck) flush(ctx context.Context, l *lookups) error {
	values, err := readKeys(ctx, f.rows, l.keys)
	if err != nil {
		return err
	}
	for i, check := range l.checks {
		if err := check(values[i]); errors.Is(err, ErrCorrupt) {
			f.problem(err)
		} else if err != nil {
			return err
		}
	}
	*l = lookups{}
	return nil
}

// sequences looks for gaps in the journal, and for former states that it tells and that are not
// there. It returns the number of its entries.
func (f *fsck) sequences(ctx context.Context) (int64, error) {
	f.oldest = f.head.sequence + 1
	var current Entry
	var last, token uint64
	var next uint32 // index in the transaction
	var chain chain
	var former lookups
	err := f.scan(ctx, journalTable, func(pair kv.Pair) error {
		f.report.EntryCount++
		sequence, index, err := journalPosition(pair.Key)
		if err != nil {
			return err
		}
		first := f.report.EntryCount == 1
		if first {
			f.oldest = sequence
		}
		if sequence == last && index == next || !first && sequence == last+1 && index == 0 || first && index == 0 {
			last, next = sequence, index+1
		} else {
			last, next, chain = sequence, index+1, chain.cut()
			return corrupt("the journal has a gap before entry %d.%d", sequence, index)
		}
		entry, err := decodeEntry(pair, &current)
		if index == 0 {
			token ^= current.mark
		}
		if err != nil {
			chain = chain.cut()
			return err
		}
		if entry.prior != nil && entry.before != nil {
			if err := f.lookUp(ctx, &former, formerKey(f.repo, entry.Ref, sequence, index), func(value []byte) error {
				return checkFormer(&entry, value)
			}); err != nil {
				return err
			}
		}
		return chain.add(&entry)
	})
	if err == nil {
		err = f.flush(ctx, &former)
	}
	if err == nil {
		if err := chain.end(f.head); err != nil {
			f.problem(err)
		}
	}
	switch {
	case err != nil || f.report.EntryCount == 0:
	case last != f.head.sequence:
		f.problem(corrupt("the journal ends with transaction %d, the head is at %d", last, f.head.sequence))
	case f.oldest == 1 && f.report.ProblemCount == 0 && token != f.head.token:
		f.problem(corrupt("the journal leads to another token than that of the head"))
	}
	return f.report.EntryCount, err
}

// chain follows the heads that the entries of a journal lead along.
type chain struct {
	next  head // behind the last entry; its sequence is 0 while that is not known
	began bool // there was an entry that knows the head before
}

// cut returns the chain behind a fault.
func (c chain) cut() chain { return chain{began: c.began} }

// add goes on by an entry.
func (c *chain) add(entry *Entry) error {
	if entry.prior == nil {
		if c.began && entry.Index == 0 {
			return corrupt("journal entry %d.0 is of an older version than those before it", entry.Sequence)
		}
		return nil
	}
	c.began = true
	var err error
	if entry.Index == 0 {
		prior := *entry.prior
		if c.next.sequence > 0 && (prior.version() != c.next.version() || prior.count != c.next.count ||
			prior.nameBytes != c.next.nameBytes) {
			err = corrupt("journal entry %d.0 does not build on the head that the one before has left", entry.Sequence)
		}
		millis := uint64(max(entry.Time.UnixMilli(), 0))
		if err == nil && millis < c.next.millis {
			err = corrupt("journal entry %d.0 happened before the one before", entry.Sequence)
		}
		c.next = prior
		c.next.sequence, c.next.token, c.next.millis = entry.Sequence, prior.token^entry.mark, millis
	}
	if entry.before != nil {
		c.next.count--
		c.next.nameBytes -= uint64(len(entry.Ref))
	}
	if entry.after != nil {
		c.next.count++
		c.next.nameBytes += uint64(len(entry.Ref))
	}
	return err
}

// end compares where the chain ends with the head.
func (c *chain) end(now head) error {
	if c.next.sequence != now.sequence {
		return nil // unknown, or told of already
	}
	if c.next.version() != now.version() {
		return corrupt("the journal leads to another token than that of the head")
	}
	if c.next.count != now.count || c.next.nameBytes != now.nameBytes {
		return corrupt("the journal leads to %d refs with %d bytes of names, the head counts %d with %d", c.next.count,
			c.next.nameBytes, now.count, now.nameBytes)
	}
	if c.next.millis > now.millis {
		return corrupt("the head is older than the last entry of the journal")
	}
	return nil
}

// checkFormer compares the state before an entry with the row that should have it.
func checkFormer(entry *Entry, value []byte) error {
	if value == nil {
		return corrupt("the state of %q before entry %d.%d is missing", entry.Ref, entry.Sequence, entry.Index)
	}
	ref, err := decodeFormer(formerPrefix(RepoID{}, entry.Ref), value)
	if err == nil && !sameState(&ref, entry.before) {
		err = corrupt("the state of %q before entry %d.%d is another one", entry.Ref, entry.Sequence, entry.Index)
	}
	return err
}

// history reads the floor of the history.
func (f *fsck) history(ctx context.Context) error {
	return f.scan(ctx, historyTable, func(pair kv.Pair) error {
		floor, err := decodeHistoryFloor(pair.Value)
		if err == nil && floor.Sequence > f.head.sequence {
			err = corrupt("the history begins at %d, the last transaction is %d", floor.Sequence, f.head.sequence)
		}
		return err
	})
}

// formers looks up the journal entry of each former state.
func (f *fsck) formers(ctx context.Context) error {
	var entries lookups
	err := f.scan(ctx, formerTable, func(pair kv.Pair) error {
		if len(pair.Key) == len(floorKey(f.repo)) {
			_, err := decodeFloor(pair.Value)
			return err
		}
		prefix, sequence, index, err := splitFormer(pair.Key)
		if err != nil {
			return err
		}
		ref, err := decodeFormer(prefix, pair.Value)
		if err != nil {
			return err
		}
		key := journalKey(f.repo, sequence, index)
		return f.lookUp(ctx, &entries, key, func(value []byte) error {
			if len(value) > 0 && value[0] == entryVersion {
				shared := Entry{Sequence: sequence}
				entry, err := decodeEntry(kv.Pair{Key: key, Value: value}, &shared)
				if err != nil || entry.Ref == ref.Name && entry.before != nil {
					return nil //nolint:nilerr // the entry has been told of
				}
			}
			return corrupt("the journal does not tell of a former state of %q before entry %d.%d", ref.Name, sequence, index)
		})
	})
	if err == nil {
		err = f.flush(ctx, &entries)
	}
	return err
}

// changes checks the journal entries of some names against each other and against the refs.
func (f *fsck) changes(ctx context.Context, takes func(name string) bool) error {
	states := make(map[string]*Ref) // nil: deleted
	var current Entry
	err := f.scan(ctx, journalTable, func(pair kv.Pair) error {
		entry, err := decodeEntry(pair, &current)
		if err != nil || entry.Ref == "" || !takes(entry.Ref) {
			return nil //nolint:nilerr // the entry has been told of
		}
		was, known := states[entry.Ref]
		states[entry.Ref] = entry.after
		if known && !sameState(was, entry.before) {
			return corrupt("journal entry %d.%d changes %q from what it was not", entry.Sequence, entry.Index, entry.Ref)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = f.scan(ctx, refTable, func(pair kv.Pair) error {
		ref, err := decodeRow(pair.Key[1+len(f.repo):], pair.Value)
		if err != nil || !takes(ref.Name) {
			return nil //nolint:nilerr // the row has been told of
		}
		state, known := states[ref.Name]
		delete(states, ref.Name)
		switch {
		case !known && ref.Created.Sequence >= f.oldest:
			return corrupt("the journal does not tell of the creation of %q", ref.Name)
		case known && !sameState(state, &ref):
			return corrupt("ref %q is at %s, the journal left it elsewhere", ref.Name, ref.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, state := range states {
		if state != nil {
			f.problem(corrupt("ref %q is missing, the journal left it at %s", name, state.ID))
		}
	}
	return nil
}

// sameState compares refs of one name; nil is none.
func sameState(a, b *Ref) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
