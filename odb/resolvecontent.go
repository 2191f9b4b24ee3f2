package odb

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

const (
	// trustedBytes is how much is allocated on a pack's word alone.
	trustedBytes = mebibyte
	// packedHeldMax and deltaHeldMax bound the packed and the inflated delta that are held beside a base and a result; larger ones are read
	// as streams.
	packedHeldMax = mebibyte
	deltaHeldMax  = 4 * mebibyte
)

// restore makes sure that the branch at an index of the stack has its content: it is built again from the nearest ancestor that is held.
func (w *resolveWorker) restore(ctx context.Context, index int) error {
	target := &w.stack[index]
	if target.content.held() {
		return nil
	}
	var path []uint32 // from the target up
	var base content
	held := -1 // index in the stack of what base belongs to
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
			root, err := w.root(ctx, at)
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
		next, err := w.apply(ctx, &base, at, nil)
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

// isRoot reports whether an entry is built upon no other.
func (in *Ingest) isRoot(ordinal uint32) bool {
	return in.external(ordinal) || in.table.bases[ordinal] == noOrdinal
}

// root returns the content of a whole entry, or of a stored base.
func (w *resolveWorker) root(ctx context.Context, ordinal uint32) (content, error) {
	if w.in.external(ordinal) {
		return w.in.stored(ctx, ordinal)
	}
	header, n, err := w.in.entryHeader(ordinal)
	if err != nil {
		return content{}, err
	}
	offset, size := w.in.table.offsets[ordinal]+int64(n), w.in.table.packedSize(ordinal)-int64(n)
	if header.Size <= w.in.options.WholeBytes && size <= packedHeldMax {
		if err := w.readPacked(offset, size); err != nil {
			return content{}, err
		}
		data, _, err := pack.Inflate(w.buffers.get(int(min(header.Size, trustedBytes))), w.packed, header.Size)
		return content{data: data, size: header.Size}, badEntry(offset, err)
	}
	z := pack.NewInflater(io.NewSectionReader(&w.in.intake, offset, size))
	defer z.Close()
	c, err := w.gather(ctx, header.Size, func(dst io.Writer) error {
		_, err := io.Copy(dst, z)
		return err
	})
	return c, badEntry(offset, err)
}

func (w *resolveWorker) readPacked(offset, size int64) error {
	w.packed = slices.Grow(w.packed[:0], int(size))[:size]
	return readFullAt(&w.in.intake, w.packed, offset)
}

// gather returns size bytes that fill writes: in memory or, when they are many, on a scratch file.
func (w *resolveWorker) gather(ctx context.Context, size int64, fill func(io.Writer) error) (content, error) {
	if size <= w.in.options.WholeBytes {
		buf := bytes.NewBuffer(w.buffers.get(int(min(size, trustedBytes))))
		err := fill(buf)
		return content{data: buf.Bytes(), size: size}, err
	}
	spool, err := w.in.store.files.Scratch(ctx)
	if err != nil {
		return content{}, err
	}
	buffered := bufio.NewWriterSize(spool, copyBufferSize)
	err = fill(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return content{}, errors.Join(err, spool.Close())
	}
	return content{spool: spool, size: size}, nil
}

// examine makes the object of a delta and examines it.
func (w *resolveWorker) examine(ctx context.Context, base *branch, child uint32) (content, object.ID, error) {
	hashing := &hashing{t: base.t}
	made, err := w.apply(ctx, &base.content, child, hashing)
	if err != nil {
		return content{}, object.ZeroID, err
	}
	id, err := w.judge(ctx, base.t, child, &made, hashing)
	if err != nil {
		return content{}, id, errors.Join(err, w.release(&made))
	}
	return made, id, nil
}

func (w *resolveWorker) judge(ctx context.Context, t object.Type, child uint32, made *content, hashing *hashing) (object.ID, error) {
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

// hashing asks for the hash of a blob that is too large to be examined in memory; hasher is nil when it was not.
type hashing struct {
	t      object.Type
	hasher *object.Hasher
}

// apply returns the object that the delta at child builds from base.
func (w *resolveWorker) apply(ctx context.Context, base *content, child uint32, hashing *hashing) (content, error) {
	header, n, err := w.in.entryHeader(child)
	if err != nil {
		return content{}, err
	}
	entry := w.in.table.offsets[child]
	offset, size := entry+int64(n), w.in.table.packedSize(child)-int64(n)
	if base.data != nil && size <= packedHeldMax && header.Size <= deltaHeldMax {
		c, ok, err := w.applyHeld(base.data, offset, size, header.Size, hashing)
		if ok || err != nil {
			return c, badEntry(entry, err)
		}
	}
	z := pack.NewInflater(io.NewSectionReader(&w.in.intake, offset, size))
	defer z.Close()
	c, err := w.applyStream(ctx, base, bufio.NewReaderSize(z, copyBufferSize), hashing)
	return c, badEntry(entry, err)
}

// applyHeld is apply in memory; it returns false when the result is too large for that.
func (w *resolveWorker) applyHeld(base []byte, offset, size, deltaSize int64, hashing *hashing) (c content, ok bool, err error) {
	if err := w.readPacked(offset, size); err != nil {
		return content{}, false, err
	}
	if w.delta, _, err = pack.Inflate(w.delta[:0], w.packed, deltaSize); err != nil {
		return content{}, false, err
	}
	_, result, err := delta.Sizes(w.delta)
	if err != nil || result > w.in.options.WholeBytes {
		return content{}, false, err
	}
	if err := w.allow(hashing, result); err != nil {
		return content{}, false, err
	}
	data, err := delta.Apply(w.buffers.get(int(min(result, trustedBytes))), base, w.delta, result)
	return content{data: data, size: result}, true, err
}

// applyStream is apply for objects of any size.
func (w *resolveWorker) applyStream(ctx context.Context, base *content, program *bufio.Reader, hashing *hashing) (content, error) {
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
	large := size > w.in.options.WholeBytes
	if large && hashing != nil {
		hashing.hasher = object.NewHasher(hashing.t, size)
	}
	return w.gather(ctx, size, func(dst io.Writer) error {
		if large && hashing != nil {
			dst = io.MultiWriter(dst, hashing.hasher)
		}
		_, err := delta.ApplyAt(dst, base.readerAt(), base.size, program, size)
		return err
	})
}

// allow checks the size of an object that is made for the first time.
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
