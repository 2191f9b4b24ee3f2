package kv_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
)

func TestSmoke(t *testing.T) {
	p, err := kv.OpenPebble("db", kv.PebbleOptions{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	b := kv.NewBatch()
	b.RequireAbsent([]byte("a"))
	b.Put([]byte("a"), []byte("1"))
	c, err := p.Apply(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitDurable(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context(), b); !errors.Is(err, kv.ErrConflict) {
		t.Fatal(err)
	}
	for pair, err := range p.Scan(t.Context(), kv.ScanOptions{}) {
		t.Log(pair, err)
	}
	s, _ := p.Snapshot(t.Context())
	v, err := s.Get(t.Context(), []byte("a"))
	t.Log(v, err)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}
