package pktline

import "fmt"

// The bands of the side-band: the first byte of each line's payload.
const (
	BandData     byte = 1 // the pack, or report-status lines
	BandProgress byte = 2 // text for the user's terminal
	BandError    byte = 3 // the text of a fatal error, after which nothing follows
)

// SidebandSmall and SidebandLarge are the most bytes of content in a line of the side-band and
// side-band-64k capabilities.
const (
	SidebandSmall = 999 - lengthSize
	SidebandLarge = PayloadMax - 1
)

// Sideband is an [io.Writer] that sends its input on one band.
type Sideband struct {
	w       *Writer
	band    byte
	lineMax int
	batch   []byte
}

// batchSize is the size of a write to the destination: large writes to a socket are the cheapest.
const batchSize = 128 << 10

// NewSideband returns a writer on a band of w, in lines of at most lineMax bytes of content (0
// means [SidebandLarge]). Writes through w and through its side-bands may alternate.
func NewSideband(w *Writer, band byte, lineMax int) *Sideband {
	if lineMax <= 0 || lineMax > SidebandLarge {
		lineMax = SidebandLarge
	}
	return &Sideband{w: w, band: band, lineMax: lineMax}
}

// Write sends p in as few lines as possible, several lines with one Write of the destination.
func (s *Sideband) Write(p []byte) (written int, err error) {
	for written < len(p) {
		s.batch = s.batch[:0]
		taken := written
		for taken < len(p) && len(s.batch)+lengthSize+1 < batchSize {
			n := min(len(p)-taken, s.lineMax)
			s.batch = appendBandLine(s.batch, s.band, p[taken:taken+n])
			taken += n
		}
		if _, err := s.w.dst.Write(s.batch); err != nil {
			return written, err
		}
		written = taken
	}
	return written, nil
}

// Printf sends a formatted text on the band.
func (s *Sideband) Printf(format string, args ...any) error {
	_, err := s.Write(fmt.Appendf(nil, format, args...))
	return err
}

func appendBandLine(dst []byte, band byte, content []byte) []byte {
	at := len(dst)
	dst = append(dst, '0', '0', '0', '0', band)
	putLength(dst[at:], lengthSize+1+len(content))
	return append(dst, content...)
}
