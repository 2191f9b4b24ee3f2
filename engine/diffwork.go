package engine

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"time"

	"packhorse/engine/diff"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/rescue"
)

// diffWork compares the files of one diff on all processors and hands them out in their order.
//
// One goroutine walks the trees, some compare files, and whoever reads the diff takes them. What is finished and waits for its turn is
// bounded in bytes and in number: beyond, the walk pauses until half of it has been taken. While all wait for the reader, who waits for his
// client, the work gives up its slot.
type diffWork struct {
	ctx       context.Context // of the request; a work lasts as long
	cancel    context.CancelCauseFunc
	view      *odb.View
	resources Resources
	settings  diffSettings
	slot      diffSlot
	running   rescue.Group
	workers   int // that the walk has started

	toCompare chan *diffJob
	inOrder   chan *diffJob // closed when the walk has ended
	first     *diffJob      // taken from inOrder and not handed out yet

	mu      sync.Mutex
	room    *sync.Cond // told that some was taken, or that ctx has ended
	waiting int        // guarded by mu: jobs in inOrder
	bytes   int        // guarded by mu: of their diffs
}

const (
	diffJobsMax  = 64
	diffBytesMax = 4 << 20
)

// diffJob is a file on its way. What it holds belongs to the worker until done is closed, and to the reader then.
type diffJob struct {
	file       DiffFile
	raw        *bytes.Buffer
	largeBytes int64 // of both sides when it is to be compared by the reader, else 0
	err        error
	done       chan struct{}
}

// startDiffWork begins the work. stop must be called.
func startDiffWork(ctx context.Context, view *odb.View, resources Resources, s diffSettings, changes iter.Seq2[diff.Change, error]) *diffWork {
	w := &diffWork{
		view: view, resources: resources, settings: s,
		toCompare: make(chan *diffJob, 4), inOrder: make(chan *diffJob, diffJobsMax),
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.slot.acquire = resources.Slot
	w.room = sync.NewCond(&w.mu)
	context.AfterFunc(w.ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.room.Broadcast()
	})
	w.running.Go(func() error { return w.walk(changes) })
	return w
}

// stop ends the work and waits for it.
func (w *diffWork) stop() {
	w.cancel(context.Canceled)
	_ = w.running.Wait() // its error has ended ctx
}

// stopOn ends the work with the error of do, or its panic.
func (w *diffWork) stopOn(do func() error) error {
	err := rescue.Do(do)
	if err != nil {
		w.cancel(err)
	}
	return err
}

