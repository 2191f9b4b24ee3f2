package pack_test

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"hash/crc32"
	"io"
	"testing"
	"testing/iotest"

	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// FuzzPackReader holds that a pack reads the same in every way, that the raw copy and the entries'
// places and checksums are right, that sizes are true and that limits hold.
func FuzzPackReader(f *testing.F) {
	var out bytes.Buffer
	w := packtest.NewWriter(&out, 4, 0)
	first, err := w.WriteWhole(object.TypeBlob, []byte("content content content"))
	if err != nil {
		f.Fatal(err)
	}
	for _, write := range []func() (pack.Entry, error){
		func() (pack.Entry, error) { return w.WriteOFSDelta(first.Offset, []byte("\x17\x01\x90\x01")) },
		func() (pack.Entry, error) { return w.WriteRefDelta(object.EmptyTreeID, []byte("\x00\x00")) },
		func() (pack.Entry, error) { return w.WriteWhole(object.TypeTree, bytes.Repeat([]byte{0}, 270_000)) },
	} {
		if _, err := write(); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes()[12 : out.Len()-20])
	f.Add([]byte("\x37\x78\x01\x01\x07\x00\xf8\xffcontent\x0b\xc0\x02\xe9"))
	f.Add([]byte("\xbf\xff\xff\xff\x0f\x78\x9c\x03\x00\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		// Header and trailer are made right, so that the fuzzer gets behind them.
		for _, count := range []uint32{1, 4} {
			data := append(pack.Header{Version: 2, Count: count}.Append(nil), body...)
			sum := sha1.Sum(data)
			data = append(data, sum[:]...)
			whole, err := readPack(t, bytes.NewReader(data), data, true)
			pieces, piecesErr := readPack(t, iotest.HalfReader(bytes.NewReader(data)), data, false)
			if (err == nil) != (piecesErr == nil) || !bytes.Equal(whole, pieces) {
				t.Fatalf("%d bytes and %v at once, %d and %v in pieces", len(whole), err, len(pieces), piecesErr)
			}
			if err != nil && !errors.Is(err, pack.ErrCorrupt) && !errors.Is(err, pack.ErrLimit) {
				t.Errorf("an error of another kind: %v", err)
			}
		}
	})
}

// readPack returns the contents of all entries one behind the other, whole ones only.
func readPack(t *testing.T, src io.Reader, data []byte, whole bool) (contents []byte, err error) {
	t.Helper()
	const objectMax = 1 << 20
	var raw bytes.Buffer
	r := pack.NewReader(src, pack.ReaderOptions{Raw: &raw, Limits: pack.Limits{ObjectSizeMax: objectMax}})
	for {
		entry, err := r.Next()
		if errors.Is(err, io.EOF) {
			if !bytes.Equal(raw.Bytes(), data[:r.Offset()]) {
				t.Errorf("the raw copy has %d bytes, %d were read", raw.Len(), r.Offset())
			}
			return contents, nil
		}
		if err != nil {
			return contents, err
		}
		if entry.Size > objectMax {
			t.Fatalf("an entry of %d bytes", entry.Size)
		}
		before := len(contents)
		if whole {
			contents, err = r.ReadContent(contents)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				contents = append(contents, content...)
			}
		}
		if err != nil {
			return contents, err
		}
		entry = r.Entry()
		if int64(len(contents)-before) != entry.Size {
			t.Errorf("%d bytes of an entry of %d", len(contents)-before, entry.Size)
		}
		if packed := data[entry.Offset : entry.Offset+entry.PackedSize]; crc32.ChecksumIEEE(packed) != entry.CRC32 {
			t.Errorf("the CRC of the entry at %d is wrong", entry.Offset)
		}
	}
}

// FuzzEntryHeader holds that a header is read within its bytes, and that writing it again means the
// same.
func FuzzEntryHeader(f *testing.F) {
	f.Add([]byte("\x30"))
	f.Add([]byte("\xe3\x01\x80\x00"))
	f.Add([]byte("\x7501234567890123456789"))
	f.Add([]byte("\xbf\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, n, err := pack.ParseEntryHeader(data)
		if err != nil {
			if !errors.Is(err, pack.ErrCorrupt) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		if n < 1 || n > len(data) || n > pack.EntryHeaderSizeMax || h.Size < 0 || h.BaseDistance < 0 {
			t.Fatalf("%d bytes read of %d: %+v", n, len(data), h)
		}
		again, m, err := pack.ParseEntryHeader(h.Append(nil))
		if err != nil || again != h || m > n {
			t.Errorf("%+v became %+v, %d bytes, %v", h, again, m, err)
		}
	})
}

// FuzzInflate holds that inflating stays within its bounds and that streaming agrees with it.
func FuzzInflate(f *testing.F) {
	f.Add(pack.Deflate(nil, []byte("content"), pack.LevelDefault), uint32(7))
	f.Add(pack.Deflate(nil, make([]byte, 100_000), pack.LevelFast), uint32(100_000))
	f.Add([]byte("\x78\x9c\x03\x00\x00\x00\x00\x01"), uint32(0))
	f.Fuzz(func(t *testing.T, packed []byte, size uint32) {
		size %= 4 << 20
		got, consumed, err := pack.Inflate(nil, packed, int64(size))
		z := pack.NewInflater(bytes.NewReader(packed))
		streamed, streamErr := io.ReadAll(io.LimitReader(z, 8<<20))
		if err := z.Close(); err != nil {
			t.Error(err)
		}
		switch {
		case err == nil && (len(got) != int(size) || consumed > len(packed)):
			t.Errorf("%d bytes from %d", len(got), consumed)
		case err == nil && (streamErr != nil || !bytes.Equal(streamed, got)):
			t.Errorf("%d bytes at once, %d and %v as a stream", len(got), len(streamed), streamErr)
		case err != nil && !errors.Is(err, pack.ErrCorrupt):
			t.Errorf("an error of another kind: %v", err)
		case err != nil && streamErr == nil && len(streamed) == int(size):
			t.Errorf("%v, but the stream is right", err)
		}
	})
}
