package remote

import (
	"errors"
	"io"

	"packhorse/pack/pktline"
)

// bands reads the data of a side-band: gitprotocol-common(5). It ends at the flush packet, and
// nowhere else.
type bands struct {
	a            *answer
	lines        *pktline.Reader
	rest         []byte // of the last packet
	dataLeft     int64  // bytes of the first band that may still come
	progressLeft int64  // bytes of the others, and of packets without content
	progress     io.Writer
	pace         *pace // of the data once it has begun; nil where the answer is limited as a whole
	begun        bool
	err          error // result of every further Read
}

func newBands(a *answer, lines *pktline.Reader, dataMax, progressMax int64, progress io.Writer) *bands {
	return &bands{a: a, lines: lines, dataLeft: dataMax, progressLeft: progressMax, progress: progress}
}

// Read reads data. Errors: io.EOF behind the last packet, [*Error], and those of the caller's
// context and progress writer.
func (b *bands) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(b.rest) == 0 {
		if b.err == nil {
			b.err = b.fill()
		}
		if b.err != nil {
			return 0, b.err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// fill reads one packet.
func (b *bands) fill() error {
	kind, payload, err := b.lines.Read()
	switch {
	case err != nil:
		return b.a.lineError(err)
	case kind == pktline.Flush:
		return io.EOF
	case kind != pktline.Data || len(payload) == 0:
		return b.a.fail(ErrProtocol, "a %s packet in the side-band", kind)
	}
	band, content := payload[0], payload[1:]
	if band != pktline.BandData || len(content) == 0 {
		if b.progressLeft -= int64(len(payload)); b.progressLeft < 0 {
			return b.a.fail(ErrLimit, "more progress than an answer may have")
		}
	}
	switch band {
	case pktline.BandData:
		if b.dataLeft -= int64(len(content)); b.dataLeft < 0 {
			return b.a.fail(ErrLimit, "more data than an answer may have")
		}
		b.rest = content
		return b.pass(content)
	case pktline.BandProgress:
		if b.progress == nil {
			return nil
		}
		_, err := io.WriteString(b.progress, b.a.hide.remove(string(content)))
		return err
	case pktline.BandError:
		return b.a.fail(ErrRejected, "%s", content)
	}
	return b.a.fail(ErrProtocol, "side-band %d", band)
}

// pass sees to the pace of data. Once it has begun, the answer as a whole may take any time.
func (b *bands) pass(content []byte) error {
	if b.pace == nil || len(content) == 0 && !b.begun {
		return nil
	}
	if !b.begun {
		b.begun = true
		b.a.dog.unhurried()
		b.a.takeWaited()
	}
	if b.pace.tooSlow(len(content), b.a.takeWaited()) {
		return b.a.fail(ErrUnavailable, textSlow)
	}
	return nil
}

const textSlow = "the pack comes too slowly"

// Close ends the exchange; at the end of the data it leaves the connection for the next.
func (b *bands) Close() error {
	if errors.Is(b.err, io.EOF) {
		return b.a.finish()
	}
	return b.a.close()
}

// rawPack is a pack without a side-band, which ends where the answer does.
type rawPack struct {
	a    *answer
	src  io.Reader
	left int64
	pace *pace
}

// Read reads the pack. Errors: io.EOF, [*Error], and those of the caller's context.
func (p *rawPack) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	if p.left -= int64(n); p.left < 0 {
		return 0, p.a.fail(ErrLimit, "more data than an answer may have")
	}
	if p.pace.tooSlow(n, p.a.takeWaited()) && err == nil {
		return 0, p.a.fail(ErrUnavailable, textSlow)
	}
	return n, err
}

// Close ends the exchange.
func (p *rawPack) Close() error { return p.a.close() }
