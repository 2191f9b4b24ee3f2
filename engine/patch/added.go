package patch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"packhorse/odb/rescue"
)

// wholeMax is the size in bytes from which a new content is written as it is read.
const wholeMax = 1 << 20

// added writes the content of a file that one hunk of added lines makes, of any size.
func (a *applier) added(ctx context.Context, f *file) (content, string, error) {
	h, ok, err := a.source.hunk(ctx, f.hunksAt)
	if err != nil {
		return content{}, "", err
	}
	if !ok {
		return content{}, "", a.source.malformed(f.hunksAt, "a corrupt hunk") // the source has changed
	}
	lines := &addedReader{
		from: bufio.NewReaderSize(io.NewSectionReader(a.source.from, h.at, h.size), windowSize), begins: true,
	}
	id, err := a.objects.WriteBlobFrom(ctx, lines, h.addBytes)
	if err != nil {
		return content{}, "", fmt.Errorf("write blob: %w", err)
	}
	return content{id: id, size: h.addBytes}, "", nil
}

// streamed writes the content of a literal, of any size.
func (a *applier) streamed(ctx context.Context, h binaryHunk) (content, error) {
	r, w := io.Pipe()
	inflated := rescue.Beside(func() error {
		err := rescue.Do(func() error { return inflate(w, &base85Reader{ctx: ctx, source: a.source, at: h.at}, h.size) })
		return errors.Join(err, w.CloseWithError(err))
	})
	id, err := a.objects.WriteBlobFrom(ctx, r, h.size)
	_ = r.CloseWithError(io.ErrClosedPipe) // ends the writer if it has more
	if err = errors.Join(err, <-inflated); err != nil {
		return content{}, fmt.Errorf("write blob: %w", err)
	}
	return content{id: id, size: h.size}, nil
}

// addedReader reads the contents of added lines.
type addedReader struct {
	from   *bufio.Reader
	buffer []byte // a part of a line
	line   []byte // the rest of it
	begins bool   // the next part begins a line
}

func (r *addedReader) Read(b []byte) (int, error) {
	for len(r.line) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.line)
	r.line = r.line[n:]
	return n, nil
}

// next reads the next part of a line, without the plus before it and, where a note says so, without
// its line feed.
func (r *addedReader) next() error {
	part, err := r.from.ReadSlice('\n')
	if len(part) == 0 {
		return err
	}
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
		return err
	}
	begins := r.begins
	r.begins = part[len(part)-1] == '\n'
	if begins && part[0] == '\\' {
		return r.skip()
	}
	if r.begins {
		r.buffer = append(r.buffer[:0], part...) // Peek may move what part shows
		part = r.buffer
		if ahead, _ := r.from.Peek(1); len(ahead) == 1 && ahead[0] == '\\' {
			part = part[:len(part)-1]
		}
	}
	if begins {
		part = part[1:]
	}
	r.line = part
	return nil
}

// skip skips the rest of a note.
func (r *addedReader) skip() error {
	for !r.begins {
		part, err := r.from.ReadSlice('\n')
		if len(part) == 0 {
			return err
		}
		r.begins = part[len(part)-1] == '\n'
	}
	return nil
}
