package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"packhorse/odb/rescue"
)

// Destinations that are no files.
const (
	Stdout = "-"
	Syslog = "syslog"
)

// Options configures [Open].
type Options struct {
	// To is a file that lines are appended to, [Stdout] or [Syslog].
	To string
	// Out is what [Stdout] stands for.
	Out io.Writer
	// Socket is that of the syslog daemon; "" for the usual one of the machine.
	Socket string
	Logger *slog.Logger // slog.Default by default
	// QueueBytes bounds the lines that wait to be written; 1 MiB by default. A longer line waits
	// alone.
	QueueBytes int
}

// Writer writes records to their destination, in the order in which they come. Its methods may be
// called concurrently.
//
// Write returns when the record is in a queue that one goroutine empties: a request does not wait
// for the disk, since what it changed is in the journal of its repository. When the queue is full,
// it does wait, and no record is dropped. A record that cannot be written is lost, counted and
// reported in the server's log.
type Writer struct {
	logger    *slog.Logger
	lineMax   int // in bytes; 0 for any size
	queueMax  int
	news      chan struct{} // holds one when something waits
	closing   chan struct{} // closed by Close
	close     func()
	ended     chan struct{} // closed when the goroutine has ended
	running   sync.WaitGroup
	recorded  atomic.Uint64
	failures  atomic.Uint64
	lastWords error // of the sink; set before ended is closed

	mu      sync.Mutex
	room    *sync.Cond // on mu: the queue has been taken
	queue   []byte     // guarded by mu: lines
	waiting int        // guarded by mu: the number of them
	closed  bool       // guarded by mu

	writing sync.Mutex // guards what follows
	sink    sink
	spare   []byte // the queue before the last one, for its memory
	lost    int    // records since the last one that was written
}

// spareMax bounds the memory that an empty queue keeps, in bytes.
const spareMax = 256 << 10

// Open opens the destination of records. The caller closes the writer.
func Open(options Options) (*Writer, error) {
	var to sink
	var err error
	lineMax := 0
	switch options.To {
	case Stdout:
		to = &stream{to: options.Out}
	case Syslog:
		lineMax = syslogLineMax
		if to, err = openSyslog(options.Socket); err != nil {
			return nil, fmt.Errorf("open syslog: %w", err)
		}
	default:
		if to, err = openFile(options.To); err != nil {
			return nil, err
		}
	}
	return newWriter(to, lineMax, options), nil
}

// newWriter begins to write to a sink.
func newWriter(to sink, lineMax int, options Options) *Writer {
	w := &Writer{
		logger: options.Logger, lineMax: lineMax, queueMax: options.QueueBytes, sink: to,
		news: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	if w.logger == nil {
		w.logger = slog.Default()
	}
	if w.queueMax <= 0 {
		w.queueMax = 1 << 20
	}
	w.room = sync.NewCond(&w.mu)
	w.close = sync.OnceFunc(func() { close(w.closing) })
	rescue.Go(&w.running, w.run, func(err error) { w.logger.Error("panic", "error", err) })
	return w
}

// Write puts a record into the queue, and waits while that is full.
func (w *Writer) Write(r *Record) {
	line, err := r.line(w.lineMax)
	if err != nil { // a field that is no JSON is a bug
		w.lose(1, err)
		return
	}
	w.mu.Lock()
	for !w.closed && len(w.queue) > 0 && len(w.queue)+len(line) > w.queueMax {
		w.room.Wait()
	}
	closed := w.closed
	if !closed {
		w.queue = append(w.queue, line...)
		w.waiting++
	}
	w.mu.Unlock()
	if closed {
		w.lose(1, errClosed)
		return
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
}

var errClosed = errors.New("audit: the log is closed")

// run writes what is queued until Close.
func (w *Writer) run() error {
	defer close(w.ended)
	defer func() { // nobody waits for room any more, also after a panic
		w.mu.Lock()
		w.closed = true
		left := w.waiting
		w.room.Broadcast()
		w.mu.Unlock()
		w.failures.Add(uint64(left))
	}()
	for closing := false; !closing; {
		select {
		case <-w.news:
		case <-w.closing:
			closing = true
			w.mu.Lock()
			w.closed = true
			w.mu.Unlock()
		}
		w.flush()
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	w.lastWords = w.sink.close()
	return nil
}

// flush writes the queue.
func (w *Writer) flush() {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.empty()
}

// empty is flush under the lock writing.
func (w *Writer) empty() {
	w.mu.Lock()
	lines, count := w.queue, w.waiting
	w.queue, w.waiting = w.spare[:0], 0
	w.room.Broadcast()
	w.mu.Unlock()
	w.spare = nil
	if cap(lines) <= spareMax {
		w.spare = lines
	}
	if count == 0 {
		return
	}
	whole := 0
	err := rescue.Do(func() (err error) { // a panic is a failure like others: the next records are tried again
		whole, err = w.sink.write(lines)
		return err
	})
	w.recorded.Add(uint64(whole))
	before := w.lost
	if err != nil {
		w.lost += count - whole
		w.failures.Add(uint64(count - whole))
		if before == 0 {
			w.logger.Error("failed to write to the audit log", "records", count-whole, "error", err)
		}
		return
	}
	if w.lost = 0; before > 0 {
		w.logger.Warn("the audit log is written again", "lost_records", before)
	}
}

// lose counts records that do not get into the queue.
func (w *Writer) lose(count int, err error) {
	w.failures.Add(uint64(count))
	w.logger.Error("failed to write to the audit log", "records", count, "error", err)
}

// Reopen writes what is queued, and makes the writer go on with the file that now has the name of
// its destination: rotation renames the former one before. If it cannot be opened, the writer goes
// on with the former one. A syslog socket is connected to again; standard output stays. An error
// says that one of the two could not be opened, or closed.
func (w *Writer) Reopen() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.empty()
	if err := w.sink.reopen(); err != nil {
		return fmt.Errorf("reopen the audit log: %w", err)
	}
	return nil
}

// Close writes what is queued and closes the destination, which takes until ctx ends at most. A
// record that comes later is lost, and counted.
func (w *Writer) Close(ctx context.Context) error {
	w.close()
	select {
	case <-w.ended:
		return w.lastWords
	case <-ctx.Done():
		return fmt.Errorf("close the audit log: %w", context.Cause(ctx))
	}
}

// Records returns how many records have been written, and Failures how many have been lost.
func (w *Writer) Records() uint64 { return w.recorded.Load() }

// Failures is described with Records.
func (w *Writer) Failures() uint64 { return w.failures.Load() }
