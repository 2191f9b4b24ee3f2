package odb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// FsckOptions are the settings of [Store.Fsck].
type FsckOptions struct {
	// Tips are objects that must be there; a pool is closed, so whatever they reach is checked with
	// everything else.
	Tips []object.ID
	// Progress, if not nil, hears from time to time how many objects have been checked and how many
	// are known of. It is not called concurrently.
	Progress func(done, known int64)
	// Pace, if not nil, is called before so many stored bytes are read, and may wait. It is not called
	// concurrently: the check then runs on one core.
	Pace func(ctx context.Context, bytes int64) error
}

// FsckReport is what [Store.Fsck] found.
type FsckReport struct {
	// LayerCount and ObjectCount are what was checked. An object that lies in two layers counts twice.
	LayerCount, ObjectCount int64
	// ProblemCount is how many problems there are, and Problems the first of them.
	ProblemCount int64
	Problems     []FsckProblem
	// WarningCount is how many stored objects git's fsck or reader objects to, and Warnings the first
	// of them. They are no damage.
	WarningCount int64
	Warnings     []FsckProblem
}

// FsckProblem is something that is wrong in a pool.
type FsckProblem struct {
	Layer  segment.LayerID
	Object object.ID // zero when it is the layer that is damaged
	Err    error
	// More is how often the same damage was met again, in the check of other objects.
	More int64
}

func (p FsckProblem) String() string {
	line := fmt.Sprintf("object %s in layer %s: %v", p.Object, p.Layer, p.Err)
	if damage, ok := errors.AsType[*CorruptError](p.Err); ok {
		line = fmt.Sprintf("layer %s: %v", p.Layer, damage)
	} else if p.Object.IsZero() && p.Layer == (segment.LayerID{}) {
		line = p.Err.Error()
	} else if p.Object.IsZero() {
		line = fmt.Sprintf("layer %s: %v", p.Layer, p.Err)
	}
	if p.More > 0 {
		line += fmt.Sprintf("; met %d more times", p.More)
	}
	return line
}

// IsAside reports whether the damage is in what is made of a segment, and made again by maintenance
// from it: graph rows, path filters, bitmaps.
func (p FsckProblem) IsAside() bool {
	damage, ok := errors.AsType[*CorruptError](p.Err)
	if !ok {
		return false
	}
	for _, kind := range []segment.LayerKind{segment.KindGraph, segment.KindFilter, segment.KindBitmap} {
		if damage.File == kind.FileName(damage.Layer) {
			return true
		}
	}
	return false
}

// fsckProblemsMax bounds the problems that a report holds.
const fsckProblemsMax = 1000

// Facts about a pool that are no damage of stored bytes.
var (
	// ErrMissing says that something names an object that is not in the pool, or is of another type
	// than the name says.
	ErrMissing = errors.New("odb: names an object that is missing")
	// ErrDisagree says that two stored things that must agree do not.
	ErrDisagree = errors.New("odb: stored things disagree")
)

