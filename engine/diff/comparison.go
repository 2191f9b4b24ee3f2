package diff

import (
	"bytes"
	"context"
	"iter"
	"sync"

	"packhorse/odb/fair"
	"packhorse/odb/inorder"
	"packhorse/pack/object"
)

// Resources are what heavy requests share with each other.
type Resources interface {
	// Slot waits for a slot for computing, and returns the function that releases it.
	Slot(ctx context.Context) (release func(), err error)
	// Reserve waits until about sizeBytes of memory are available, reserves them, and returns the
	// function that releases them.
	Reserve(ctx context.Context, sizeBytes int64) (release func(), err error)
}

// CompareOptions select the files that differ and the details of their diffs.
type CompareOptions struct {
	// Paths restricts the comparison to these files and folders, as the paths of git diff do: a
	// rename is reported as such if both names are among them. Files selected like this are shown
	// in full, whatever their kind.
	Paths []string
	// Inline also marks the changes within changed lines.
	Inline bool
	// SizeMax is that of [TextOptions].
	SizeMax int64
	// After is the path of the changed file that the comparison goes on behind; "" begins with the
	// first one.
	After string
	// Limit makes a page: it ends after so many files, or after the one with which their diffs have
	// reached [PageBytes]. 0 compares all files.
	Limit int
}

// PageBytes is the size of the diffs that end a page.
const PageBytes = 1 << 20

// Comparison compares the files of two trees on all processors and returns them in their order.
//
// One goroutine walks the trees, some compare files, and the reader of the comparison takes them.
// Finished files that wait for their turn are bounded in bytes and in number: beyond, the walk
// pauses until half of them have been taken. While all wait for the reader, which waits for its
// client, the comparison releases its slot.
type Comparison struct {
	ctx       context.Context // of the request; a comparison lasts as long
	cancel    context.CancelFunc
	objects   Objects
	resources Resources
	settings  settings
	slot      sharedSlot

	limit int
	more  bool // changes follow the limit: written by the walk before it ends
	full  bool // the page has PageBytes, and a file follows: of the reader, who ends before the walk

	next  func() (*comparing, error, bool) // moves to the next file
	stop  func()
	first *comparing   // taken from next and not handed out yet
	idle  func() error // of the reader; nil before there is one

	mu      sync.Mutex
	room    *sync.Cond // signalled when files were taken, or when ctx has ended
	waiting int        // guarded by mu: files that the walk has found and the reader has not had
	bytes   int        // guarded by mu: of their diffs
}

const (
	waitingMax      = 64
	waitingBytesMax = 4 << 20
)

// comparing is a file on its way. It belongs to the worker until it has been compared, and to the
// reader then.
type comparing struct {
	file       File
	raw        *bytes.Buffer
	largeBytes int64 // of both sides when it is to be compared by the reader, else 0
}

