package githttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"packhorse/api/problem"
	"packhorse/odb/rescue"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// muxer puts lines, a pack and progress on one answer. Its methods may be called concurrently. A
// failure to write is kept: nothing is written from then on, and flush and end return it.
type muxer struct {
	bandMax int // how much a packet of a band carries; 0: the client knows no bands
	// banded puts lines on the data band too, which is the sideband-all of version 2.
	banded bool

	mu                    sync.Mutex // guards the fields below
	buffer                *bufio.Writer
	out                   *pktline.Writer
	data, progress, fatal *pktline.Sideband
	packing               bool // lines are over
	wrote                 time.Time
	err                   error
}

// lineBytes is the size of the buffer of lines. Packets of a pack bypass it.
const lineBytes = 16 << 10

func newMuxer(w io.Writer, bandMax int, banded bool) *muxer {
	buffer := bufio.NewWriterSize(w, lineBytes)
	out := pktline.NewWriter(buffer)
	return &muxer{
		bandMax: bandMax, banded: banded, buffer: buffer, out: out, wrote: time.Now(),
		data:     pktline.NewSideband(out, pktline.BandData, bandMax),
		progress: pktline.NewSideband(out, pktline.BandProgress, bandMax),
		fatal:    pktline.NewSideband(out, pktline.BandError, bandMax),
	}
}

// do runs write and keeps its failure. With flush, buffered output is sent.
func (m *muxer) do(flush bool, write func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doLocked(flush, write)
}

func (m *muxer) doLocked(flush bool, write func() error) error {
	if m.err != nil {
		return m.err
	}
	m.err = write()
	if m.err == nil && flush {
		m.err = m.buffer.Flush()
	}
	m.wrote = time.Now()
	return m.err
}

// line writes text as a line of the answer; the line end is added.
func (m *muxer) line(text string) {
	_ = m.do(false, func() error {
		if m.banded {
			return m.data.Printf("%s\n", text)
		}
		return m.out.Printf("%s\n", text)
	})
}

// boundary sends the changes of the client's shallow boundary.
func (m *muxer) boundary(shallow, unshallow []object.ID) {
	for _, id := range shallow {
		m.line("shallow " + id.String())
	}
	for _, id := range unshallow {
		m.line("unshallow " + id.String())
	}
}

func (m *muxer) delim() { _ = m.do(false, m.out.Delim) }

// endSection writes a flush packet and sends the buffer, so that the client can continue.
func (m *muxer) endSection() error { return m.do(true, m.out.Flush) }

// flush sends buffered output.
func (m *muxer) flush() error { return m.do(true, func() error { return nil }) }

// beginPack sends the lines; a pack follows, or the report of a push.
func (m *muxer) beginPack() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.packing = true
	return m.doLocked(true, func() error { return nil })
}

// end ends the answer: with a flush packet, unless it is a bare pack.
func (m *muxer) end() error {
	if m.packing && m.bandMax == 0 {
		return m.flush()
	}
	return m.endSection()
}

// tell shows text to the user unchanged.
func (m *muxer) tell(text string) {
	if m.bandMax == 0 || text == "" {
		return
	}
	_ = m.do(true, func() error { return m.progress.Printf("%s", text) })
}

// Write sends a part of the pack, or of other data after the lines: on the data band, or plainly to
// clients without bands.
func (m *muxer) Write(p []byte) (written int, err error) {
	err = m.do(false, func() (err error) {
		if m.bandMax == 0 {
			written, err = m.buffer.Write(p)
		} else {
			written, err = m.data.Write(p)
		}
		return err
	})
	return written, err
}

// keepAlive sends an empty data packet whenever the answer has been silent for a time, until the
// returned function is called, which waits for the goroutine behind it.
func (m *muxer) keepAlive(ctx context.Context, silence time.Duration) (stop func()) {
	if m.bandMax == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := rescue.Beside(func() error {
		timer := time.NewTimer(silence)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
				timer.Reset(m.touch(silence))
			}
		}
	})
	return func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err) // the request reports it
		}
	}
}

// touch sends an empty packet when the answer has been silent, and returns when to look again.
func (m *muxer) touch(silence time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := silence - time.Since(m.wrote); left > 0 {
		return left
	}
	_ = m.doLocked(true, func() error { return m.out.Data([]byte{pktline.BandData}) })
	return silence
}

// fail sends err in git's form, on an ERR line or on the error band, and returns the fate of the
// answer. If the client caused err, the answer ends there. If the server did, or if err could not
// be sent, the connection is cut, so that no proxy takes the answer as complete.
func (m *muxer) fail(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || errors.Is(err, context.Canceled) {
		return err // the client has gone
	}
	p := problem.From(err)
	reason := reasonOf(err)
	switch {
	case m.packing && m.bandMax == 0:
		return err
	case m.banded || m.packing:
		_ = m.doLocked(true, func() error { return m.fatal.Printf("%s\n", reason) })
	default:
		_ = m.doLocked(true, func() error { return m.out.Printf("ERR %s\n", reason) })
	}
	if p.Status < http.StatusInternalServerError {
		return m.err
	}
	return err
}
