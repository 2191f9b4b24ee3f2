package object_test

import (
	"errors"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

func TestHashAgreesWithGit(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	for name, test := range checkCases {
		want := r.Write(test.kind.String(), []byte(test.data))
		if got, err := object.Hash(test.kind, []byte(test.data)); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v, git has %s", name, got, err, want)
		}
	}
	if id, err := object.Hash(object.TypeTree, nil); err != nil || id != object.EmptyTreeID {
		t.Errorf("empty tree: %s, %v", id, err)
	}
}

func TestHasherInPieces(t *testing.T) {
	t.Parallel()
	data := []byte(strings.Repeat("packhorse ", 5000))
	want, err := object.Hash(object.TypeBlob, data)
	if err != nil {
		t.Fatal(err)
	}
	h := object.NewHasher(object.TypeCommit, 3)
	if _, err := h.Write([]byte("four")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Sum(); !errors.Is(err, object.ErrSize) {
		t.Errorf("too much: error %v", err)
	}
	h.Reset(object.TypeBlob, int64(len(data)))
	if _, err := h.Sum(); !errors.Is(err, object.ErrSize) {
		t.Errorf("too little: error %v", err)
	}
	for piece := data; len(piece) > 0; {
		n := min(len(piece), 777)
		if _, err := h.Write(piece[:n]); err != nil {
			t.Fatal(err)
		}
		piece = piece[n:]
	}
	for range 2 {
		if got, err := h.Sum(); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	for name, size := range map[string]int{"200B": 200, "4KiB": 4 << 10, "1MiB": 1 << 20} {
		data := make([]byte, size)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := object.Hash(object.TypeBlob, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
