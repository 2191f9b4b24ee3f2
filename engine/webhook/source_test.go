package webhook_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

	"packhorse/engine/webhook"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// source is the host.
type source struct{ w *world }

func (s source) Hooks(string) []webhook.Hook {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return slices.Clone(s.w.hooks)
}

func (s source) Repository(ctx context.Context, id refs.RepoID) (webhook.Repository, error) {
	_, err := s.w.names.Head(ctx, id)
	return webhook.Repository{ID: id, Org: "acme", Name: fmt.Sprintf("repo-%d", id[15])}, err
}

func (s source) Events(ctx context.Context, id refs.RepoID, after uint64, limit int) (refs.Page, error) {
	page, err := s.w.names.Events(ctx, id, after, limit)
	page.Entries = slices.DeleteFunc(page.Entries, func(entry refs.Entry) bool {
		return strings.Contains(entry.Ref, "/notes/")
	})
	return page, err
}

func outboxKey(id refs.RepoID, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte("O"), id[:]...), sequence)
}

func (s source) sequences(ctx context.Context, start, end []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for pair, err := range s.w.keys.Scan(ctx, kv.ScanOptions{Start: start, End: end}) {
			if !yield(slices.Clone(pair.Key), err) {
				return
			}
		}
	}
}

func (s source) Waiting(ctx context.Context) iter.Seq2[refs.RepoID, error] {
	return func(yield func(refs.RepoID, error) bool) {
		for key, err := range s.sequences(ctx, []byte("O"), []byte("P")) {
			if err != nil {
				yield(refs.RepoID{}, err)
				return
			}
			if !yield(refs.RepoID(key[1:17]), nil) {
				return
			}
		}
	}
}

func (s source) Span(ctx context.Context, id refs.RepoID, after uint64) (first, last uint64, found bool, err error) {
	for key, err := range s.sequences(ctx, outboxKey(id, after+1), outboxKey(id, 1<<62)) {
		if err != nil {
			return 0, 0, false, err
		}
		last = binary.BigEndian.Uint64(key[17:])
		if !found {
			first, found = last, true
		}
	}
	return first, last, found, nil
}

func (s source) Take(b *kv.Batch, id refs.RepoID, first, last uint64) {
	b.Require(outboxKey(id, first), nil)
	b.DeleteRange(outboxKey(id, first), outboxKey(id, last+1))
}
