package packgen

import (
	"context"
	"io"

	"packhorse/odb/traffic"
)

// pacedWriter rests between writes, and now and then checks the free disk space.
type pacedWriter struct {
	ctx  context.Context //nolint:containedctx // of the repack whose io.Writer this is
	dst  io.Writer
	pace *traffic.Pacer
	room func(size int64) error // nil: no check

	since int // bytes since the last check
}

// roomStep is the number of bytes written between two checks.
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
