package ingest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

const (
	// trustedBytes is the allocation for a size that a pack claims and that is not verified yet.
	trustedBytes = 1 << 20
	// packedHeldMax and deltaHeldMax bound the packed and the inflated delta that are held beside a
	// base and a result; larger ones are streamed.
	packedHeldMax = 1 << 20
	deltaHeldMax  = 4 << 20
)

// restore makes sure that the branch at an index of the stack has its content: it builds it again
// from the nearest ancestor with content.
func (w *resolveWorker) restore(ctx context.Context, index int) error {
	target := &w.stack[index]
	if target.content.held() {
		return nil
	}
	var path []uint32 // from the target up
	var base content
	held := -1 // index in the stack of the branch that base belongs to
	at, below := target.ordinal, index
	for {
		if below >= 0 && w.stack[below].ordinal == at {
			if w.stack[below].content.held() {
				base, held = w.stack[below].content, below
				break
			}
			below--
		}
		if w.in.isRoot(at) {
			root, err := w.root(ctx, target.t, at)
			if err != nil {
				return err
			}
			base = root
			break
		}
		path = append(path, at)
		at = w.in.table.bases[at]
	}
	for _, at := range slices.Backward(path) {
		next, err := w.apply(ctx, target.t, &base, at, nil)
		if held < 0 {
			err = errors.Join(err, w.release(&base))
		}
		if err != nil {
			return err
		}
		base, held = next, -1
	}
	target.content = base
	w.memory += int64(cap(base.data))
	return nil
}

// isRoot reports whether an entry is no delta of another.
func (in *Ingest) isRoot(ordinal uint32) bool {
	return in.external(ordinal) || in.table.bases[ordinal] == segment.NoOrdinal
}

// root returns the content of a whole entry of a type, or of a thin-pack base.
func (w *resolveWorker) root(ctx context.Context, t object.Type, ordinal uint32) (content, error) {
	if w.in.external(ordinal) {
		return w.in.stored(ctx, ordinal)
	}
	entry, size := w.in.table.offsets[ordinal], w.in.table.packedSize(ordinal)
	if size <= packedHeldMax {
		header, payload, err := w.readEntry(ordinal)
		if err != nil {
			return content{}, err
		}
		if header.Size <= w.in.held(t) {
			data, _, err := pack.Inflate(w.buffers.get(int(min(header.Size, trustedBytes))), payload, header.Size)
			return content{data: data, size: header.Size}, badEntry(entry, err)
		}
	}
	header, n, err := w.in.entryHeader(ordinal)
	if err != nil {
		return content{}, err
	}
	z := pack.NewInflater(io.NewSectionReader(&w.in.intake, entry+int64(n), size-int64(n)))
	defer z.Close()
	c, err := w.gather(ctx, t, header.Size, func(dst io.Writer) error {
		_, err := io.Copy(dst, z)
		return err
	})
	return c, badEntry(entry, err)
}

// gather returns the size bytes that fill writes, the content of an object of a type: in memory, or
// on a scratch file if they are many.
func (w *resolveWorker) gather(
	ctx context.Context, t object.Type, size int64, fill func(io.Writer) error,
) (content, error) {
	if size <= w.in.held(t) {
		buf := bytes.NewBuffer(w.buffers.get(int(min(size, trustedBytes))))
		err := fill(buf)
		return content{data: buf.Bytes(), size: size}, err
	}
	spool, err := w.in.store.Env().Files.Scratch(ctx)
	if err != nil {
		return content{}, err
	}
	buffered := bufio.NewWriterSize(spool, segment.CopyBufferSize)
	err = fill(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return content{}, errors.Join(err, spool.Close())
	}
	return content{spool: spool, size: size}, nil
}

// examine builds the object of a delta and examines it.
func (w *resolveWorker) examine(ctx context.Context, base *branch, child uint32) (content, object.ID, error) {
	hashing := &hashing{t: base.t}
	made, err := w.apply(ctx, base.t, &base.content, child, hashing)
	if err != nil {
		return content{}, object.ZeroID, err
	}
	id, err := w.judge(ctx, base.t, child, &made, hashing)
	if err != nil {
		return content{}, id, errors.Join(err, w.release(&made))
	}
	return made, id, nil
}

func (w *resolveWorker) judge(
	ctx context.Context, t object.Type, child uint32, made *content, hashing *hashing,
) (object.ID, error) {
	facts := w.in.facts(child)
	if hashing.hasher == nil {
		return w.x.object(ctx, facts, t, made.data)
	}
	id, err := hashing.hasher.Sum()
	if err != nil {
		return id, &BadEntryError{Offset: facts.offset, Err: err}
	}
	return id, w.x.known(ctx, facts, id, t, made.size)
}

