package upstream

import (
	"context"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// memory holds the state of the refs of a repository between two syncs, by name.
type memory struct {
	seen, held map[string]object.ID
}

// remembered reads the memory of a repository.
func remembered(ctx context.Context, r kv.Reader, repo refs.RepoID) (memory, error) {
	m := memory{seen: map[string]object.ID{}, held: map[string]object.ID{}}
	prefix := refsPrefix(repo)
	for pair, err := range r.Scan(ctx, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
		if err != nil {
			return memory{}, fmt.Errorf("read the last known refs of the upstream: %w", err)
		}
		if len(pair.Key) != len(prefix)+1+hashSize || len(pair.Value) <= object.IDSize {
			return memory{}, fmt.Errorf("%w: ref of an upstream, key of %d bytes, value of %d", errCorrupt, len(pair.Key),
				len(pair.Value))
		}
		rows := m.seen
		if kind(pair.Key[len(prefix)]) == held {
			rows = m.held
		}
		rows[string(pair.Value[object.IDSize:])] = object.ID(pair.Value[:object.IDSize])
	}
	return m, nil
}

// See records in b that a ref is equal on both sides, or for the zero ID that neither has it. It
// removes the held value.
func See(b *kv.Batch, repo refs.RepoID, name string, id object.ID) {
	if id.IsZero() {
		b.Delete(refKey(repo, seen, name))
	} else {
		b.Put(refKey(repo, seen, name), refValue(name, id))
	}
	b.Delete(refKey(repo, held, name))
}

// Hold adds to b that an import of old history gave the ref its value, or deleted it for the zero
// ID. Held values are not sent.
func Hold(b *kv.Batch, repo refs.RepoID, name string, id object.ID) {
	b.Put(refKey(repo, held, name), refValue(name, id))
}

func refValue(name string, id object.ID) []byte { return append(id[:], name...) }