// walk makes jobs of the changes.
func (w *diffWork) walk(changes iter.Seq2[diff.Change, error]) error {
	defer close(w.inOrder)
	defer close(w.toCompare)
	return w.stopOn(func() error { // before the queues are closed, which would look like the end of the diff
		defer w.slot.leave()
		if err := w.slot.enter(w.ctx); err != nil {
			return err
		}
		for change, err := range changes {
			if err == nil {
				err = w.add(change)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// add puts a file into the queues when there is room.
func (w *diffWork) add(change diff.Change) error {
	job := &diffJob{file: DiffFile{Change: change}, done: make(chan struct{})}
	if w.settings.selected {
		before, after, err := diffSizes(w.ctx, w.view, &change)
		if err != nil {
			return err
		}
		if before+after > diffLargeBytes {
			job.largeBytes = before + after
		}
	}
	if err := w.awaitRoom(); err != nil {
		return err
	}
	if job.largeBytes > 0 {
		close(job.done)
	} else {
		if w.workers < runtime.GOMAXPROCS(0) { // most diffs are of one or two files
			w.workers++
			w.running.Go(func() error { return w.stopOn(w.compareAll) })
		}
		select {
		case w.toCompare <- job:
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
	}
	w.inOrder <- job // has room for all that are counted as waiting
	return nil
}

// awaitRoom counts one more job, after a pause without a slot if too much is waiting already.
func (w *diffWork) awaitRoom() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting >= diffJobsMax || w.bytes > diffBytesMax {
		w.slot.leave()
		for w.ctx.Err() == nil && (w.waiting > diffJobsMax/2 || w.bytes > diffBytesMax/2) {
			w.room.Wait()
		}
		w.mu.Unlock()
		err := w.slot.enter(w.ctx)
		w.mu.Lock()
		if err != nil {
			return err
		}
	}
	w.waiting++
	return nil
}

// diffRaws holds the buffers that diffs are kept in until they are told.
var diffRaws = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// compareAll is one worker.
func (w *diffWork) compareAll() error {
	for job := range w.toCompare {
		if job.err = w.slot.enter(w.ctx); job.err == nil {
			job.raw = diffRaws.Get().(*bytes.Buffer)
			job.raw.Reset()
			job.err = rescue.Do(func() error {
				return fair.Do(w.ctx, func(ctx context.Context) error {
					return job.file.compare(ctx, w.view, &w.settings, job.raw)
				})
			})
			w.mu.Lock()
			w.bytes += job.file.heldBytes()
			w.mu.Unlock()
		}
		w.slot.leave()
		close(job.done)
	}
	return nil
}

// waitFirst returns when the first file has been compared, or there is none, or with what has gone wrong before.
func (w *diffWork) waitFirst() error {
	job, ok := <-w.inOrder
	if !ok {
		return w.failure()
	}
	w.first = job
	return w.wait(job)
}

func (w *diffWork) wait(job *diffJob) error {
	select {
	case <-job.done:
		if job.err == nil || w.ctx.Err() == nil {
			return job.err
		}
	case <-w.ctx.Done():
	}
	return context.Cause(w.ctx) // what the job says is that it was cancelled
}

// failure is what ended the walk early, if anything did.
func (w *diffWork) failure() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return nil
}

// files hands out the files. idle is called before the next one has to be waited for.
func (w *diffWork) files(idle func() error) iter.Seq2[*DiffFile, error] {
	return func(yield func(*DiffFile, error) bool) {
		for {
			job, err := w.next(idle)
			if job == nil || err != nil {
				if err != nil {
					yield(nil, err)
				}
				return
			}
			more, err := w.handOut(job, yield)
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
func (w *diffWork) next(idle func() error) (*diffJob, error) {
	job := w.first
	w.first = nil
	if job == nil {
		var ok bool
		select {
		case job, ok = <-w.inOrder:
		default:
			if err := idle(); err != nil {
				return nil, err
			}
			job, ok = <-w.inOrder
		}
		if !ok {
			return nil, w.failure()
		}
	}
	select {
	case <-job.done:
		return job, w.wait(job)
	default:
	}
	if err := idle(); err != nil {
		return nil, err
	}
	return job, w.wait(job)
}

// handOut passes a file to the reader and takes it back.
func (w *diffWork) handOut(job *diffJob, yield func(*DiffFile, error) bool) (more bool, err error) {
	defer w.taken(job)
	if job.largeBytes == 0 {
		return yield(&job.file, nil), nil
	}
	release, err := w.compareLarge(job)
	if err != nil {
		return false, err
	}
	defer release()
	more = yield(&job.file, nil)
	job.file.text = nil
	return more, nil
}

// compareLarge compares a file that is held in memory until release is called.
func (w *diffWork) compareLarge(job *diffJob) (release func(), err error) {
	// The contents, and about as much again for their lines.
	release, err = insist(w.ctx, func(ctx context.Context) (func(), error) { return w.resources.Reserve(ctx, 2*job.largeBytes) })
	if err != nil {
		return nil, err
	}
	defer w.slot.leave()
	if err = w.slot.enter(w.ctx); err == nil {
		err = fair.Do(w.ctx, func(ctx context.Context) error {
			job.file.text, err = diff.NewText(ctx, w.view, &job.file.Change, w.settings.text)
			return err
		})
	}
	if err != nil {
		release()
		return nil, err
	}
	job.file.take(job.file.text)
	return release, nil
}

// taken makes room.
func (w *diffWork) taken(job *diffJob) {
	size := job.file.heldBytes()
	if job.raw != nil {
		diffRaws.Put(job.raw)
		job.raw = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	w.bytes -= size
	w.room.Broadcast()
}

// diffSlot is one slot for all goroutines of a diff: it is held while any of them computes.
type diffSlot struct {
	acquire func(ctx context.Context) (release func(), err error)

	mu      sync.Mutex // held while the slot is waited for: all need it
	busy    int        // guarded by mu
	release func()     // guarded by mu; nil without the slot
	begun   bool       // guarded by mu: it was held once
}

// enter returns when there is a slot. leave must be called afterwards, also if enter has failed.
func (s *diffSlot) enter(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	if s.release != nil {
		return nil
	}
	acquire := s.acquire
	if s.begun {
		acquire = func(ctx context.Context) (func(), error) { return insist(ctx, s.acquire) }
	}
	release, err := acquire(ctx)
	if err != nil {
		return fmt.Errorf("wait for a slot: %w", err)
	}
	s.release, s.begun = release, true
	return nil
}

func (s *diffSlot) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy--; s.busy == 0 && s.release != nil {
		s.release()
		s.release = nil
	}
}

// insistPause is the time before a diff that is under way asks again for what it did not get.
const insistPause = time.Second

// insist asks for a resource until it gets it or ctx has ended: an answer that has begun cannot be refused any more.
func insist(ctx context.Context, acquire func(context.Context) (func(), error)) (release func(), err error) {
	for {
		if release, err = acquire(ctx); err == nil {
			return release, nil
		}
		select {
		case <-time.After(insistPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