// hashing asks for the hash of a blob that is too large to be examined in memory. hasher is nil for
// a smaller one.
type hashing struct {
	t      object.Type
	hasher *object.Hasher
}

// apply returns the object of a type that the delta at child builds from base.
func (w *resolveWorker) apply(
	ctx context.Context, t object.Type, base *content, child uint32, hashing *hashing,
) (content, error) {
	entry := w.in.table.offsets[child]
	if base.data != nil {
		c, ok, err := w.applyHeld(ctx, t, base.data, child, hashing)
		if ok || err != nil {
			return c, badEntry(entry, err)
		}
	}
	_, n, err := w.in.entryHeader(child)
	if err != nil {
		return content{}, err
	}
	z := pack.NewInflater(io.NewSectionReader(&w.in.intake, entry+int64(n), w.in.table.packedSize(child)-int64(n)))
	defer z.Close()
	c, err := w.applyStream(ctx, t, base, bufio.NewReaderSize(z, segment.CopyBufferSize), hashing)
	return c, badEntry(entry, err)
}

// applyHeld is apply in memory; it returns false if delta or result are too large for that.
func (w *resolveWorker) applyHeld(
	ctx context.Context, t object.Type, base []byte, child uint32, hashing *hashing,
) (c content, ok bool, err error) {
	program, err := w.program(child)
	if program == nil || err != nil {
		return content{}, false, err
	}
	_, result, err := delta.Sizes(program)
	if err != nil || result > w.in.held(t) {
		return content{}, false, err
	}
	if result > w.in.memory.queued() {
		if err := w.in.needTables(ctx, w.in.table.count(), result); err != nil {
			return content{}, false, err
		}
	}
	if err := w.allow(hashing, result); err != nil {
		return content{}, false, err
	}
	data, err := delta.Apply(w.buffers.get(int(min(result, trustedBytes))), base, program, result)
	return content{data: data, size: result}, true, err
}

// program returns an inflated delta, valid until the next call; nil if it is too large to be held.
func (w *resolveWorker) program(child uint32) ([]byte, error) {
	if kept, ok := w.in.kept[w.in.table.states[child].lane()].get(child); ok {
		return kept, nil
	}
	if w.in.table.packedSize(child) > packedHeldMax {
		return nil, nil
	}
	header, payload, err := w.readEntry(child)
	if err != nil || header.Size > deltaHeldMax {
		return nil, err
	}
	w.delta, _, err = pack.Inflate(w.delta[:0], payload, header.Size)
	return w.delta, err
}

// readEntry reads an entry, which is valid until the next call.
func (w *resolveWorker) readEntry(ordinal uint32) (pack.EntryHeader, []byte, error) {
	size := int(w.in.table.packedSize(ordinal))
	w.packed = slices.Grow(w.packed[:0], size)[:size]
	if err := segment.ReadFullAt(&w.in.intake, w.packed, w.in.table.offsets[ordinal]); err != nil {
		return pack.EntryHeader{}, nil, err
	}
	header, n, err := pack.ParseEntryHeader(w.packed)
	if err != nil {
		return header, nil, err
	}
	return header, w.packed[n:], nil
}

// applyStream is apply for objects of any size.
func (w *resolveWorker) applyStream(
	ctx context.Context, t object.Type, base *content, program *bufio.Reader, hashing *hashing,
) (content, error) {
	const sizesMax = 20
	front, err := program.Peek(sizesMax)
	if err != nil && !errors.Is(err, io.EOF) {
		return content{}, err
	}
	_, size, err := delta.Sizes(front)
	if err != nil {
		return content{}, err
	}
	if err := w.allow(hashing, size); err != nil {
		return content{}, err
	}
	large := size > w.in.held(t)
	if large && hashing != nil {
		hashing.hasher = object.NewHasher(hashing.t, size)
	}
	return w.gather(ctx, t, size, func(dst io.Writer) error {
		if large && hashing != nil {
			dst = io.MultiWriter(dst, hashing.hasher)
		}
		_, err := delta.ApplyAt(dst, base.readerAt(), base.size, program, size)
		return err
	})
}

// allow checks the size of an object that is built for the first time.
func (w *resolveWorker) allow(hashing *hashing, size int64) error {
	if hashing == nil {
		return nil
	}
	return w.in.checkResult(hashing.t, size)
}

func (c *content) readerAt() io.ReaderAt {
	if c.spool != nil {
		return c.spool
	}
	return bytes.NewReader(c.data)
}
