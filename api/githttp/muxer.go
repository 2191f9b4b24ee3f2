package githttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"packhorse/api/problem"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// How much one side-band packet carries, without its length and band, as clients negotiate it.
const (
	noBand    = 0
	smallBand = 995
	largeBand = 65515
)

// The bands.
const (
	bandData     = 1
	bandProgress = 2
	bandError    = 3
)

// keepAliveAfter is how long an answer may be silent: git's own default for upload-pack and receive-pack.
const keepAliveAfter = 5 * time.Second

// muxer puts lines, a pack and progress on one answer. Its methods may be called concurrently.
type muxer struct {
	bandMax int
	// banded puts lines on the data band too, which is the sideband-all of version 2.
	banded bool

	mu     sync.Mutex // guards what follows
	buffer *bufio.Writer
	out    *pktline.Writer
	wrote  time.Time
	err    error // the first failure; the answer is dead from then on
}

func newMuxer(w io.Writer, bandMax int, banded bool) *muxer {
	buffer := bufio.NewWriterSize(w, streamBytes)
	return &muxer{bandMax: bandMax, banded: banded, buffer: buffer, out: pktline.NewWriter(buffer), wrote: time.Now()}
}

// do runs write and keeps its failure. With flush, what is buffered goes out.
func (m *muxer) do(flush bool, write func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	m.wrote = time.Now()
	m.err = write()
	if m.err == nil && flush {
		m.err = m.buffer.Flush()
	}
	return m.err
}

// band writes one packet of a band; payload fits it.
func (m *muxer) band(band byte, payload []byte) error {
	_, err := pktline.NewSideband(m.out, band, m.bandMax).Write(payload)
	return err
}

// line writes text as a line of the answer; the line end is added.
func (m *muxer) line(text string) error {
	return m.do(false, func() error {
		if m.banded {
			return m.band(bandData, []byte(text+"\n"))
		}
		return m.out.Printf("%s\n", text)
	})
}

func (m *muxer) delim() error { return m.do(false, m.out.Delim) }

// flushPacket ends a section and sends what is buffered.
func (m *muxer) flushPacket() error { return m.do(true, m.out.Flush) }

// end is the flush packet that ends the answer.
func (m *muxer) end() error { return m.flushPacket() }

// flush sends what is buffered.
func (m *muxer) flush() error { return m.do(true, func() error { return nil }) }

// boundary tells how the client's shallow boundary moves.
func (m *muxer) boundary(shallow, unshallow []object.ID) error {
	for _, id := range shallow {
		if err := m.line("shallow " + id.String()); err != nil {
			return err
		}
	}
	for _, id := range unshallow {
		if err := m.line("unshallow " + id.String()); err != nil {
			return err
		}
	}
	return nil
}

// progress shows text to the user as it stands. Its failure shows at the next write.
func (m *muxer) progress(text string) {
	if m.bandMax == noBand || text == "" {
		return
	}
	_ = m.do(true, func() error { return m.band(bandProgress, []byte(text)) })
}

// packWriter writes to the data band, or plainly for clients without bands.
func (m *muxer) packWriter() io.Writer { return packWriter{m} }

type packWriter struct{ m *muxer }

func (w packWriter) Write(p []byte) (int, error) {
	err := w.m.do(false, func() error {
		if w.m.bandMax == noBand {
			_, err := w.m.buffer.Write(p)
			return err
		}
		return w.m.band(bandData, p)
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// keepAlive sends an empty data packet whenever the answer has been silent for too long, until the returned function is
// called, which waits for the goroutine behind it.
func (m *muxer) keepAlive(ctx context.Context) (stop func()) {
	if m.bandMax == noBand {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(keepAliveAfter / 5)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				m.touch()
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// touch sends an empty packet when the answer has been silent.
func (m *muxer) touch() {
	m.mu.Lock()
	silent := time.Since(m.wrote) >= keepAliveAfter
	m.mu.Unlock()
	if silent {
		_ = m.do(true, func() error { return m.out.Data([]byte{bandData}) })
	}
}

// fail tells err on the error band, where git prints it, and returns it so that the answer is cut.
func (m *muxer) fail(s *session, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	p := problem.From(err)
	s.log.ErrorContext(s.x.Context(), "answer to a git client failed", "request", s.x.RequestID(), "err", err)
	if m.bandMax != noBand {
		_ = m.do(true, func() error { return m.band(bandError, []byte(p.Message+"\n")) })
	}
	return err
}
