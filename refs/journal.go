package refs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"time"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// Entry is one change of one ref in the journal.
type Entry struct {
	// Sequence is the transaction, and Index the change within it.
	Sequence uint64
	Index    uint32
	// Ref is the stored name. Before is zero for a creation, After for a deletion.
	Ref           string
	Before, After object.ID
	// Actor, Time, Cause and Options are those of the transaction.
	Actor   string
	Time    time.Time
	Cause   string
	Options []string
	// Elsewhere are the positions of the transaction in the journals of the other repositories in
	// which it changed refs, in the order of its parts.
	Elsewhere []Position

	before, after *Ref // the states of the ref, nil for "absent"
	// mark is the random number by which the transaction changed the token of the head; zero if a
	// release wrote it that knew no tokens.
	mark uint64
	// prior is the head on which the transaction built, of which the sequence, the counts and the
	// token are known; nil if a release wrote the entry that kept no former states of refs.
	prior *head
}

// Position is a transaction in the journal of a repository.
type Position struct {
	Repo     RepoID
	Sequence uint64
}

// EventsMax bounds how many entries a page of [Store.Events] is asked for. A page ends with a whole
// transaction, so it may hold up to [UpdatesMax] more.
const EventsMax = 1000

// Page is a stretch of the journal.
type Page struct {
	Entries []Entry
	// Next is the last sequence that the page covers; pass it to get the next page.
	Next uint64
	// More reports whether the journal continues.
	More bool
}

// Events returns the entries of the transactions after a sequence, at least limit of them if there
// are as many, and all of them durable. Transactions that changed no ref have no entry.
//
// Errors: [ErrRepositoryNotFound]; [ErrTrimmed], when the journal no longer holds the transaction
// that follows after.
func (s *Store) Events(ctx context.Context, repo RepoID, after uint64, limit int) (Page, error) {
	limit = min(max(limit, 1), EventsMax)
	var page Page
	set := kv.ReadSet{Ranges: []kv.ScanOptions{journalRange(repo, after+1, 0, limit)}}
	err := s.readJournal(ctx, repo, set, func(rows kv.Reader) (err error) {
		page, err = readPage(ctx, rows, repo, after, limit)
		return err
	})
	return page, err
}

// journalRange selects entries from one on, probably enough for so many changes of refs: one more
// shows whether the journal continues, and a few transactions may have changed none.
func journalRange(repo RepoID, sequence uint64, index uint32, limit int) kv.ScanOptions {
	end := kv.PrefixEnd(tableKey(journalTable, repo, 0))
	return kv.ScanOptions{Start: journalKey(repo, sequence, index), End: end, Limit: limit + 4}
}

// readJournal calls do with the head and the rows of set, and if these are not enough again with
// all rows, each time as of one instant. It returns when what do has read is durable.
func (s *Store) readJournal(ctx context.Context, repo RepoID, set kv.ReadSet, do func(rows kv.Reader) error) error {
	set.Keys = append(set.Keys, headKey(repo))
	some, err := newPrefetch(ctx, s.kv, set)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	if err = do(some); errors.Is(err, errNotPrefetched) {
		var rows kv.Snapshot
		if rows, err = s.kv.Snapshot(ctx); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		err = errors.Join(do(rows), rows.Close())
	}
	if err != nil {
		return err
	}
	return s.WaitDurable(ctx, repo)
}

func readPage(ctx context.Context, rows kv.Reader, repo RepoID, after uint64, limit int) (Page, error) {
	head, err := readHead(ctx, rows, repo)
	if err != nil {
		return Page{}, err
	}
	page := Page{Next: after}
	for entry, err := range journal(ctx, rows, repo, after, head.sequence) {
		if err != nil {
			return Page{}, err
		}
		if entry.Index == 0 && len(page.Entries) >= limit {
			page.More = true
			break
		}
		page.Next = entry.Sequence
		if entry.Ref != "" {
			page.Entries = append(page.Entries, entry)
		}
	}
	return page, nil
}

// journal walks the entries of the transactions with after < sequence <= last, those without a
// change of a ref included. Errors: a [TrimmedError] when the first one is missing.
func journal(ctx context.Context, reader kv.Reader, repo RepoID, after, last uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if after >= last {
			return
		}
		var current Entry
		for pair, err := range reader.Scan(ctx, kv.ScanOptions{
			Start: journalKey(repo, after+1, 0), End: journalKey(repo, last+1, 0),
		}) {
			if err != nil {
				yield(Entry{}, fmt.Errorf("read journal: %w", err))
				return
			}
			entry, err := decodeEntry(pair, &current)
			if err == nil && entry.Index == 0 && entry.Sequence != after+1 {
				err = &TrimmedError{Oldest: entry.Sequence}
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			after = entry.Sequence
			if !yield(entry, nil) {
				return
			}
		}
		if after < last {
			yield(Entry{}, &TrimmedError{Oldest: last + 1})
		}
	}
}

// firstEntry returns the first entry of a transaction, and one with the fields that all of them
// share. Errors: kv.ErrNotFound when the transaction has been trimmed.
func firstEntry(
	ctx context.Context, reader getter, repo RepoID, sequence uint64,
) (first, shared Entry, err error) {
	key := journalKey(repo, sequence, 0)
	value, err := reader.Get(ctx, key)
	if err != nil {
		return Entry{}, Entry{}, fmt.Errorf("read journal: %w", err)
	}
	first, err = decodeEntry(kv.Pair{Key: key, Value: value}, &shared)
	return first, shared, err
}

