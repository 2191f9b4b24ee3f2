package pktline_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"packhorse/pack/pktline"
)

// FuzzPktline holds that lines come out the same however they arrive, that writing them again gives
// what was read, and that nothing is lost between the lines and the rest.
func FuzzPktline(f *testing.F) {
	for _, data := range []string{
		"0006a\n0000PACK", "0001000200040005x", "fff1", "0003", "00", "000g",
		"0032want 0123456789abcdef0123456789abcdef01234567\n",
	} {
		f.Add([]byte(data), uint8(2))
	}
	f.Fuzz(func(t *testing.T, data []byte, count uint8) {
		written, rest, err := rewriteLines(bytes.NewReader(data), int(count))
		slowWritten, slowRest, slowErr := rewriteLines(iotest.OneByteReader(bytes.NewReader(data)), int(count))
		if !bytes.Equal(written, slowWritten) || !bytes.Equal(rest, slowRest) || fmt.Sprint(err) != fmt.Sprint(slowErr) {
			t.Fatalf("at once %q %q %v, in bytes %q %q %v", written, rest, err, slowWritten, slowRest, slowErr)
		}
		switch {
		case err == nil || errors.Is(err, io.EOF):
			// Lengths may come in upper case.
			if got := append(written, rest...); !bytes.Equal(lowerASCII(got), lowerASCII(data)) {
				t.Errorf("lines %q and rest %q of %q", written, rest, data)
			}
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, pktline.ErrLength), errors.Is(err, pktline.ErrTooLong):
		default:
			t.Errorf("an error of another kind: %v", err)
		}
	})
}

// rewriteLines reads up to count lines and returns them as a writer writes them, and what follows.
func rewriteLines(src io.Reader, count int) (written, rest []byte, err error) {
	var out bytes.Buffer
	r, w := pktline.NewReader(src), pktline.NewWriter(&out)
	for range count {
		kind, payload, err := r.Read()
		if err != nil {
			return out.Bytes(), nil, err
		}
		switch kind {
		case pktline.Data:
			err = w.Data(payload)
		case pktline.Flush:
			err = w.Flush()
		case pktline.Delim:
			err = w.Delim()
		case pktline.ResponseEnd:
			err = w.ResponseEnd()
		}
		if err != nil {
			return nil, nil, err
		}
	}
	rest, err = io.ReadAll(r.Rest())
	return out.Bytes(), rest, err
}

func lowerASCII(data []byte) []byte {
	lower := bytes.Clone(data)
	for i, c := range lower {
		if c >= 'A' && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return lower
}
