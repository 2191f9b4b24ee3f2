package odbtest

import (
	"context"
	"iter"
	"sync/atomic"

	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// Trapped is the value with which a [Trap] panics.
const Trapped = "trapped"

// Trap makes one call of a pair of stores panic, in whatever goroutine it is made.
type Trap struct{ calls atomic.Int64 }

// Set has the call of a number panic, counted from 1 and from now on. A row of a scan counts as a
// call.
func (t *Trap) Set(call int64) { t.calls.Store(call) }

// Take ends the wait for that call, and reports whether it has panicked.
func (t *Trap) Take() (sprung bool) { return t.calls.Swap(0) < 0 }

// Step counts a call of the stores, or of something else that a test has. The one that counts down
// to zero panics, and leaves the trap as one that has sprung.
func (t *Trap) Step() {
	for left := t.calls.Load(); left > 0; left = t.calls.Load() {
		next := left - 1
		if next == 0 {
			next = -1
		}
		if t.calls.CompareAndSwap(left, next) {
			if next < 0 {
				panic(Trapped)
			}
			return
		}
	}
}

// Keys returns a store over keys with the trap in each of its calls but Close. It panics before it
// does anything.
func (t *Trap) Keys(keys kv.Store) kv.Store {
	trapped := trappedKeys{trappedReader{keys, t}, keys}
	switch copied := keys.(type) {
	case kv.Checkpointer:
		return trappedCheckpointer{trapped, copied}
	case kv.Exporter:
		return trappedExporter{trapped, copied}
	default:
		return trapped
	}
}

// Files is the same for a store of files, for the files that it opens, and for those that it makes.
func (t *Trap) Files(files file.Store) file.Store {
	trapped := trappedFiles{files, t}
	if incoming, ok := files.(file.Incoming); ok {
		return trappedIncoming{trapped, incoming}
	}
	return trapped
}

type trappedReader struct {
	kv.Reader
	trap *Trap
}

func (r trappedReader) Get(ctx context.Context, key []byte) ([]byte, error) {
	r.trap.Step()
	return r.Reader.Get(ctx, key)
}

func (r trappedReader) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	r.trap.Step()
	return r.Reader.Read(ctx, set)
}

func (r trappedReader) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		r.trap.Step()
		for pair, err := range r.Reader.Scan(ctx, options) {
			if !yield(pair, err) {
				return
			}
			r.trap.Step()
		}
	}
}

type trappedKeys struct {
	trappedReader
	store kv.Store
}

func (s trappedKeys) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	s.trap.Step()
	snapshot, err := s.store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return trappedSnapshot{trappedReader{snapshot, s.trap}, snapshot}, nil
}

func (s trappedKeys) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	s.trap.Step()
	return s.store.Apply(ctx, batch)
}

func (s trappedKeys) WaitDurable(ctx context.Context, key []byte) error {
	s.trap.Step()
	return s.store.WaitDurable(ctx, key)
}

func (s trappedKeys) Stats() kv.Stats { return s.store.Stats() }
func (s trappedKeys) Close() error    { return s.store.Close() }

type trappedCheckpointer struct {
	trappedKeys
	checkpointer kv.Checkpointer
}

func (s trappedCheckpointer) Checkpoint(ctx context.Context) (kv.Checkpoint, error) {
	s.trap.Step()
	return s.checkpointer.Checkpoint(ctx)
}

type trappedExporter struct {
	trappedKeys
	exporter kv.Exporter
}

func (s trappedExporter) Export(ctx context.Context) (kv.Export, error) {
	s.trap.Step()
	return s.exporter.Export(ctx)
}

type trappedSnapshot struct {
	trappedReader
	snapshot kv.Snapshot
}

func (s trappedSnapshot) Close() error { return s.snapshot.Close() }

type trappedFiles struct {
	file.Store
	trap *Trap
}

func (s trappedFiles) Open(ctx context.Context, name string) (file.File, error) {
	s.trap.Step()
	f, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return trappedFile{f, s.trap}, nil
}

func (s trappedFiles) Create(ctx context.Context, name string) (file.Writer, error) {
	s.trap.Step()
	w, err := s.Store.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	return trappedWriter{w, s.trap}, nil
}

func (s trappedFiles) Delete(ctx context.Context, name string) error {
	s.trap.Step()
	return s.Store.Delete(ctx, name)
}

func (s trappedFiles) List(ctx context.Context) iter.Seq2[file.Info, error] {
	return trappedInfos(s.Store.List(ctx), s.trap)
}

func (s trappedFiles) Scratch(ctx context.Context) (file.Scratch, error) {
	s.trap.Step()
	scratch, err := s.Store.Scratch(ctx)
	if err != nil {
		return nil, err
	}
	return trappedScratch{scratch, s.trap}, nil
}

func trappedInfos(infos iter.Seq2[file.Info, error], trap *Trap) iter.Seq2[file.Info, error] {
	return func(yield func(file.Info, error) bool) {
		trap.Step()
		for info, err := range infos {
			if !yield(info, err) {
				return
			}
			trap.Step()
		}
	}
}

type trappedIncoming struct {
	trappedFiles
	incoming file.Incoming
}

func (s trappedIncoming) Settle(ctx context.Context, name string) error {
	s.trap.Step()
	return s.incoming.Settle(ctx, name)
}

func (s trappedIncoming) Leftovers(ctx context.Context) iter.Seq2[file.Info, error] {
	return trappedInfos(s.incoming.Leftovers(ctx), s.trap)
}

type trappedFile struct {
	file.File
	trap *Trap
}

func (f trappedFile) ReadAt(ctx context.Context, p []byte, at int64) (int, error) {
	f.trap.Step()
	return f.File.ReadAt(ctx, p, at)
}

type trappedWriter struct {
	file.Writer
	trap *Trap
}

func (w trappedWriter) Write(p []byte) (int, error) {
	w.trap.Step()
	return w.Writer.Write(p)
}

func (w trappedWriter) ReadAt(p []byte, at int64) (int, error) {
	w.trap.Step()
	return w.Writer.ReadAt(p, at)
}

func (w trappedWriter) WriteAt(p []byte, at int64) (int, error) {
	w.trap.Step()
	return w.Writer.WriteAt(p, at)
}

func (w trappedWriter) Seal(ctx context.Context) error {
	w.trap.Step()
	return w.Writer.Seal(ctx)
}

type trappedScratch struct {
	file.Scratch
	trap *Trap
}

func (s trappedScratch) Write(p []byte) (int, error) {
	s.trap.Step()
	return s.Scratch.Write(p)
}

func (s trappedScratch) ReadAt(p []byte, at int64) (int, error) {
	s.trap.Step()
	return s.Scratch.ReadAt(p, at)
}

func (s trappedScratch) WriteAt(p []byte, at int64) (int, error) {
	s.trap.Step()
	return s.Scratch.WriteAt(p, at)
}