// Fsck verifies everything in a pool, on all cores: the checksums of manifests, indexes, graph
// rows, packs and entries, the agreement of indexes with data, and of every object its ID, its
// format and its links.
//
// It reads what is visible when it begins and may run beside readers and writers. What is wrong
// comes in the report; an error says that the check itself could not be finished.
func (s *Store) Fsck(ctx context.Context, pool PoolID, options FsckOptions) (*FsckReport, error) {
	v, err := s.View(ctx, pool)
	if errors.Is(err, ErrCorrupt) {
		return &FsckReport{ProblemCount: 1, Problems: []FsckProblem{{Layer: segment.LayerID(pool), Err: err}}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Close()
	f := &fsck{
		view: v, report: &FsckReport{LayerCount: int64(len(v.layers))}, progress: options.Progress, pace: options.Pace,
	}
	for _, tip := range options.Tips {
		if _, err := v.Find(ctx, tip); errors.Is(err, ErrNotFound) {
			f.problem(segment.LayerID(pool), tip, fmt.Errorf("%w: it is a tip", ErrMissing))
		} else if err := f.noted(segment.LayerID(pool), tip, err); err != nil {
			return nil, err
		}
	}
	f.view = v.Linked() // what a fork may not read is checked too
	if err := f.lending(ctx, v.lending); err != nil {
		return nil, fmt.Errorf("check what may be read of borrowed layers: %w", err)
	}
	for _, l := range v.layers {
		if err := f.layer(ctx, l); err != nil {
			return nil, fmt.Errorf("check layer %s: %w", l.layerID(), err)
		}
	}
	return f.report, nil
}

// fsck is one run of [Store.Fsck].
type fsck struct {
	view     *View
	progress func(done, known int64)
	pace     func(ctx context.Context, bytes int64) error
	done     atomic.Int64
	known    atomic.Int64

	mu     sync.Mutex // guards report, met, told and judged, and keeps progress calls apart
	report *FsckReport
	met    int64
	told   map[CorruptError]int // where in the report damage is told, which is found wherever something leads to it
	judged map[Dotfile]struct{}
}

// toldMax bounds the damage that one check remembers to have told of.
const toldMax = 10_000

func (f *fsck) problem(layer segment.LayerID, id object.ID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.met++
	if damage, ok := errors.AsType[*CorruptError](err); ok {
		if at, known := f.told[*damage]; known {
			if at < len(f.report.Problems) {
				f.report.Problems[at].More++
			}
			return
		}
		if f.told == nil {
			f.told = make(map[CorruptError]int)
		}
		if len(f.told) < toldMax {
			f.told[*damage] = len(f.report.Problems)
		}
		layer, id = damage.Layer, damage.Object
	}
	f.report.ProblemCount++
	if len(f.report.Problems) < fsckProblemsMax {
		f.report.Problems = append(f.report.Problems, FsckProblem{Layer: layer, Object: id, Err: err})
	}
}

// noted puts err into the report if it tells of damage, and returns it if it keeps the check from
// going on.
func (f *fsck) noted(layer segment.LayerID, id object.ID, err error) error {
	for _, fact := range []error{
		ErrCorrupt, ErrMissing, ErrDisagree, ErrNotFound, ErrTooLarge, segment.ErrFormat,
		object.ErrMalformed, object.ErrCollision, object.ErrSize,
	} {
		if errors.Is(err, fact) {
			f.problem(layer, id, err)
			return nil
		}
	}
	return err
}

func (f *fsck) layer(ctx context.Context, l layer) error {
	switch l := l.(type) {
	case *hotLayer:
		return f.hotLayer(ctx, l)
	case *SegmentLayer:
		return f.segmentLayer(ctx, l)
	default:
		return fmt.Errorf("%T is not stored", l)
	}
}

// fsckChunk is how many objects a worker takes at a time.
const fsckChunk = 256

// objects checks the locations that come from produce, on all cores; outline, if not nil, hears of
// what they name.
func (f *fsck) objects(
	ctx context.Context, outline *outlineChecker, produce func(ctx context.Context, yield func([]Location) error) error,
) error {
	group, ctx := rescue.WithContext(ctx)
	chunks := make(chan []Location)
	group.Go(func() error {
		defer close(chunks)
		return produce(ctx, func(chunk []Location) error {
			f.known.Add(int64(len(chunk)))
			select {
			case chunks <- chunk:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	for range f.workers() {
		group.Go(func() error {
			c := &objectChecker{fsck: f, view: f.view, outline: outline, links: make(map[object.ID]knownLink)}
			for chunk := range chunks {
				if err := f.checkChunk(ctx, c, chunk); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// workers is how many cores check objects.
func (f *fsck) workers() int {
	if f.pace != nil {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// wait keeps to the rate.
func (f *fsck) wait(ctx context.Context, bytes int64) error {
	if f.pace == nil {
		return nil
	}
	return f.pace(ctx, bytes)
}

// waitFor keeps to the rate before an object is read again, as it is stored.
func (f *fsck) waitFor(ctx context.Context, at Location) error {
	if f.pace == nil {
		return nil
	}
	entry, err := at.layer.entry(ctx, at)
	if err != nil {
		return f.noted(at.layer.layerID(), at.id, err)
	}
	return f.pace(ctx, entry.PayloadSize)
}

func (f *fsck) checkChunk(ctx context.Context, c *objectChecker, chunk []Location) error {
	for _, at := range chunk {
		if err := f.waitFor(ctx, at); err != nil {
			return err
		}
		if err := c.check(ctx, at); err != nil {
			if err := f.noted(at.layer.layerID(), at.id, err); err != nil {
				return fmt.Errorf("check object %s: %w", at.id, err)
			}
		}
	}
	done := f.done.Add(int64(len(chunk)))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.ObjectCount += int64(len(chunk))
	if f.progress != nil {
		f.progress(done, max(done, f.known.Load()))
	}
	return nil
}
