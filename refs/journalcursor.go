package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"packhorse/odb/kv"
)

// JournalCursor is a position in a repository's journal: behind a transaction, or behind one of its
// changes. The zero cursor is before the first transaction.
type JournalCursor struct {
	Sequence uint64
	// Partial says that the position is behind the change of that index, which is not the last one of
	// the transaction.
	Partial bool
	Index   uint32
}

// String returns the sequence, with a dot and the index for a partial cursor.
func (c JournalCursor) String() string {
	text := strconv.FormatUint(c.Sequence, 10)
	if c.Partial {
		text += "." + strconv.FormatUint(uint64(c.Index), 10)
	}
	return text
}

// ParseJournalCursor returns the cursor that String wrote. Errors: [ErrInvalidJournalCursor].
func ParseJournalCursor(text string) (JournalCursor, error) {
	whole, part, partial := strings.Cut(text, ".")
	sequence, err := strconv.ParseUint(whole, 10, 64)
	c := JournalCursor{Sequence: sequence, Partial: partial}
	if partial && err == nil {
		var index uint64
		index, err = strconv.ParseUint(part, 10, 32)
		c.Index = uint32(index)
	}
	if err != nil || c.String() != text || partial && (sequence == 0 || c.Index >= UpdatesMax) {
		return JournalCursor{}, fmt.Errorf("%w: %.40q", ErrInvalidJournalCursor, text)
	}
	return c, nil
}

// JournalEvent is a change of a ref, and the position behind it.
type JournalEvent struct {
	Entry
	Cursor JournalCursor
}

// JournalPage is a stretch of the journal that may begin and end within a transaction.
type JournalPage struct {
	Events []JournalEvent
	Next   JournalCursor
	More   bool
}

// EventsBehind is [Store.Events] for a position that may be within a transaction, with at most
// limit events.
func (s *Store) EventsBehind(ctx context.Context, repo RepoID, after JournalCursor, limit int) (JournalPage, error) {
	limit = min(max(limit, 1), EventsMax)
	set := kv.ReadSet{Ranges: []kv.ScanOptions{journalRange(repo, after.Sequence+1, 0, limit)}}
	if after.Partial {
		set.Ranges[0] = journalRange(repo, after.Sequence, after.Index+1, limit)
		set.Keys = [][]byte{journalKey(repo, after.Sequence, 0)}
	}
	var page JournalPage
	err := s.readJournal(ctx, repo, set, func(rows kv.Reader) (err error) {
		page, err = readBehind(ctx, rows, repo, after, limit)
		return err
	})
	return page, err
}

func readBehind(
	ctx context.Context, rows kv.Reader, repo RepoID, after JournalCursor, limit int,
) (JournalPage, error) {
	head, err := readHead(ctx, rows, repo)
	if err != nil {
		return JournalPage{}, err
	}
	page := JournalPage{Next: after}
	whole := true // the last event ends its transaction
	for entry, err := range journalBehind(ctx, rows, repo, after, head.sequence) {
		if err != nil {
			return JournalPage{}, err
		}
		if len(page.Events) == limit {
			page.More, whole = true, entry.Sequence != page.Next.Sequence
			break
		}
		if entry.Index > 0 && len(page.Events) > 0 {
			page.Events[len(page.Events)-1].Cursor.Partial = true
		}
		page.Next = JournalCursor{Sequence: entry.Sequence, Index: entry.Index}
		if entry.Ref != "" {
			page.Events = append(page.Events, JournalEvent{Entry: entry, Cursor: page.Next})
		}
	}
	if !whole {
		page.Next.Partial = true
		page.Events[len(page.Events)-1].Cursor.Partial = true
	}
	return page, nil
}

// journalBehind is journal from a cursor on.
func journalBehind(
	ctx context.Context, rows kv.Reader, repo RepoID, after JournalCursor, last uint64,
) iter.Seq2[Entry, error] {
	if !after.Partial || after.Sequence > last {
		return journal(ctx, rows, repo, after.Sequence, last)
	}
	return func(yield func(Entry, error) bool) {
		_, shared, err := firstEntry(ctx, rows, repo, after.Sequence)
		if errors.Is(err, kv.ErrNotFound) { // trimmed: this says from where on the journal is there
			journal(ctx, rows, repo, after.Sequence-1, last)(yield)
			return
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for pair, err := range rows.Scan(ctx, kv.ScanOptions{
			Start: journalKey(repo, after.Sequence, after.Index+1), End: journalKey(repo, after.Sequence+1, 0),
		}) {
			var entry Entry
			if err == nil {
				entry, err = decodeEntry(pair, &shared)
			}
			if !yield(entry, err) || err != nil {
				return
			}
		}
		journal(ctx, rows, repo, after.Sequence, last)(yield)
	}
}
