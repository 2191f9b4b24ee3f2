package delta

import "slices"

// Apply appends to dst the object that delta builds from base, and returns the extended slice.
//
// sizeMax bounds the result in bytes and is checked before anything is allocated. base and delta
// are only read and may be reused when Apply returns; dst may be nil and must not overlap them.
//
// Errors: [ErrCorrupt] when an instruction leaves base or the result misses its stated size,
// [ErrTooLarge] past sizeMax.
func Apply(dst, base, delta []byte, sizeMax int64) ([]byte, error) {
	result, program, err := header(delta, int64(len(base)), sizeMax)
	if err != nil {
		return dst, err
	}
	// A short delta may claim a long result, so a large claim is trusted only after its instructions
	// have been added up.
	if result > trustedSize && programSize(program) != result {
		return dst, corrupt("result misses its size")
	}
	out := slices.Grow(dst, int(result))
	end := len(dst) + int(result)
	for len(program) > 0 {
		op := program[0]
		if op&copyFlag == 0 {
			n := int(op)
			if n == 0 || n >= len(program) {
				return dst, corrupt("bad insert")
			}
			if n > end-len(out) {
				return dst, corrupt("insert past the end of the result")
			}
			out = append(out, program[1:1+n]...)
			program = program[1+n:]
			continue
		}
		offset, n, used := copyArguments(program)
		if used == 0 || offset+n > int64(len(base)) {
			return dst, corrupt("copy past the end of the base")
		}
		if n > int64(end-len(out)) {
			return dst, corrupt("copy past the end of the result")
		}
		out = append(out, base[offset:offset+n]...)
		program = program[used:]
	}
	if len(out) != end {
		return dst, corrupt("result misses its size")
	}
	return out, nil
}

// trustedSize is the number of bytes allocated on the claim of a delta alone.
const trustedSize = 1 << 20

// programSize adds up the output of the instructions, or returns -1 when one is cut off.
func programSize(program []byte) (total int64) {
	for len(program) > 0 {
		n, used := int64(program[0]), 1+int(program[0])
		if program[0]&copyFlag != 0 {
			_, n, used = copyArguments(program)
		}
		if used == 0 || used > len(program) {
			return -1
		}
		total += n
		program = program[used:]
	}
	return total
}

// copyArguments decodes the copy instruction at the front of program and says how many bytes it
// took: 0 when it is cut off.
func copyArguments(program []byte) (offset, n int64, used int) {
	op := program[0]
	used = 1
	for i := range 4 {
		if op&(1<<i) != 0 {
			if used == len(program) {
				return 0, 0, 0
			}
			offset |= int64(program[used]) << (8 * i)
			used++
		}
	}
	for i := range 3 {
		if op&(0x10<<i) != 0 {
			if used == len(program) {
				return 0, 0, 0
			}
			n |= int64(program[used]) << (8 * i)
			used++
		}
	}
	if n == 0 {
		n = copySizeAll
	}
	return offset, n, used
}
