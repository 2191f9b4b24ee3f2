package segment

import (
	"context"
	"runtime"
	"sync"

	"packhorse/odb/rescue"
	"packhorse/pack"
)

// BlockPipe compresses blocks, one goroutine a core, and passes them on in order, in a goroutine of
// its own. It ends with Finish or Abort. At most 2*cores+2 blocks are between Push and the end,
// which bounds the memory.
type BlockPipe struct {
	group   *rescue.Group
	cancel  context.CancelFunc
	stopped <-chan struct{} // closed when blocks are not handed on any more
	work    chan *StreamBlock
	ordered chan *StreamBlock
}

// StreamBlock is a block on its way through a pipe. [NewStreamBlock] makes one; whoever holds it at
// the end releases it, which a pipe does behind its output.
type StreamBlock struct {
	Content []byte        // to be compressed; the caller fills it
	Buffer  []byte        // that Block is encoded into
	Block   pack.Block    // whose Packed lies in Buffer
	done    chan struct{} // closed when Block is there
}

var streamBlocks = sync.Pool{New: func() any {
	return &StreamBlock{Content: make([]byte, pack.BlockSize), Buffer: make([]byte, 0, pack.BlockSize+1<<10)}
}}

// NewStreamBlock returns a block for the caller to fill.
func NewStreamBlock(size int64) *StreamBlock {
	b := streamBlocks.Get().(*StreamBlock) // the pool makes nothing else
	b.Content = b.Content[:size]
	b.done = make(chan struct{})
	return b
}

// Release returns the block's memory to the pool.
func (b *StreamBlock) Release() {
	if cap(b.Block.Packed) > cap(b.Buffer) {
		b.Buffer = b.Block.Packed
	}
	b.Block = pack.Block{}
	streamBlocks.Put(b)
}

// NewBlockPipe begins a pipe whose blocks go to out, in the order of Push. out must not keep them.
// ctx ends the pipe, too.
func NewBlockPipe(ctx context.Context, out func(b *StreamBlock) error) *BlockPipe {
	cores := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := rescue.WithContext(ctx)
	p := &BlockPipe{
		group: group, cancel: cancel, stopped: ctx.Done(), work: make(chan *StreamBlock),
		ordered: make(chan *StreamBlock, cores),
	}
	for range cores {
		group.Go(func() error {
			for b := range p.work {
				b.Block = pack.EncodeBlock(b.Buffer[:0], b.Content, Level)
				close(b.done)
			}
			return nil
		})
	}
	group.Go(func() error {
		for b := range p.ordered {
			select {
			case <-b.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := out(b); err != nil {
				return err
			}
			b.Release()
		}
		return ctx.Err()
	})
	return p
}

// Push adds a block to the pipe. It returns false when the pipe has stopped; Finish returns why.
func (p *BlockPipe) Push(b *StreamBlock) bool {
	for _, to := range []chan<- *StreamBlock{p.work, p.ordered} {
		select {
		case to <- b:
		case <-p.stopped:
			return false
		}
	}
	return true
}

// Finish returns when all blocks have been handed on.
func (p *BlockPipe) Finish() error {
	close(p.work)
	close(p.ordered)
	err := p.group.Wait()
	p.cancel()
	return err
}

// Abort discards the remaining blocks, and returns when out is no longer called.
func (p *BlockPipe) Abort() {
	p.cancel()
	_ = p.Finish() // it was cancelled
}
