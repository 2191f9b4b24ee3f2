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

// landWriter writes what a landing makes into its quarantine, in order, while the next source is
// merged. Its methods are for the goroutine of the landing.
type landWriter struct {
	workers *inorder.Workers[*landWrite, struct{}]
	end     context.CancelFunc
	waiting []*inorder.Task[*landWrite, struct{}]
}

// landWrite is what one source came to.
type landWrite struct {
	source  object.ID
	objects []merge.NewObject // in an order in which each names only those before it
}

// landWritesAhead bounds the sources that wait to be written.
const landWritesAhead = 16

func newLandWriter(ctx context.Context, q *odb.Quarantine) *landWriter {
	ctx, end := context.WithCancel(fair.Apart(ctx))
	return &landWriter{
		workers: inorder.Start(ctx, inorder.Options{Workers: 1, Ahead: landWritesAhead},
			func(ctx context.Context, w *landWrite) (struct{}, error) {
				for i := range w.objects {
					if err := w.objects[i].Write(ctx, q); err != nil {
						end() // what follows may build on it
						return struct{}{}, fmt.Errorf("write what %s came to: %w", w.source, err)
					}
				}
				return struct{}{}, nil
			}),
		end: end,
	}
}

// add begins to write what a source came to. It waits while too many do.
func (w *landWriter) add(ctx context.Context, write *landWrite) error {
	if len(w.waiting) == landWritesAhead {
		first := w.waiting[0]
		w.waiting = w.waiting[1:]
		if _, err := first.Wait(ctx); err != nil {
			return err
		}
	}
	w.waiting = append(w.waiting, w.workers.Add(ctx, write))
	return nil
}

// flush returns when all is written. Errors: the first one of a write.
func (w *landWriter) flush(ctx context.Context) error {
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
