// Package extsort sorts records of one width by their bytes, in bounded memory and a scratch file
// beyond it.
//
// Start at [New].
package extsort

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"packhorse/odb/fair"
	"packhorse/odb/file"
)

// Sorter sorts records of one width by their bytes: in memory up to 16 MiB, and in sorted runs on a
// scratch file beyond (docs/invariants.md 13). For one goroutine.
type Sorter struct {
	files file.Store
	width int
	max   int // records in memory

	buffer  []byte
	sorted  []sortKey
	scratch file.Scratch
	runs    []run
	Count   int // of the added records
}

// run is a sorted part of the scratch file.
type run struct{ offset, size int64 }

// sortKey is a record in the buffer with its first bytes, which decide most comparisons.
type sortKey struct {
	prefix uint64
	index  uint32
}

// bufferBytes is the memory that one sorter takes.
const bufferBytes = 16 << 20

// New returns a sorter of records of width bytes. It takes its scratch file from files. The caller
// closes the sorter.
func New(files file.Store, width int) *Sorter {
	const keySize = 16
	return &Sorter{files: files, width: width, max: bufferBytes / (width + keySize)}
}

// Add copies a record of the sorter's width.
func (s *Sorter) Add(ctx context.Context, record []byte) error {
	if len(s.buffer) == s.max*s.width {
		if err := s.spill(ctx); err != nil {
			return err
		}
	}
	s.buffer = append(s.buffer, record...)
	s.sorted = nil
	s.Count++
	return nil
}

func (s *Sorter) at(index uint32) []byte {
	return s.buffer[int(index)*s.width : (int(index)+1)*s.width]
}

// order sorts the buffer.
func (s *Sorter) order() {
	if s.sorted != nil || len(s.buffer) == 0 {
		return
	}
	s.sorted = make([]sortKey, len(s.buffer)/s.width)
	var head [8]byte
	for i := range s.sorted {
		clear(head[:])
		copy(head[:], s.at(uint32(i)))
		s.sorted[i] = sortKey{prefix: binary.BigEndian.Uint64(head[:]), index: uint32(i)}
	}
	slices.SortFunc(s.sorted, func(a, b sortKey) int {
		switch {
		case a.prefix < b.prefix:
			return -1
		case a.prefix > b.prefix:
			return 1
		default:
			return bytes.Compare(s.at(a.index), s.at(b.index))
		}
	})
}

// spill sorts the buffer and writes it as a run.
func (s *Sorter) spill(ctx context.Context) error {
	if s.scratch == nil {
		scratch, err := s.files.Scratch(ctx)
		if err != nil {
			return fmt.Errorf("make scratch file: %w", err)
		}
		s.scratch = scratch
	}
	s.order()
	r := run{offset: s.scratch.Size(), size: int64(len(s.buffer))}
	w := bufio.NewWriterSize(s.scratch, 256<<10)
	for _, key := range s.sorted {
		if _, err := w.Write(s.at(key.index)); err != nil {
			return fmt.Errorf("write scratch file: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write scratch file: %w", err)
	}
	s.runs = append(s.runs, r)
	s.buffer, s.sorted = s.buffer[:0], nil
	return ctx.Err()
}

// All walks the records in order. It may be walked again, but not concurrently. A record is valid
// until the next step.
func (s *Sorter) All(ctx context.Context) iter.Seq2[[]byte, error] {
	s.order()
	if len(s.runs) == 0 {
		return func(yield func([]byte, error) bool) {
			for _, key := range s.sorted {
				if !yield(s.at(key.index), nil) {
					return
				}
			}
		}
	}
	return func(yield func([]byte, error) bool) {
		merge, err := s.merge()
		if err != nil {
			yield(nil, err)
			return
		}
		for merge.Len() > 0 {
			if err := fair.Pause(ctx); err != nil {
				yield(nil, err)
				return
			}
			if !yield(merge[0].head, nil) {
				return
			}
			more, err := merge[0].next()
			if err != nil {
				yield(nil, err)
				return
			}
			if more {
				heap.Fix(&merge, 0)
			} else {
				heap.Pop(&merge)
			}
		}
	}
}

// merge returns the heap of all runs and the buffer, each at its first record.
func (s *Sorter) merge() (runHeap, error) {
	var merge runHeap
	for _, r := range s.runs {
		part := bufio.NewReaderSize(io.NewSectionReader(s.scratch, r.offset, r.size), 64<<10)
		head := make([]byte, s.width)
		merge = append(merge, &runReader{head: head, read: func() (bool, error) {
			_, err := io.ReadFull(part, head)
			if errors.Is(err, io.EOF) {
				return false, nil
			}
			return err == nil, err
		}})
	}
	rest := s.sorted
	inMemory := &runReader{}
	inMemory.read = func() (bool, error) {
		if len(rest) == 0 {
			return false, nil
		}
		inMemory.head, rest = s.at(rest[0].index), rest[1:]
		return true, nil
	}
	merge = append(merge, inMemory)
	started := merge[:0]
	for _, r := range merge {
		more, err := r.next()
		if err != nil {
			return nil, err
		}
		if more {
			started = append(started, r)
		}
	}
	heap.Init(&started)
	return started, nil
}

// Close releases the memory and removes the scratch file.
func (s *Sorter) Close() error {
	s.buffer, s.sorted = nil, nil
	if s.scratch == nil {
		return nil
	}
	scratch := s.scratch
	s.scratch = nil
	return scratch.Close()
}

// runReader is a run that is being merged, at its current record.
type runReader struct {
	head []byte
	read func() (bool, error)
}

func (r *runReader) next() (bool, error) {
	more, err := r.read()
	if err != nil {
		return false, fmt.Errorf("read scratch file: %w", err)
	}
	return more, nil
}

// runHeap implements [heap.Interface].
type runHeap []*runReader

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return bytes.Compare(h[i].head, h[j].head) < 0 }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)        { *h = append(*h, x.(*runReader)) }
func (h *runHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}