// Compare begins to compare two trees. It returns when the first file has been compared, or there
// is none. The caller closes the comparison.
//
// Errors: [ErrAfter]; those of objects, of resources and of ctx.
func Compare(
	ctx context.Context, objects Objects, oldTree, newTree object.ID, o CompareOptions, resources Resources,
) (*Comparison, error) {
	selected := len(o.Paths) > 0
	c := &Comparison{
		objects: objects, resources: resources, limit: o.Limit,
		settings: settings{selected: selected, inline: o.Inline, text: TextOptions{Binary: selected, SizeMax: o.SizeMax}},
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.slot.acquire = resources.Slot
	c.room = sync.NewCond(&c.mu)
	context.AfterFunc(c.ctx, func() { // bare: it wakes who waits
		c.mu.Lock()
		defer c.mu.Unlock()
		c.room.Broadcast()
	})
	c.next, c.stop = iter.Pull2(inorder.Map(c.ctx, c.walk(oldTree, newTree, &o), inorder.Options{
		Ahead: waitingMax,
		Idle: func() error {
			if c.idle == nil {
				return nil
			}
			return c.idle()
		},
	}, c.compare))
	first, err := c.take()
	if err != nil {
		c.Close()
		return nil, err
	}
	c.first = first
	return c, nil
}

// Close ends the comparison and waits for it.
func (c *Comparison) Close() {
	c.cancel()
	c.stop()
	c.slot.end()
}

// walk finds the files that differ. There is a slot for each until it has been compared.
func (c *Comparison) walk(oldTree, newTree object.ID, o *CompareOptions) iter.Seq2[*comparing, error] {
	return func(yield func(*comparing, error) bool) {
		defer c.slot.leave()
		if err := c.slot.enter(c.ctx); err != nil {
			yield(nil, err)
			return
		}
		all := Changes(c.ctx, c.objects, oldTree, newTree, o.Paths)
		for change, err := range page(all, o.After, o.Limit, &c.more) {
			f := &comparing{file: File{Change: change}}
			if err == nil {
				f.largeBytes, err = c.largeBytes(&change)
			}
			if err == nil {
				err = c.awaitRoom()
			}
			if err == nil {
				c.slot.share()
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// largeBytes returns the size of both sides of a file that is to be compared by the reader, else 0.
func (c *Comparison) largeBytes(change *Change) (int64, error) {
	if !c.settings.selected {
		return 0, nil
	}
	before, after, err := sizes(c.ctx, c.objects, change)
	if err != nil || before+after <= largeBytes {
		return 0, err
	}
	return before + after, nil
}

// awaitRoom counts one more file, after a pause without a slot if too much is waiting already.
func (c *Comparison) awaitRoom() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting >= waitingMax || c.bytes > waitingBytesMax {
		c.slot.leave()
		for c.ctx.Err() == nil && (c.waiting > waitingMax/2 || c.bytes > waitingBytesMax/2) {
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

// raws holds the buffers of diffs that wait for the reader.
var raws = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// compare compares a file unless it is large.
func (c *Comparison) compare(ctx context.Context, f *comparing) (*comparing, error) {
	defer c.slot.leave()
	if f.largeBytes > 0 {
		return f, nil
	}
	f.raw = raws.Get().(*bytes.Buffer)
	f.raw.Reset()
	err := f.file.compare(ctx, c.objects, &c.settings, f.raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += f.file.heldBytes()
	return f, err
}

// take returns the next file, compared unless it is large, or nil.
func (c *Comparison) take() (*comparing, error) {
	f, err, _ := c.next()
	if err != nil && c.ctx.Err() != nil {
		err = context.Cause(c.ctx) // the error of the file is only the cancellation
	}
	return f, err
}

// Files hands out the changed files in the order of git diff. idle is called before the next one
// has to be waited for.
func (c *Comparison) Files(idle func() error) iter.Seq2[*File, error] {
	c.idle = idle
	return func(yield func(*File, error) bool) {
		f, err := c.first, error(nil)
		size := int64(0)
		for c.first = nil; f != nil && err == nil; f, err = c.take() {
			if c.limit > 0 && size >= PageBytes {
				c.full = true
				c.taken(f)
				return
			}
			size += max(f.file.Bytes, f.largeBytes)
			var more bool
			if more, err = c.handOut(f, yield); err != nil || !more {
				break
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// HasMore reports, when Files has ended, whether files follow the page.
func (c *Comparison) HasMore() bool { return c.full || c.more }

// handOut passes a file to the reader and takes it back.
func (c *Comparison) handOut(f *comparing, yield func(*File, error) bool) (more bool, err error) {
	defer c.taken(f)
	if f.largeBytes == 0 {
		return yield(&f.file, nil), nil
	}
	release, err := c.compareLarge(f)
	if err != nil {
		return false, err
	}
	defer release()
	more = yield(&f.file, nil)
	f.file.text = nil
	return more, nil
}

// compareLarge compares a file that is held in memory until release is called.
func (c *Comparison) compareLarge(f *comparing) (release func(), err error) {
	// The contents, and about as much again for their lines.
	release, err = insist(c.ctx, func(ctx context.Context) (func(), error) {
		return c.resources.Reserve(ctx, 2*f.largeBytes)
	})
	if err != nil {
		return nil, err
	}
	defer c.slot.leave()
	if err = c.slot.enter(c.ctx); err == nil {
		err = fair.Do(c.ctx, func(ctx context.Context) error {
			f.file.text, err = NewText(ctx, c.objects, &f.file.Change, c.settings.text)
			return err
		})
	}
	if err != nil {
		release()
		return nil, err
	}
	f.file.take(f.file.text)
	return release, nil
}

// taken makes room.
func (c *Comparison) taken(f *comparing) {
	size := f.file.heldBytes()
	if f.raw != nil {
		raws.Put(f.raw)
		f.raw = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	c.bytes -= size
	c.room.Broadcast()
}
