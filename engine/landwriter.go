package engine

import (
	"context"
	"fmt"

	"packhorse/engine/merge"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/inorder"
	"packhorse/pack/object"
)

// landWriter writes what a landing makes into its quarantine, in order, while the next sources are
// merged. Its methods are for the goroutine of the landing.
type landWriter struct {
	workers *inorder.Workers[[]landWrite, struct{}]
	end     context.CancelFunc
	next    []landWrite // that the worker does not have yet
	waiting []*inorder.Task[[]landWrite, struct{}]
}

// landWrite is what one source came to.
type landWrite struct {
	source  object.ID
	objects []merge.NewObject // in an order in which each names only those before it
}

const (
	// landWritesTogether is the number of sources that the worker gets at a time: to wake it takes as
	// long as to write one.
	landWritesTogether = 8
	// landWritesAhead bounds the times that it has still to write.
	landWritesAhead = 6
)

func newLandWriter(ctx context.Context, q *odb.Quarantine) *landWriter {
	ctx, end := context.WithCancel(fair.Apart(ctx))
	return &landWriter{
		workers: inorder.Start(ctx, inorder.Options{Workers: 1, Ahead: landWritesAhead},
			func(ctx context.Context, writes []landWrite) (struct{}, error) {
				for i := range writes {
					if err := writes[i].do(ctx, q); err != nil {
						end() // what follows may build on it
						return struct{}{}, err
					}
				}
				return struct{}{}, nil
			}),
		end: end,
	}
}

// do writes the objects.
func (w *landWrite) do(ctx context.Context, q *odb.Quarantine) error {
	if err := fair.Pause(ctx); err != nil {
		return err
	}
	for i := range w.objects {
		if err := w.objects[i].Write(ctx, q); err != nil {
			return fmt.Errorf("write what %s came to: %w", w.source, err)
		}
	}
	return nil
}

// add has what a source came to written. It waits while too much is to be written.
func (w *landWriter) add(ctx context.Context, write landWrite) error {
	if w.next = append(w.next, write); len(w.next) < landWritesTogether {
		return nil
	}
	return w.begin(ctx)
}

// begin gives the worker what it does not have yet.
func (w *landWriter) begin(ctx context.Context) error {
	if len(w.waiting) == landWritesAhead {
		first := w.waiting[0]
		w.waiting = w.waiting[1:]
		if _, err := first.Wait(ctx); err != nil {
			return err
		}
	}
	w.waiting = append(w.waiting, w.workers.Add(ctx, w.next))
	w.next = nil
	return nil
}

// flush returns when all is written. Errors: the first one of a write.
func (w *landWriter) flush(ctx context.Context) error {
	if len(w.next) > 0 {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	for _, task := range w.waiting {
		if _, err := task.Wait(ctx); err != nil {
			return err
		}
	}
	w.waiting = w.waiting[:0]
	return nil
}

// stop ends the writer, whatever it has still to write.
func (w *landWriter) stop() {
	w.end()
	w.workers.Stop()
}
