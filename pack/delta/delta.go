// Package delta creates and applies git deltas, the copy and insert programs stored in packs.
//
// A delta is two sizes and a list of instructions that build the result from pieces of a base and
// from literal bytes:
//
//	base size | result size      each 7 bits a byte, lowest first, 0x80 on all but the last
//	1oooosss | 0-4 bytes offset | 0-3 bytes size    copy from base: a byte follows for each bit set, lowest first; size 0 is 65,536
//	0nnnnnnn | n bytes                              insert; n is not 0
//
// The encoding is gitformat-pack(5), "Deltified representation". Start at [Apply] to read and
// [NewIndex] to create. The package is pure: no files, no globals, no goroutines; its functions may
// be called concurrently.
package delta

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt says that an instruction leaves the base, that the result misses its stated size, or
	// that the delta is cut off.
	ErrCorrupt = errors.New("delta: corrupt delta")
	// ErrTooLarge says that the result is larger than the caller allows.
	ErrTooLarge = errors.New("delta: result too large")
)

// SizeMin is the size in bytes of the shortest delta that git applies, the two sizes included. Only
// deltas with an empty result and a base below 16 KiB are shorter; [Apply] accepts them, since they
// may be stored, but they must not be sent to a client.
const SizeMin = 4

func corrupt(detail string) error { return fmt.Errorf("%w: %s", ErrCorrupt, detail) }

// Sizes returns the sizes in bytes that delta states for its base and its result. Errors:
// [ErrCorrupt].
func Sizes(delta []byte) (base, result int64, err error) {
	base, n, ok := size(delta)
	if !ok {
		return 0, 0, corrupt("bad base size")
	}
	result, _, ok = size(delta[n:])
	if !ok {
		return 0, 0, corrupt("bad result size")
	}
	return base, result, nil
}

// header is Sizes for a delta that is about to run on a base of baseSize bytes; it also returns the
// instructions.
func header(delta []byte, baseSize, sizeMax int64) (result int64, program []byte, err error) {
	base, n, ok := size(delta)
	if !ok {
		return 0, nil, corrupt("bad base size")
	}
	result, m, ok := size(delta[n:])
	if !ok {
		return 0, nil, corrupt("bad result size")
	}
	if err := checkSizes(base, baseSize, result, sizeMax); err != nil {
		return 0, nil, err
	}
	return result, delta[n+m:], nil
}

func checkSizes(base, baseSize, result, sizeMax int64) error {
	if base != baseSize {
		return fmt.Errorf("%w: made for a base of %d bytes, not %d", ErrCorrupt, base, baseSize)
	}
	if result > sizeMax {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, result, sizeMax)
	}
	return nil
}

// sizeBytesMax is the length of the longest size that fits 63 bits.
const sizeBytesMax = 9

// size reads a number of 7 bits a byte, lowest first, and says how many bytes it took.
func size(b []byte) (value int64, n int, ok bool) {
	for i, c := range b[:min(len(b), sizeBytesMax)] {
		value |= int64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return value, i + 1, true
		}
	}
	return 0, 0, false
}

func appendSize(dst []byte, value int64) []byte {
	for value >= 0x80 {
		dst = append(dst, byte(value)|0x80)
		value >>= 7
	}
	return append(dst, byte(value))
}

const (
	copyFlag    = 0x80
	insertMax   = 0x7f
	copySizeAll = 0x10000 // the meaning of a copy without size bytes
)
