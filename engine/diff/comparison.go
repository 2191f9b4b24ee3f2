package diff

import (
	"bytes"
	"context"
	"iter"
	"runtime"
	"sync"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/pack/object"
)

// Resources are what heavy requests share with each other.
type Resources interface {
	// Slot waits for a place among those who compute, and returns the function that gives it back.
	Slot(ctx context.Context) (release func(), err error)
	// Reserve waits until about sizeBytes of memory may be held, and returns the function that gives them back.
	Reserve(ctx context.Context, sizeBytes int64) (release func(), err error)
}

// CompareOptions say what is told of the files that differ.
type CompareOptions struct {
	// Paths restricts the comparison to these files and folders, as the paths of git diff do: a rename is told as such if both names are
	// among them. What is asked for like this is told whole, whatever it is.
	Paths []string
	// Inline also tells what changed within changed lines.
	Inline bool
	// SizeMax is that of [TextOptions].
	SizeMax int64
}

// Comparison compares the files of two trees on all processors and hands them out in their order.
//
// One goroutine walks the trees, some compare files, and whoever reads the comparison takes them. What is finished and waits for its turn is
// bounded in bytes and in number: beyond, the walk pauses until half of it has been taken. While all wait for the reader, who waits for his
// client, the comparison gives up its slot.
type Comparison struct {
	ctx       context.Context // of the request; a comparison lasts as long
	cancel    context.CancelCauseFunc
	objects   Objects
	resources Resources
	settings  settings
	slot      sharedSlot
	running   rescue.Group
	workers   int // that the walk has started

	toCompare chan *job
	inOrder   chan *job // closed when the walk has ended
	first     *job      // taken from inOrder and not handed out yet

	mu      sync.Mutex
	room    *sync.Cond // told that some was taken, or that ctx has ended
	waiting int        // guarded by mu: jobs in inOrder
	bytes   int        // guarded by mu: of their diffs
}

const (
	jobsMax         = 64
	waitingBytesMax = 4 << 20
)

// job is a file on its way. What it holds belongs to the worker until done is closed, and to the reader then.
type job struct {
	file       File
	raw        *bytes.Buffer
	largeBytes int64 // of both sides when it is to be compared by the reader, else 0
	err        error
	done       chan struct{}
}

