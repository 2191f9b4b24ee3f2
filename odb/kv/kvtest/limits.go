package kvtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"packhorse/odb/kv"
)

func testLimits(t *testing.T, h Harness) {
	t.Helper()
	key := bytes.Repeat([]byte("k"), kv.KeyBytesMax)
	longKey := append(bytes.Clone(key), 'k')
	value := bytes.Repeat([]byte("v"), kv.ValueBytesMax)
	longValue := append(bytes.Clone(value), 'v')
	tests := map[string]struct {
		build func(*kv.Batch)
		err   error
	}{
		"largest key":      {build: func(b *kv.Batch) { b.Put(key, nil) }},
		"largest value":    {build: func(b *kv.Batch) { b.Put([]byte("k"), value) }},
		"largest batch":    {build: func(b *kv.Batch) { fillBytes(b, kv.BatchBytesMax) }},
		"most keys":        {build: func(b *kv.Batch) { fillCount(b, kv.BatchCountMax) }},
		"key":              {build: func(b *kv.Batch) { b.Put(longKey, nil) }, err: kv.ErrTooLarge},
		"deleted key":      {build: func(b *kv.Batch) { b.Delete(longKey) }, err: kv.ErrTooLarge},
		"start of a range": {build: func(b *kv.Batch) { b.DeleteRange(longKey, []byte("z")) }, err: kv.ErrTooLarge},
		"end of a range":   {build: func(b *kv.Batch) { b.DeleteRange([]byte("a"), longKey) }, err: kv.ErrTooLarge},
		"required key":     {build: func(b *kv.Batch) { b.RequireAbsent(longKey) }, err: kv.ErrTooLarge},
		"value":            {build: func(b *kv.Batch) { b.Put([]byte("k"), longValue) }, err: kv.ErrTooLarge},
		"required value":   {build: func(b *kv.Batch) { b.Require([]byte("k"), longValue) }, err: kv.ErrTooLarge},
		"batch":            {build: func(b *kv.Batch) { fillBytes(b, kv.BatchBytesMax+1) }, err: kv.ErrTooLarge},
		"keys":             {build: func(b *kv.Batch) { fillCount(b, kv.BatchCountMax+1) }, err: kv.ErrTooLarge},
		"keys with preconditions": {
			build: func(b *kv.Batch) { fillCount(b, kv.BatchCountMax); b.RequireAbsent([]byte("k")) }, err: kv.ErrTooLarge,
		},
		"empty key":          {build: func(b *kv.Batch) { b.Put(nil, []byte("v")) }, err: kv.ErrEmptyKey},
		"empty deleted key":  {build: func(b *kv.Batch) { b.Delete(nil) }, err: kv.ErrEmptyKey},
		"empty required key": {build: func(b *kv.Batch) { b.RequireAbsent(nil) }, err: kv.ErrEmptyKey},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := h.open(t)
			batch := kv.NewBatch()
			if test.err != nil {
				batch.Put([]byte("before the refusal"), nil)
			}
			test.build(batch)
			if test.err != nil {
				batch.Put([]byte("after the refusal"), nil)
			}
			commit, err := store.Apply(t.Context(), batch)
			if !errors.Is(err, test.err) {
				t.Fatalf("got %v, want %v", err, test.err)
			}
			if err == nil {
				if err := commit.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var limit *kv.LimitError
			if errors.Is(err, kv.ErrTooLarge) && (!errors.As(err, &limit) || limit.Got <= limit.Max) {
				t.Errorf("got %#v", err)
			}
			visible := 0
			for _, err := range store.Scan(t.Context(), kv.ScanOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				visible++
			}
			applied := 0
			if test.err == nil {
				applied = batch.Count()
			}
			if visible != applied {
				t.Errorf("%d pairs are visible, want %d", visible, applied)
			}
		})
	}
}

// fillBytes makes b hold exactly size bytes.
func fillBytes(b *kv.Batch, size int) {
	var key [4]byte
	for n := uint32(0); b.Err() == nil && b.Size() < size; n++ {
		binary.BigEndian.PutUint32(key[:], n)
		b.Put(key[:], bytes.Repeat([]byte("v"), min(100_000, max(size-b.Size()-len(key), 0))))
	}
}

// fillCount makes b hold exactly count operations.
func fillCount(b *kv.Batch, count int) {
	var key [4]byte
	for n := b.Count(); b.Err() == nil && n < count; n++ {
		binary.BigEndian.PutUint32(key[:], uint32(n))
		b.Put(key[:], nil)
	}
}
