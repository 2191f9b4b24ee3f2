package pack_test

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"sync"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack"
	"packhorse/pack/object"
)

// blockStream encodes data as a stream of blocks, two at a time.
func blockStream(data []byte) ([]byte, pack.BlockTable) {
	count := (len(data) + pack.BlockSize - 1) / pack.BlockSize
	encoded := make([]pack.Block, count)
	var wg sync.WaitGroup
	for worker := range 2 {
		wg.Go(func() {
			for i := worker; i < count; i += 2 {
				start := i * pack.BlockSize
				encoded[i] = pack.EncodeBlock(nil, data[start:min(len(data), start+pack.BlockSize)], pack.LevelFast)
			}
		})
	}
	wg.Wait()
	var blocks pack.Blocks
	var stream []byte
	for _, block := range encoded {
		stream = blocks.Append(stream, block)
	}
	stream = blocks.Finish(stream)
	if blocks.Offset() != int64(len(stream)) {
		panic("the assembler has lost count")
	}
	return stream, blocks.Table()
}

// blockContents are contents around the borders of blocks, of every compressibility.
func blockContents() map[string][]byte {
	text := bytes.Repeat([]byte("packhorse carries the tree\n"), 120_000)
	mixed := append(append([]byte{}, text[:pack.BlockSize]...), incompressible(pack.BlockSize)...)
	return map[string][]byte{
		"empty":           {},
		"one byte":        {'x'},
		"text":            text,
		"one block":       text[:pack.BlockSize],
		"a byte more":     text[:pack.BlockSize+1],
		"a byte less":     text[:pack.BlockSize-1],
		"incompressible":  incompressible(2*pack.BlockSize + 77_777),
		"mixed":           append(mixed, text[:1000]...),
		"64 KiB stored":   incompressible(65535),
		"a byte more yet": incompressible(65536),
	}
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	for name, data := range blockContents() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream, table := blockStream(data)
			if most := len(data) + len(data)/1000 + 64; len(stream) > most {
				t.Errorf("%d bytes grew to %d", len(data), len(stream))
			}
			r, err := zlib.NewReader(bytes.NewReader(stream))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
				t.Errorf("zlib reads %d bytes of %d, %v", len(got), len(data), err)
			}
			if table.Size != int64(len(data)) || len(table.Rows) != (len(data)+pack.BlockSize-1)/pack.BlockSize {
				t.Errorf("the table has %d rows for %d bytes", len(table.Rows), table.Size)
			}
			for i := range table.Rows {
				offset, packedSize, size := table.Locate(i)
				got, err := pack.DecodeBlock([]byte("x"), stream[offset:offset+packedSize], size, table.Rows[i].Adler)
				start := i * pack.BlockSize
				if err != nil || !bytes.Equal(got[1:], data[start:start+size]) {
					t.Errorf("block %d: %d bytes, %v", i, len(got)-1, err)
				}
			}
		})
	}
}

func TestBlocksInsideAPackAreGits(t *testing.T) {
	t.Parallel()
	contents := blockContents()
	var out bytes.Buffer
	w := pack.NewWriter(&out, uint32(len(contents)))
	ids := map[string]object.ID{}
	for name, data := range contents {
		stream, _ := blockStream(data)
		h := pack.EntryHeader{Kind: pack.KindBlob, Size: int64(len(data))}
		if _, err := w.WriteDeflatedFrom(h, bytes.NewReader(stream), int64(len(stream))); err != nil {
			t.Fatal(err)
		}
		id, err := object.Hash(object.TypeBlob, data)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = id
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(bytes.NewReader(out.Bytes()), pack.ReaderOptions{}, "skip"); err != nil {
		t.Error(err)
	}
	r := oracle.New(t)
	r.Input(out.Bytes(), "index-pack", "--stdin", "--strict")
	for name, id := range ids {
		if !bytes.Equal(r.Read("blob", id.String()), contents[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestDecodeBlockCorrupt(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("a block of text\n"), 500)
	stream, table := blockStream(data)
	offset, packedSize, size := table.Locate(0)
	adler := table.Rows[0].Adler
	packed := stream[offset : offset+packedSize]
	for bit := range 8 * len(packed) {
		bad := bytes.Clone(packed)
		bad[bit/8] ^= 1 << (bit % 8)
		got, err := pack.DecodeBlock(nil, bad, size, adler)
		if err == nil && !bytes.Equal(got, data) || err != nil && !errors.Is(err, pack.ErrCorrupt) {
			t.Fatalf("bit %d flipped: %d bytes, %v", bit, len(got), err)
		}
	}
	for cut := range packed {
		// The flush behind the last data bytes may be missing in part: nothing of the content is.
		if got, err := pack.DecodeBlock(nil, packed[:cut], size, adler); err == nil && !bytes.Equal(got, data) {
			t.Fatalf("cut off at %d: %d bytes", cut, len(got))
		}
	}
	for name, err := range map[string]error{
		"size less":  decodeError(packed, size-1, adler),
		"size more":  decodeError(packed, size+1, adler),
		"no size":    decodeError(packed, -1, adler),
		"large":      decodeError(packed, pack.BlockSize+1, adler),
		"other":      decodeError(packed, size, adler+1),
		"with rest":  decodeError(append(bytes.Clone(packed), packed...), size, adler),
		"whole zlib": decodeError(stream, size, adler),
		"nothing":    decodeError(nil, size, adler),
	} {
		if !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func decodeError(packed []byte, size int, adler uint32) error {
	_, err := pack.DecodeBlock(nil, packed, size, adler)
	return err
}

func BenchmarkEncodeBlock(b *testing.B) {
	for name, data := range map[string][]byte{
		"text": blockContents()["one block"], "incompressible": incompressible(pack.BlockSize),
	} {
		b.Run(name, func(b *testing.B) {
			var dst []byte
			b.SetBytes(pack.BlockSize)
			for b.Loop() {
				dst = pack.EncodeBlock(dst[:0], data, pack.LevelFast).Packed
			}
		})
	}
}

func BenchmarkDecodeBlock(b *testing.B) {
	for name, data := range map[string][]byte{
		"text": blockContents()["one block"], "incompressible": incompressible(pack.BlockSize),
	} {
		block := pack.EncodeBlock(nil, data, pack.LevelFast)
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, pack.BlockSize+2)
			b.SetBytes(pack.BlockSize)
			for b.Loop() {
				if _, err := pack.DecodeBlock(dst, block.Packed, block.Size, block.Adler); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