// Compare begins to compare two trees. It returns when the first file has been compared, or there is none. The caller closes the comparison.
//
// Errors: those of objects, of resources and of ctx.
func Compare(ctx context.Context, objects Objects, oldTree, newTree object.ID, o CompareOptions, resources Resources) (*Comparison, error) {
	selected := len(o.Paths) > 0
	c := &Comparison{
		objects: objects, resources: resources,
		settings:  settings{selected: selected, inline: o.Inline, text: TextOptions{Binary: selected, SizeMax: o.SizeMax}},
		toCompare: make(chan *job, 4), inOrder: make(chan *job, jobsMax),
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.slot.acquire = resources.Slot
	c.room = sync.NewCond(&c.mu)
	context.AfterFunc(c.ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.room.Broadcast()
	})
	c.running.Go(func() error { return c.walk(Changes(c.ctx, objects, oldTree, newTree, o.Paths)) })
	if err := c.waitFirst(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the comparison and waits for it.
func (c *Comparison) Close() {
	c.cancel(context.Canceled)
	_ = c.running.Wait() // its error has ended ctx
}

// stopOn ends the work with the error of do, or its panic.
func (c *Comparison) stopOn(do func() error) error {
	err := rescue.Do(do)
	if err != nil {
		c.cancel(err)
	}
	return err
}

// walk makes jobs of the changes.
func (c *Comparison) walk(changes iter.Seq2[Change, error]) error {
	defer close(c.inOrder)
	defer close(c.toCompare)
	return c.stopOn(func() error { // before the queues are closed, which would look like the end of the diff
		defer c.slot.leave()
		if err := c.slot.enter(c.ctx); err != nil {
			return err
		}
		for change, err := range changes {
			if err == nil {
				err = c.add(change)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// add puts a file into the queues when there is room.
func (c *Comparison) add(change Change) error {
	j := &job{file: File{Change: change}, done: make(chan struct{})}
	if c.settings.selected {
		before, after, err := sizes(c.ctx, c.objects, &change)
		if err != nil {
			return err
		}
		if before+after > largeBytes {
			j.largeBytes = before + after
		}
	}
	if err := c.awaitRoom(); err != nil {
		return err
	}
	if j.largeBytes > 0 {
		close(j.done)
	} else {
		if c.workers < runtime.GOMAXPROCS(0) { // most diffs are of one or two files
			c.workers++
			c.running.Go(func() error { return c.stopOn(c.compareAll) })
		}
		select {
		case c.toCompare <- j:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	c.inOrder <- j // has room for all that are counted as waiting
	return nil
}

// awaitRoom counts one more job, after a pause without a slot if too much is waiting already.
func (c *Comparison) awaitRoom() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting >= jobsMax || c.bytes > waitingBytesMax {
		c.slot.leave()
		for c.ctx.Err() == nil && (c.waiting > jobsMax/2 || c.bytes > waitingBytesMax/2) {
			c.room.Wait()
		}
		c.mu.Unlock()
		err := c.slot.enter(c.ctx)
		c.mu.Lock()
		if err == nil && c.ctx.Err() != nil { // while others compute, enter does not look
			err = context.Cause(c.ctx)
		}
		if err != nil {
			return err
		}
	}
	c.waiting++
	return nil
}

// raws holds the buffers that diffs are kept in until they are told.
var raws = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// compareAll is one worker.
func (c *Comparison) compareAll() error {
	for j := range c.toCompare {
		if j.err = c.slot.enter(c.ctx); j.err == nil {
			j.raw = raws.Get().(*bytes.Buffer)
			j.raw.Reset()
			j.err = rescue.Do(func() error {
				return fair.Do(c.ctx, func(ctx context.Context) error {
					return j.file.compare(ctx, c.objects, &c.settings, j.raw)
				})
			})
			c.mu.Lock()
			c.bytes += j.file.heldBytes()
			c.mu.Unlock()
		}
		c.slot.leave()
		close(j.done)
	}
	return nil
}

// waitFirst returns when the first file has been compared, or there is none, or with what has gone wrong before.
func (c *Comparison) waitFirst() error {
	j, ok := <-c.inOrder
	if !ok {
		return c.failure()
	}
	c.first = j
	return c.wait(j)
}

func (c *Comparison) wait(j *job) error {
	select {
	case <-j.done:
		if j.err == nil || c.ctx.Err() == nil {
			return j.err
		}
	case <-c.ctx.Done():
	}
	return context.Cause(c.ctx) // what the job says is that it was cancelled
}

// failure is what ended the walk early, if anything did.
func (c *Comparison) failure() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return nil
}

// Files hands out the changed files in the order of git diff. idle is called before the next one has to be waited for.
func (c *Comparison) Files(idle func() error) iter.Seq2[*File, error] {
	return func(yield func(*File, error) bool) {
		for {
			j, err := c.next(idle)
			if j == nil || err != nil {
				if err != nil {
					yield(nil, err)
				}
				return
			}
			more, err := c.handOut(j, yield)
			if err != nil {
				yield(nil, err)
			}
			if !more || err != nil {
				return
			}
		}
	}
}

// next returns the next job, compared unless it is large, or nil.
func (c *Comparison) next(idle func() error) (*job, error) {
	j := c.first
	c.first = nil
	if j == nil {
		var ok bool
		select {
		case j, ok = <-c.inOrder:
		default:
			if err := idle(); err != nil {
				return nil, err
			}
			j, ok = <-c.inOrder
		}
		if !ok {
			return nil, c.failure()
		}
	}
	select {
	case <-j.done:
		return j, c.wait(j)
	default:
	}
	if err := idle(); err != nil {
		return nil, err
	}
	return j, c.wait(j)
}

// handOut passes a file to the reader and takes it back.
func (c *Comparison) handOut(j *job, yield func(*File, error) bool) (more bool, err error) {
	defer c.taken(j)
	if j.largeBytes == 0 {
		return yield(&j.file, nil), nil
	}
	release, err := c.compareLarge(j)
	if err != nil {
		return false, err
	}
	defer release()
	more = yield(&j.file, nil)
	j.file.text = nil
	return more, nil
}

// compareLarge compares a file that is held in memory until release is called.
func (c *Comparison) compareLarge(j *job) (release func(), err error) {
	// The contents, and about as much again for their lines.
	release, err = insist(c.ctx, func(ctx context.Context) (func(), error) { return c.resources.Reserve(ctx, 2*j.largeBytes) })
	if err != nil {
		return nil, err
	}
	defer c.slot.leave()
	if err = c.slot.enter(c.ctx); err == nil {
		err = fair.Do(c.ctx, func(ctx context.Context) error {
			j.file.text, err = NewText(ctx, c.objects, &j.file.Change, c.settings.text)
			return err
		})
	}
	if err != nil {
		release()
		return nil, err
	}
	j.file.take(j.file.text)
	return release, nil
}

// taken makes room.
func (c *Comparison) taken(j *job) {
	size := j.file.heldBytes()
	if j.raw != nil {
		raws.Put(j.raw)
		j.raw = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	c.bytes -= size
	c.room.Broadcast()
}
