package packgen

import (
	"context"
	"io"

	"packhorse/odb/fair"
	"packhorse/odb/inorder"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// generateLevel is the compression level of objects that are deflated while a client waits: one
// above git's, because our deflate at git's level makes 2 % more bytes of a checkout.
const generateLevel = 7

// treeLevel is generateLevel of trees: half of a tree is hashes, on which more work is wasted. It
// takes half the time, for 1 to 5 % more bytes.
const treeLevel = 2

// smallMax is the size in bytes up to which git's level is taken in the place of generateLevel,
// whose tables take longer to clear than so few bytes to compress: half the time, for 1 % more
// bytes.
const smallMax = 1 << 10

// deflateContent appends the content of an object to dst, deflated while a client waits.
func deflateContent(dst []byte, kind object.Type, content []byte) []byte {
	if kind == object.TypeTree {
		return pack.Deflate(dst, content, treeLevel)
	}
	return deflateBytes(dst, content)
}

// deflateBytes is deflateContent for anything but a tree, and for a delta.
func deflateBytes(dst, data []byte) []byte {
	if len(data) <= smallMax {
		return pack.Deflate(dst, data, pack.LevelDefault)
	}
	return pack.Deflate(dst, data, generateLevel)
}

// aheadOptions are those of the goroutines that prepare entries ahead of their turn.
var aheadOptions = inorder.Options{Workers: 2, Ahead: deflateCountAhead}

// deflating is an object that is deflated ahead of its turn.
type deflating = inorder.Task[handle, deflated]

// deflated is what becomes of it.
type deflated struct {
	kind   object.Type
	size   int64
	packed []byte
}

// deflate deflates an object.
func (p *PackPlan) deflate(ctx context.Context, h handle) (deflated, error) {
	if err := p.inv.pace.Rest(ctx); err != nil {
		return deflated{}, err
	}
	info, err := p.inv.stat(ctx, h)
	if err != nil {
		return deflated{}, err
	}
	if info.Size <= deflatedMax {
		packed, err := p.deflateSmall(ctx, h)
		return deflated{info.Type, info.Size, packed}, err
	}
	kind, content, err := p.inv.read(ctx, h)
	if err != nil {
		return deflated{}, err
	}
	return deflated{kind, int64(len(content)), deflateContent(nil, kind, content)}, nil
}

// deflatedMax is the size in bytes up to which the deflated form of an object is cached.
const deflatedMax = 64 << 10

// deflateSmall returns the deflated form of an object of at most deflatedMax bytes, shared and
// read-only.
func (p *PackPlan) deflateSmall(ctx context.Context, h handle) ([]byte, error) {
	id, err := p.inv.id(ctx, h)
	if err != nil {
		return nil, err
	}
	if packed, ok := p.inv.view.Deflated(id); ok {
		return packed, nil
	}
	kind, content, err := p.inv.read(ctx, h)
	if err != nil {
		return nil, err
	}
	packed := deflateContent(nil, kind, content)
	p.inv.view.KeepDeflated(id, packed)
	return packed, nil
}

// writeDeflated writes an object that was deflated ahead.
func (o *packOutput) writeDeflated(ctx context.Context, task *deflating) error {
	d, err := task.Wait(ctx)
	if err != nil {
		return err
	}
	return o.writeEntry(pack.EntryHeader{Kind: pack.EntryKind(d.kind), Size: d.size}, d.packed)
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
	if info.Size <= deflatedMax {
		packed, err := o.plan.deflateSmall(ctx, h)
		if err != nil {
			return err
		}
		return o.writeEntry(header, packed)
	}
	_, data, err := o.plan.inv.read(ctx, h)
	if err != nil {
		return err
	}
	o.packed = deflateContent(o.packed[:0], info.Type, data)
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
