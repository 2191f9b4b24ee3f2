package delta

import (
	"errors"
	"io"
)

// Source is a delta as a stream; a [bufio.Reader] is one.
type Source interface {
	io.Reader
	io.ByteReader
}

// ApplyAt writes to w the object that delta builds from a base of baseSize bytes that is read by
// offset, for objects that do not fit in memory. It returns the size of the result, and uses 64 KiB
// of memory for any size.
//
// Errors: those of [Apply] (part of the result may have been written by then), and those of w, base
// and delta.
func ApplyAt(w io.Writer, base io.ReaderAt, baseSize int64, delta Source, sizeMax int64) (int64, error) {
	statedBase, err := readSize(delta)
	if err != nil {
		return 0, err
	}
	result, err := readSize(delta)
	if err != nil {
		return 0, err
	}
	if err := checkSizes(statedBase, baseSize, result, sizeMax); err != nil {
		return 0, err
	}
	run := &runner{out: w, base: base, baseSize: baseSize, rest: result}
	for {
		op, err := delta.ReadByte()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if op&copyFlag != 0 {
			err = run.copy(op, delta)
		} else {
			err = run.insert(op, delta)
		}
		if err != nil {
			return 0, err
		}
	}
	if run.rest != 0 {
		return 0, corrupt("result misses its size")
	}
	return result, run.flush()
}

// runner executes instructions and gathers their output in buf[:n].
type runner struct {
	out      io.Writer
	base     io.ReaderAt
	baseSize int64
	rest     int64 // of the result
	buf      [64 << 10]byte
	n        int
}

func (r *runner) insert(op byte, delta Source) error {
	size := int(op)
	if size == 0 {
		return corrupt("bad insert")
	}
	if int64(size) > r.rest {
		return corrupt("insert past the end of the result")
	}
	if len(r.buf)-r.n < size {
		if err := r.flush(); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(delta, r.buf[r.n:r.n+size]); err != nil {
		return cutOff(err)
	}
	r.n += size
	r.rest -= int64(size)
	return nil
}

func (r *runner) copy(op byte, delta Source) error {
	offset, size, err := readCopyArguments(op, delta)
	if err != nil {
		return err
	}
	if offset+size > r.baseSize {
		return corrupt("copy past the end of the base")
	}
	if size > r.rest {
		return corrupt("copy past the end of the result")
	}
	r.rest -= size
	for size > 0 {
		if r.n == len(r.buf) {
			if err := r.flush(); err != nil {
				return err
			}
		}
		n := int(min(size, int64(len(r.buf)-r.n)))
		if read, err := r.base.ReadAt(r.buf[r.n:r.n+n], offset); read < n {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
		r.n += n
		offset += int64(n)
		size -= int64(n)
	}
	return nil
}

func (r *runner) flush() error {
	_, err := r.out.Write(r.buf[:r.n])
	r.n = 0
	return err
}

func readCopyArguments(op byte, delta io.ByteReader) (offset, size int64, err error) {
	var arguments [7]byte
	for i := range arguments {
		if op&(1<<i) != 0 {
			if arguments[i], err = delta.ReadByte(); err != nil {
				return 0, 0, cutOff(err)
			}
		}
	}
	for i, c := range arguments[:4] {
		offset |= int64(c) << (8 * i)
	}
	for i, c := range arguments[4:] {
		size |= int64(c) << (8 * i)
	}
	if size == 0 {
		size = copySizeAll
	}
	return offset, size, nil
}

func readSize(delta io.ByteReader) (value int64, err error) {
	for i := range sizeBytesMax {
		c, err := delta.ReadByte()
		if err != nil {
			return 0, cutOff(err)
		}
		value |= int64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return value, nil
		}
	}
	return 0, corrupt("bad size")
}

// cutOff turns the end of the stream inside an instruction into corruption and leaves other errors
// alone.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("cut off")
	}
	return err
}
