package kv_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"packhorse/odb/kv"
)

func TestBatchAppend(t *testing.T) {
	t.Parallel()
	added, direct := kv.NewBatch(), kv.NewBatch()
	added.Put([]byte("a"), []byte("0"))
	other := kv.NewBatch()
	fill := func(b *kv.Batch) {
		b.Put([]byte("a"), []byte("1"))
		b.Delete([]byte("b"))
		b.DeleteRange([]byte("c"), []byte("d"))
		b.Put([]byte("c"), nil)
		b.Require([]byte("e"), []byte("2"))
		b.RequireAbsent([]byte("f"))
	}
	fill(other)
	added.Append(other)
	direct.Put([]byte("a"), []byte("0"))
	fill(direct)
	same := func(x, y kv.Operation) bool {
		return x.Kind == y.Kind && bytes.Equal(x.Key, y.Key) && bytes.Equal(x.Value, y.Value) && bytes.Equal(x.End, y.End)
	}
	if a, d := slices.Collect(added.Operations()), slices.Collect(direct.Operations()); !slices.EqualFunc(a, d, same) {
		t.Errorf("operations %+v, want %+v", a, d)
	}
	equal := func(x, y kv.Precondition) bool {
		return x.Absent == y.Absent && bytes.Equal(x.Key, y.Key) && bytes.Equal(x.Value, y.Value)
	}
	required, want := slices.Collect(added.Preconditions()), slices.Collect(direct.Preconditions())
	if !slices.EqualFunc(required, want, equal) {
		t.Errorf("preconditions %+v, want %+v", required, want)
	}

	other = kv.NewBatch()
	other.Put(nil, nil)
	added.Append(other)
	if !errors.Is(added.Err(), kv.ErrEmptyKey) {
		t.Errorf("a refused batch was added: %v", added.Err())
	}
}
