package odb

import (
	"context"
	"runtime"
	"sync"

	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack"
)

// blockPipe compresses blocks, one goroutine a core, and passes them on in order, in a goroutine of
// its own. It ends with finish or abort. At most 2*cores+2 blocks are between push and the end,
// which bounds the memory.
type blockPipe struct {
	group   *rescue.Group
	cancel  context.CancelFunc
	stopped <-chan struct{} // closed when blocks are not handed on any more
	work    chan *streamBlock
	ordered chan *streamBlock
}

// streamBlock is a block on its way through a pipe.
type streamBlock struct {
	content []byte
	packed  []byte
	block   pack.Block    // whose Packed lies in packed
	done    chan struct{} // closed when block is there
}

var streamBlocks = sync.Pool{New: func() any {
	return &streamBlock{content: make([]byte, pack.BlockSize), packed: make([]byte, 0, pack.BlockSize+kibibyte)}
}}

// newStreamBlock returns a block for the caller to fill.
func newStreamBlock(size int64) *streamBlock {
	b := streamBlocks.Get().(*streamBlock) // the pool makes nothing else
	b.content = b.content[:size]
	b.done = make(chan struct{})
	return b
}

// release returns the block's memory to the pool.
func (b *streamBlock) release() {
	if cap(b.block.Packed) > cap(b.packed) {
		b.packed = b.block.Packed
	}
	b.block = pack.Block{}
	streamBlocks.Put(b)
}

// newBlockPipe begins a pipe whose blocks go to out, which must not keep them.
func newBlockPipe(ctx context.Context, out func(b *streamBlock) error) *blockPipe {
	cores := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := rescue.WithContext(ctx)
	p := &blockPipe{
		group: group, cancel: cancel, stopped: ctx.Done(), work: make(chan *streamBlock),
		ordered: make(chan *streamBlock, cores),
	}
	for range cores {
		group.Go(func() error {
			for b := range p.work {
				b.block = pack.EncodeBlock(b.packed[:0], b.content, segment.Level)
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
			b.release()
		}
		return ctx.Err()
	})
	return p
}

// push adds a block to the pipe. It returns false when the pipe has stopped; finish returns why.
func (p *blockPipe) push(b *streamBlock) bool {
	for _, to := range []chan<- *streamBlock{p.work, p.ordered} {
		select {
		case to <- b:
		case <-p.stopped:
			return false
		}
	}
	return true
}

// finish returns when all blocks have been handed on.
func (p *blockPipe) finish() error {
	close(p.work)
	close(p.ordered)
	err := p.group.Wait()
	p.cancel()
	return err
}

// abort discards the remaining blocks, and returns when out is no longer called.
func (p *blockPipe) abort() {
	p.cancel()
	_ = p.finish() // it was cancelled
}
