package packgen

import (
	"context"
	"io"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// generateLevel is the compression level of objects that are deflated while a client waits: one
// above git's, because our deflate at git's level makes 2 % more bytes of a checkout.
const generateLevel = 7

// deflaters prepare entries ahead of their turn, on two goroutines.
type deflaters struct {
	work    chan deflateJob
	workers rescue.Group
}

func (d *deflaters) start(ctx context.Context, inv *inventory) {
	d.work = make(chan deflateJob, deflateCountAhead)
	for range 2 {
		d.workers.Go(func() error {
			for job := range d.work {
				job.end(rescue.Do(func() error {
					return fair.Do(ctx, func(ctx context.Context) error {
						_ = inv.pace.Rest(ctx) // the job checks ctx, too
						return job.run(ctx, inv)
					})
				}))
			}
			return nil
		})
	}
}

// stop waits for the goroutines. Before it, the caller should end the context that start was given.
func (d *deflaters) stop() {
	close(d.work)
	_ = d.workers.Wait() // the jobs hold their errors
}

// deflateJob is a preparation ahead of its use. Its result is valid once end was called.
type deflateJob interface {
	run(ctx context.Context, inv *inventory) error
	end(err error)
}

// deflating is an object that is deflated ahead. Its fields are valid once done is closed.
type deflating struct {
	h      handle
	kind   object.Type
	size   int64
	packed []byte
	err    error
	done   chan struct{}
}

// deflate queues an object for deflating.
func (d *deflaters) deflate(ctx context.Context, h handle) *deflating {
	job := &deflating{h: h, done: make(chan struct{})}
	d.add(ctx, job)
	return job
}

// add queues a job if there is room.
func (d *deflaters) add(ctx context.Context, job deflateJob) {
	select {
	case d.work <- job:
	default:
		_ = fair.Rest(ctx, func() error {
			d.work <- job
			return nil
		})
	}
}

func (j *deflating) run(ctx context.Context, inv *inventory) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	kind, content, err := inv.read(ctx, j.h)
	if err != nil {
		return err
	}
	j.kind, j.size, j.packed = kind, int64(len(content)), pack.Deflate(nil, content, generateLevel)
	return nil
}

func (j *deflating) end(err error) {
	j.err = err
	close(j.done)
}

// writeDeflated writes an object that was deflated ahead.
func (o *packOutput) writeDeflated(ctx context.Context, job *deflating) error {
	if err := restUntil(ctx, job.done); err != nil {
		return err
	}
	if job.err != nil {
		return job.err
	}
	return o.writeEntry(pack.EntryHeader{Kind: pack.EntryKind(job.kind), Size: job.size}, job.packed)
}

// writeWhole writes a whole object that is stored in another form.
func (o *packOutput) writeWhole(ctx context.Context, h handle) error {
	if err := fair.Pause(ctx); err != nil {
		return err
	}
	info, err := o.plan.inv.stat(ctx, h)
	if err != nil {
		return err
	}
	header := pack.EntryHeader{Kind: pack.EntryKind(info.Type), Size: info.Size}
	if info.Size > segment.WholeMax {
		return o.writeLarge(ctx, h, header)
	}
	_, data, err := o.plan.inv.read(ctx, h)
	if err != nil {
		return err
	}
	o.packed = pack.Deflate(o.packed[:0], data, generateLevel)
	return o.writeEntry(header, o.packed)
}

// writeLarge writes an object that does not fit in memory, block by block.
func (o *packOutput) writeLarge(ctx context.Context, h handle, header pack.EntryHeader) error {
	id, err := o.plan.inv.id(ctx, h)
	if err != nil {
		return err
	}
	content, err := o.plan.inv.view.Open(ctx, id)
	if err != nil {
		return err
	}
	defer content.Close()
	if err := o.writeHeader(header); err != nil {
		return err
	}
	z := &blockDeflater{dst: o.stream}
	if _, err := content.WriteTo(z); err != nil {
		return err
	}
	return z.finish()
}

// blockDeflater deflates what is written to it, a block at a time.
type blockDeflater struct {
	dst    io.Writer
	blocks pack.Blocks
	block  []byte
	packed []byte
}

// Write implements [io.Writer].
func (z *blockDeflater) Write(p []byte) (int, error) {
	if z.block == nil {
		z.block = make([]byte, 0, pack.BlockSize)
	}
	written := 0
	for written < len(p) {
		n := copy(z.block[len(z.block):pack.BlockSize], p[written:])
		z.block = z.block[:len(z.block)+n]
		written += n
		if len(z.block) == pack.BlockSize {
			if err := z.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

func (z *blockDeflater) flush() error {
	block := pack.EncodeBlock(nil, z.block, generateLevel)
	z.packed = z.blocks.Append(z.packed[:0], block)
	z.block = z.block[:0]
	_, err := z.dst.Write(z.packed)
	return err
}

func (z *blockDeflater) finish() error {
	if len(z.block) > 0 {
		if err := z.flush(); err != nil {
			return err
		}
	}
	_, err := z.dst.Write(z.blocks.Finish(z.packed[:0]))
	return err
}
