package packgen

import (
	"context"
	"io"

	"packhorse/odb"
)

// pacedWriter rests between writes, and looks from time to time whether there is still room.
type pacedWriter struct {
	ctx  context.Context //nolint:containedctx // the one of the repack that this is the io.Writer of
	dst  io.Writer
	pace *odb.Pacer
	room func(size int64) error // nil: always

	since int // bytes since the last look
}

// roomStep is how much is written between two looks.
const roomStep = 16 << 20

// Write implements [io.Writer].
func (w *pacedWriter) Write(p []byte) (int, error) {
	if err := w.pace.Rest(w.ctx); err != nil {
		return 0, err
	}
	if w.since += len(p); w.since >= roomStep && w.room != nil {
		w.since = 0
		if err := w.room(0); err != nil {
			return 0, err
		}
	}
	return w.dst.Write(p)
}
