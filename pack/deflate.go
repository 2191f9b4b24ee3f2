package pack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Levels of [Deflate], in the numbers of zlib.
const (
	LevelStore   = 0
	LevelFast    = 1
	LevelDefault = 6 // git's
	LevelBest    = 9
)

// Deflate appends data to dst as a zlib stream, compressed at level. The result depends on data and
// level only. dst must not overlap data. It panics on a level outside 0 to 9.
func Deflate(dst, data []byte, level int) []byte {
	d := deflaterPool(level).Get().(*deflater)
	defer deflaterPool(level).Put(d)
	dst = append(dst, zlibHeader(level)...)
	dst = d.deflate(dst, data, true)
	return binary.BigEndian.AppendUint32(dst, updateAdler(1, data))
}

// zlibHeader returns the two bytes that begin a zlib stream with a window of 32 KiB.
func zlibHeader(level int) string {
	switch {
	case level <= LevelFast:
		return "\x78\x01"
	case level < LevelDefault:
		return "\x78\x5e"
	case level == LevelDefault:
		return "\x78\x9c"
	default:
		return "\x78\xda"
	}
}

var deflaters [LevelBest + 1]sync.Pool

func deflaterPool(level int) *sync.Pool {
	if level < LevelStore || level > LevelBest {
		panic(fmt.Sprintf("pack: deflate level %d", level))
	}
	pool := &deflaters[level]
	return pool
}

func init() {
	for level := range deflaters {
		deflaters[level].New = func() any { return newDeflater(level) }
	}
}

// deflater is a flate writer with the buffer that it writes to.
type deflater struct {
	out   bytes.Buffer
	flate *flate.Writer
}

func newDeflater(level int) *deflater {
	d := &deflater{}
	w, err := flate.NewWriter(&d.out, level)
	if err != nil {
		panic(fmt.Sprintf("pack: deflate level %d: %v", level, err)) // levels are checked before
	}
	d.flate = w
	return d
}

// deflate appends data to dst as deflate blocks: up to the final block, or up to a flush, behind
// which another piece may follow.
func (d *deflater) deflate(dst, data []byte, final bool) []byte {
	d.out = *bytes.NewBuffer(dst)
	d.flate.Reset(&d.out)
	_, err := d.flate.Write(data)
	if err == nil {
		if final {
			err = d.flate.Close()
		} else {
			err = d.flate.Flush()
		}
	}
	if err != nil {
		panic(fmt.Sprintf("pack: deflate into memory: %v", err)) // a bytes.Buffer does not fail
	}
	dst = d.out.Bytes()
	d.out = bytes.Buffer{}
	return dst
}
