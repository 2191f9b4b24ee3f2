package delta_test

import (
	"bytes"
	"errors"
	"testing"

	"packhorse/pack/delta"
)

// FuzzDeltaCreate holds that applying a created delta to its base gives the target, in memory and
// by offset.
func FuzzDeltaCreate(f *testing.F) {
	text := bytes.Repeat([]byte("a line that repeats itself\n"), 40)
	f.Add(text, text[5:])
	f.Add(text, append(bytes.Clone(text[300:]), text[:400]...))
	f.Add([]byte{}, []byte("x"))
	f.Add(make([]byte, 300), make([]byte, 200))
	f.Fuzz(func(t *testing.T, base, target []byte) {
		program, ok := delta.NewIndex(base).Create(nil, target, 2*len(target)+32)
		if !ok {
			t.Fatal("a delta twice as long as its target")
		}
		got, err := delta.Apply(nil, base, program, int64(len(target)))
		if err != nil || !bytes.Equal(got, target) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(target), err)
		}
		var index delta.Index
		between, ok := index.Between(nil, base, target, 2*len(target)+32)
		if !ok {
			t.Fatal("a delta between two versions is twice as long as its target")
		}
		if got, err := delta.Apply(nil, base, between, int64(len(target))); err != nil || !bytes.Equal(got, target) {
			t.Fatalf("between: %d bytes of %d, %v", len(got), len(target), err)
		}
		if baseSize, result, err := delta.Sizes(program); err != nil || baseSize != int64(len(base)) ||
			result != int64(len(target)) {
			t.Errorf("sizes %d and %d, %v", baseSize, result, err)
		}
	})
}

// FuzzDeltaApply holds that applying any bytes allocates no more than allowed, and gives the same
// in memory and by offset.
func FuzzDeltaApply(f *testing.F) {
	f.Add([]byte("hello"), []byte("\x05\x06\x90\x05\x01!"))
	f.Add([]byte("hello"), []byte("\x05\xff\xff\xff\x7f\x80"))
	f.Add([]byte("hello"), []byte("\x05\x05\xff\x00\x00\x00\x00\x05\x00\x00"))
	f.Add([]byte(""), []byte("\x00\x02\x02hi"))
	const sizeMax = 4 << 20
	f.Fuzz(func(t *testing.T, base, program []byte) {
		got, err := delta.Apply(nil, base, program, sizeMax)
		if cap(got) > sizeMax+sizeMax/4 {
			t.Errorf("%d bytes allocated", cap(got))
		}
		var streamed bytes.Buffer
		n, streamErr := delta.ApplyAt(&streamed, bytes.NewReader(base), int64(len(base)), bytes.NewReader(program), sizeMax)
		switch {
		case (err == nil) != (streamErr == nil):
			t.Errorf("in memory %v, by offset %v", err, streamErr)
		case err == nil && (n != int64(len(got)) || !bytes.Equal(got, streamed.Bytes())):
			t.Errorf("%d bytes in memory, %d by offset", len(got), n)
		case err != nil && !errors.Is(err, delta.ErrCorrupt) && !errors.Is(err, delta.ErrTooLarge):
			t.Errorf("an error of another kind: %v", err)
		}
	})
}
