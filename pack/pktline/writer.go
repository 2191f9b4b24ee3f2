package pktline

import (
	"fmt"
	"io"
)

// Writer writes lines, each with one Write of the destination: give it a buffered one when lines
// are short and many.
type Writer struct {
	dst io.Writer
	buf []byte
}

// NewWriter returns a Writer to dst.
func NewWriter(dst io.Writer) *Writer { return &Writer{dst: dst} }

// Data writes payload as one line. Errors: [ErrTooLong] beyond [PayloadMax], and those of the
// destination.
func (w *Writer) Data(payload []byte) error {
	w.buf = append(w.buf[:0], "0000"...)
	w.buf = append(w.buf, payload...)
	return w.send()
}

// String writes s as one line, as [Writer.Data] does.
func (w *Writer) String(s string) error {
	w.buf = append(w.buf[:0], "0000"...)
	w.buf = append(w.buf, s...)
	return w.send()
}

// Printf writes a formatted line, as [Writer.Data] does. It adds no newline.
func (w *Writer) Printf(format string, args ...any) error {
	w.buf = append(w.buf[:0], "0000"...)
	w.buf = fmt.Appendf(w.buf, format, args...)
	return w.send()
}

// Flush writes "0000". It does not flush the destination.
func (w *Writer) Flush() error { return w.control("0000") }

// Delim writes "0001".
func (w *Writer) Delim() error { return w.control("0001") }

// ResponseEnd writes "0002".
func (w *Writer) ResponseEnd() error { return w.control("0002") }

func (w *Writer) control(line string) error {
	w.buf = append(w.buf[:0], line...)
	_, err := w.dst.Write(w.buf)
	return err
}

// send completes the line in buf, whose length digits are still to be filled in, and writes it.
func (w *Writer) send() error {
	if len(w.buf)-lengthSize > PayloadMax {
		return fmt.Errorf("%w: %d bytes", ErrTooLong, len(w.buf))
	}
	putLength(w.buf, len(w.buf))
	_, err := w.dst.Write(w.buf)
	return err
}

// AppendLine appends payload as one line to dst. It panics beyond [PayloadMax], which the caller
// has checked.
func AppendLine(dst, payload []byte) []byte {
	if len(payload) > PayloadMax {
		panic("pktline: line too long")
	}
	at := len(dst)
	dst = append(dst, "0000"...)
	putLength(dst[at:], lengthSize+len(payload))
	return append(dst, payload...)
}

func putLength(dst []byte, length int) {
	const digits = "0123456789abcdef"
	dst[0], dst[1] = digits[length>>12&0xf], digits[length>>8&0xf]
	dst[2], dst[3] = digits[length>>4&0xf], digits[length&0xf]
}
