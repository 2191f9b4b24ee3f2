package delta_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/pack/delta"
)

var applyCases = map[string]struct {
	base, delta, want string
	err               error
}{
	"copy then insert":        {base: "hello", delta: "\x05\x06\x90\x05\x01!", want: "hello!"},
	"insert only":             {base: "", delta: "\x00\x02\x02hi", want: "hi"},
	"nothing":                 {base: "hello", delta: "\x05\x00"},
	"copy with offset":        {base: "hello", delta: "\x05\x02\x91\x03\x02", want: "lo"},
	"copy twice":              {base: "ab", delta: "\x02\x04\x90\x02\x90\x02", want: "abab"},
	"copy of 64 KiB":          {base: long, delta: "\x80\x80\x04\x80\x80\x04\x80", want: long},
	"copy past base":          {base: "hello", delta: "\x05\x06\x90\x06", err: delta.ErrCorrupt},
	"copy begins past base":   {base: "hello", delta: "\x05\x01\x91\x05\x01", err: delta.ErrCorrupt},
	"copy offset overflows":   {base: "hello", delta: "\x05\x01\x9f\xff\xff\xff\xff\x01", err: delta.ErrCorrupt},
	"copy of 16 MiB":          {base: "hello", delta: "\x05\x05\xf0\xff\xff\xff", err: delta.ErrCorrupt},
	"copy past result":        {base: "hello", delta: "\x05\x04\x90\x05", err: delta.ErrCorrupt},
	"copy cut off in offset":  {base: "hello", delta: "\x05\x05\x93\x00", err: delta.ErrCorrupt},
	"copy cut off in size":    {base: "hello", delta: "\x05\x05\x90", err: delta.ErrCorrupt},
	"reserved":                {base: "hello", delta: "\x05\x05\x00", err: delta.ErrCorrupt},
	"insert cut off":          {base: "", delta: "\x00\x02\x02h", err: delta.ErrCorrupt},
	"insert without a byte":   {base: "", delta: "\x00\x01\x01", err: delta.ErrCorrupt},
	"insert past result":      {base: "", delta: "\x00\x01\x02hi", err: delta.ErrCorrupt},
	"result too short":        {base: "hello", delta: "\x05\x06\x90\x05", err: delta.ErrCorrupt},
	"no instructions":         {base: "hello", delta: "\x05\x01", err: delta.ErrCorrupt},
	"other base":              {base: "hell", delta: "\x05\x05\x90\x05", err: delta.ErrCorrupt},
	"empty":                   {err: delta.ErrCorrupt},
	"one size":                {delta: "\x00", err: delta.ErrCorrupt},
	"size cut off":            {delta: "\x00\x80", err: delta.ErrCorrupt},
	"size too long":           {delta: "\x00\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", err: delta.ErrCorrupt},
	"too large":               {base: "hello", delta: "\x05\x81\x80\x80\x08\x90\x05", err: delta.ErrTooLarge},
	"large claim":             {base: "hello", delta: "\x05\x80\x80\x80\x07\x90\x05", err: delta.ErrCorrupt},
	"large claim and reserve": {base: "hello", delta: "\x05\x80\x80\x80\x07\x00\x90\x05", err: delta.ErrCorrupt},
	"large claim and cut off": {base: "hello", delta: "\x05\x80\x80\x80\x07\x90", err: delta.ErrCorrupt},
}

var long = strings.Repeat("0123456789abcdef", 4096)

const sizeMax = 16 << 20

func TestApply(t *testing.T) {
	t.Parallel()
	for name, test := range applyCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := delta.Apply([]byte("x"), []byte(test.base), []byte(test.delta), sizeMax)
			if !errors.Is(err, test.err) || string(got) != "x"+test.want {
				t.Errorf("%d bytes, %v; want %d bytes, %v", len(got), err, 1+len(test.want), test.err)
			}
			if cap(got) > 1<<20 {
				t.Errorf("%d bytes allocated", cap(got))
			}
		})
	}
}

func TestApplyAt(t *testing.T) {
	t.Parallel()
	for name, test := range applyCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			src := bufio.NewReader(iotest.OneByteReader(strings.NewReader(test.delta)))
			n, err := delta.ApplyAt(&got, strings.NewReader(test.base), int64(len(test.base)), src, sizeMax)
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if err == nil && (got.String() != test.want || n != int64(len(test.want))) {
				t.Errorf("%d bytes, %d reported, want %d", got.Len(), n, len(test.want))
			}
		})
	}
}

// TestApplyAtLarge builds a result larger than its buffer from copies and inserts of every size.
func TestApplyAtLarge(t *testing.T) {
	t.Parallel()
	base := seeded(1, 300_000)
	target := edit(2, base, 60)
	program, ok := delta.NewIndex(base).Create(nil, target, len(target))
	if !ok {
		t.Fatal("no delta")
	}
	var got bytes.Buffer
	if _, err := delta.ApplyAt(
		&got, bytes.NewReader(base), int64(len(base)), bytes.NewReader(program), int64(len(target)),
	); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), target) {
		t.Error("another result")
	}
}

func TestApplyAtPassesErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	program := "\x05\x06\x90\x05\x01!"
	base := strings.NewReader("hello")
	if _, err := delta.ApplyAt(failingWriter{broken}, base, 5, strings.NewReader(program), 10); !errors.Is(err, broken) {
		t.Errorf("writer: %v", err)
	}
	if _, err := delta.ApplyAt(io.Discard, failingReaderAt{broken}, 5, strings.NewReader(program), 10); !errors.Is(err,
		broken) {
		t.Errorf("base: %v", err)
	}
	src := bufio.NewReader(io.MultiReader(strings.NewReader(program[:3]), iotest.ErrReader(broken)))
	if _, err := delta.ApplyAt(io.Discard, base, 5, src, 10); !errors.Is(err, broken) || errors.Is(err, delta.ErrCorrupt) {
		t.Errorf("delta: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

type failingReaderAt struct{ err error }

func (r failingReaderAt) ReadAt([]byte, int64) (int, error) { return 0, r.err }

func TestSizes(t *testing.T) {
	t.Parallel()
	base, result, err := delta.Sizes([]byte("\xb0\x02\x7f\x90\x05"))
	if base != 0x130 || result != 0x7f || err != nil {
		t.Errorf("%d, %d, %v", base, result, err)
	}
	for _, program := range []string{"", "\x80", "\x01", "\x01\xff"} {
		if _, _, err := delta.Sizes([]byte(program)); !errors.Is(err, delta.ErrCorrupt) {
			t.Errorf("%q: %v", program, err)
		}
	}
}
