package odb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"packhorse/odb/hot"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// FsckOptions are the settings of [Store.Fsck].
type FsckOptions struct {
	// Tips are objects that must be in the pool. A pool is closed, so the check of all objects covers
	// those that they reach.
	Tips []object.ID
	// Progress, if not nil, receives from time to time the number of checked objects and of known
	// ones. It is not called concurrently.
	Progress func(done, known int64)
	// Pace, if not nil, is called before so many stored bytes are read, and may wait. It is not called
	// concurrently: the check then runs on one core.
	Pace func(ctx context.Context, bytes int64) error
}

// FsckReport is the result of [Store.Fsck].
type FsckReport struct {
	// LayerCount and ObjectCount count checked layers and objects. A duplicate counts twice.
	LayerCount, ObjectCount int64
	// ProblemCount is the number of problems, and Problems are the first of them.
	ProblemCount int64
	Problems     []FsckProblem
	// WarningCount is the number of stored objects that git's fsck or reader refuses, and Warnings are
	// the first of them. They are no damage.
	WarningCount int64
	Warnings     []FsckProblem
	// UnregisteredCount is the number of files that nothing names, and UnregisteredBytes their size;
	// see [Store.Unregistered]. They are no damage.
	UnregisteredCount, UnregisteredBytes int64
}

// FsckProblem is a problem in a pool.
type FsckProblem struct {
	Layer  segment.LayerID
	Object object.ID // zero when it is the layer that is damaged
	Err    error
	// More is the number of other objects whose check met the same damage.
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

// IsAside reports whether the damage is in an auxiliary file, which maintenance builds again from
// its segment: graph rows, path filters, path histories, trigrams, bitmaps.
func (p FsckProblem) IsAside() bool {
	damage, ok := errors.AsType[*CorruptError](p.Err)
	if !ok {
		return false
	}
	for _, kind := range []segment.LayerKind{
		segment.KindGraph, segment.KindFilter, segment.KindHistory, segment.KindTrigram, segment.KindBitmap,
	} {
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
	// ErrMissing says that an object names another one that is not in the pool, or that has another
	// type than the name says.
	ErrMissing = errors.New("odb: names an object that is missing")
	// ErrDisagree says that two stored values that must agree do not.
	ErrDisagree = errors.New("odb: stored things disagree")
)

// Fsck verifies everything in a pool, on all cores: the checksums of manifests, indexes, graph
// rows, packs and entries, the agreement of indexes with data, and of every object its ID, its
// format and its links.
//
// It reads the state that is visible when it begins, and may run beside readers and writers. The
// report lists the problems. An error says that the check could not be finished.
func (s *Store) Fsck(ctx context.Context, pool PoolID, options FsckOptions) (*FsckReport, error) {
	v, err := s.View(ctx, pool)
	if errors.Is(err, ErrCorrupt) {
		return &FsckReport{ProblemCount: 1, Problems: []FsckProblem{{Layer: segment.LayerID(pool), Err: err}}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Close()
	s.readAnew(v.hotLayers())
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
	f.view = v.Linked() // objects that a fork may not read are checked, too
	if err := f.visibility(ctx, v.borrowing); err != nil {
		return nil, fmt.Errorf("check visibility set of borrowed layers: %w", err)
	}
	for _, l := range v.layers {
		if err := f.layer(ctx, l); err != nil {
			return nil, fmt.Errorf("check layer %s: %w", l.layerID(), err)
		}
	}
	return f.report, nil
}

// readAnew has what is read of hot layers come from the store, and not from copies that others have
// made: the stored bytes are to be checked. Where every read costs a round trip, layers are copied
// once more, for this reader only; it takes the memory of one layer at most.
func (s *Store) readAnew(layers []*hotLayer) {
	var copies *hot.Copies
	if s.copies != nil && s.copies.IsRemote() {
		copies = hot.NewCopies(s.keys, hot.Options{
			BytesMax: hotCopyMax, LayerBytesMax: hotCopyMax, Remote: true,
			Damaged: func(segment.LayerID, error) {}, // the check of the row finds it, too
		})
	}
	for _, l := range layers {
		l.rows.Copies, l.rows.Direct = copies, copies == nil
	}
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
	told   map[CorruptError]int // index in the report of damage, which the check of each referring object meets again
	judged map[Dotfile]struct{}
}

// toldMax bounds the different damages that one check remembers.
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

// noted adds err to the report if it is damage, and returns it if the check cannot continue.
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

// fsckChunk is the number of objects that a worker takes at a time.
const fsckChunk = 256

// objects checks the locations that produce yields, on all cores. summary, if not nil, receives
// their links.
func (f *fsck) objects(
	ctx context.Context, summary *summaryChecker, produce func(ctx context.Context, yield func([]Location) error) error,
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
			c := &objectChecker{fsck: f, view: f.view, summary: summary, links: make(map[object.ID]knownLink)}
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

// workers returns the number of cores that check objects.
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