type getter interface {
	Get(ctx context.Context, key []byte) ([]byte, error)
}

// entryVersion is the first byte of a row of the journal. Rows of rowVersion, and those of
// markedVersion, are read as well.
const (
	entryVersion  = 3
	markedVersion = 2
)

// Flags of an entry.
const (
	entryFirst     = 1 << iota // it is the first of its transaction, and has the shared fields
	entryBefore                // the ref existed
	entryAfter                 // the ref exists
	entryElsewhere             // the first one of a transaction that is in other journals too
)

// encodeEntry returns the value of a journal row:
//
//	version(1) flags(1) [mark(8) prior time(varint, Unix milliseconds) actor cause count(uvarint) option... [elsewhere]] ref [state before] [state after]
//
// Strings follow their size as a uvarint; the flags say which parts in brackets are present. prior
// is the head before:
//
//	token(8) count(uvarint) nameBytes(uvarint)
//
// and elsewhere the positions in other journals:
//
//	count(uvarint) and for each: repository(16) sequence(uvarint)
//
// Rows of version 1 have no mark, and those of version 2 no prior head and no former states.
func encodeEntry(entry *Entry) []byte {
	flags := byte(0)
	if entry.Index == 0 {
		flags |= entryFirst
	}
	if entry.before != nil {
		flags |= entryBefore
	}
	if entry.after != nil {
		flags |= entryAfter
	}
	if entry.Index == 0 && len(entry.Elsewhere) > 0 {
		flags |= entryElsewhere
	}
	dst := []byte{entryVersion, flags}
	if entry.Index == 0 {
		dst = binary.BigEndian.AppendUint64(dst, entry.mark)
		dst = binary.BigEndian.AppendUint64(dst, entry.prior.token)
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, entry.prior.count), entry.prior.nameBytes)
		dst = binary.AppendVarint(dst, entry.Time.UnixMilli())
		dst = appendString(dst, entry.Actor)
		dst = appendString(dst, entry.Cause)
		dst = binary.AppendUvarint(dst, uint64(len(entry.Options)))
		for _, option := range entry.Options {
			dst = appendString(dst, option)
		}
	}
	if flags&entryElsewhere != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(entry.Elsewhere)))
		for _, p := range entry.Elsewhere {
			dst = binary.AppendUvarint(append(dst, p.Repo[:]...), p.Sequence)
		}
	}
	dst = appendString(dst, entry.Ref)
	if entry.before != nil {
		dst = appendState(dst, entry.before)
	}
	if entry.after != nil {
		dst = appendState(dst, entry.after)
	}
	return dst
}

// decodePrior returns the head before a transaction from the value of its first entry, false if a
// release wrote that which kept no former states of refs.
func decodePrior(sequence uint64, value []byte) (prior head, known bool, err error) {
	if len(value) < 2 || value[0] < rowVersion || value[0] > entryVersion || value[1]&entryFirst == 0 {
		return head{}, false, corrupt("journal entry %d.0 is out of place", sequence)
	}
	if value[0] < entryVersion {
		return head{}, false, nil
	}
	d := decoder{rest: value[2:]}
	d.uint64() // the mark
	prior = d.prior(sequence)
	return prior, true, d.err
}

// prior decodes the head before a transaction.
func (d *decoder) prior(sequence uint64) head {
	return head{sequence: sequence - 1, token: d.uint64(), count: d.uvarint(), nameBytes: d.uvarint()}
}

// decodeEntry returns the entry of a row. Between the rows of one walk, current carries the shared
// fields of a transaction.
func decodeEntry(pair kv.Pair, current *Entry) (Entry, error) {
	sequence, index, err := journalPosition(pair.Key)
	if err != nil {
		return Entry{}, err
	}
	d := decoder{rest: pair.Value}
	version := d.byte()
	if d.err == nil && (version < rowVersion || version > entryVersion) {
		d.err = corrupt("row of version %d", version)
	}
	flags := d.byte()
	if first := flags&entryFirst != 0; first != (index == 0) || !first && current.Sequence != sequence {
		return Entry{}, corrupt("journal entry %d.%d is out of place", sequence, index)
	}
	if index == 0 {
		mark, prior := uint64(0), (*head)(nil)
		if version >= markedVersion {
			mark = d.uint64()
		}
		if version == entryVersion {
			prior = new(d.prior(sequence))
		}
		*current = Entry{
			Sequence: sequence, mark: mark, prior: prior,
			Time: time.UnixMilli(d.varint()).UTC(), Actor: d.string(), Cause: d.string(),
		}
		for count := d.uvarint(); count > 0 && d.err == nil; count-- {
			current.Options = append(current.Options, d.string())
		}
		if flags&entryElsewhere != 0 {
			for count := d.uvarint(); count > 0 && d.err == nil; count-- {
				var p Position
				copy(p.Repo[:], d.take(len(p.Repo)))
				p.Sequence = d.uvarint()
				current.Elsewhere = append(current.Elsewhere, p)
			}
		}
	}
	entry := *current
	entry.Index, entry.Ref = index, d.string()
	if flags&entryBefore != 0 {
		entry.before = &Ref{Name: entry.Ref}
		d.state(entry.before)
		entry.Before = entry.before.ID
	}
	if flags&entryAfter != 0 {
		entry.after = &Ref{Name: entry.Ref}
		d.state(entry.after)
		entry.After = entry.after.ID
	}
	if err := d.end(); err != nil {
		return Entry{}, fmt.Errorf("read journal entry %d.%d: %w", sequence, index, err)
	}
	return entry, nil
}
