package space

import "io"

// Meter counts the bytes of an upload and checks the disk from time to time, so that not even one
// large upload fills it. It is for one goroutine.
type Meter struct {
	watch *Watch
	since int64 // bytes since the last check
}

// Meter returns a meter.
func (w *Watch) Meter() Meter { return Meter{watch: w} }

// Add counts received bytes. Errors: [ErrShort], [ErrRecovering].
func (m *Meter) Add(count int) error {
	if m.since += int64(count); m.since < meterStep {
		return m.watch.Check()
	}
	m.since = 0
	return m.watch.Look()
}

// Reader returns a reader of r that counts its bytes with a meter and fails as that does.
func (w *Watch) Reader(r io.Reader) io.Reader {
	if w == nil || r == nil {
		return r
	}
	return &reader{r: r, meter: w.Meter()}
}

type reader struct {
	r     io.Reader
	meter Meter
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if spaceErr := r.meter.Add(n); spaceErr != nil {
		return 0, spaceErr
	}
	return n, err
}
