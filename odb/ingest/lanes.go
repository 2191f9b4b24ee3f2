package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// lanes examine the entries of a pack while the reader reads the next ones. They and the reader
// compute in turns, and give up the turn while one waits for the other. Each lane is a goroutine
// with a bounded queue and a [baseCache]. All deltas of a family use the lane of the whole object
// at its root, so that the base of a delta is examined before it. If a lane cannot resolve a delta,
// because the base has left its cache or is named by ID, [Ingest.Resolve] does.
type lanes struct {
	in     *Ingest
	cancel context.CancelCauseFunc
	lanes  []*lane
	free   chan []byte // arenas of arenaSize, nil: not allocated yet
	// arenaSize is smaller for packs of few objects.
	arenaSize int
	next      int
	load      throttle
	wait      sync.WaitGroup
}

// lane is one goroutine with its state. filling belongs to the reader.
type lane struct {
	queue   chan parcel
	filling parcel

	x       *examiner
	buffers buffers
	bases   baseCache
	kept    keptDeltas
	keptMax func() int64
	stream  *object.Hasher // of the blob that arrives in parts
	err     error
}

// parcel is a batch of entries that lie in one arena, or a part of a blob too large to be held.
type parcel struct {
	items []item
	arena []byte
	part  bool
	last  bool // of the parts
}

// item is an entry that has been read.
type item struct {
	ordinal uint32
	base    uint32 // ordinal of the base, if it is named by its place
	entry   pack.Entry
	content []byte
	owned   bool // content does not lie in an arena
}

const (
	arenaSizeMin, arenaSizeMax = 16 << 10, 256 << 10
	// arenaCountMax bounds the arenas that are being filled, queued and examined.
	arenaCountMax = 24
	// largeBytesMax bounds the queued bytes outside arenas: objects that do not fit one.
	largeBytesMax  = 32 << 20
	parcelCountMax = 256
	queueSize      = arenaCountMax
)

// laneCount returns the number of goroutines that examine so many objects: at most one a core, and
// no more than a repack may have.
func (in *Ingest) laneCount(objects int) int {
	const worthwhile = 64
	count := min(runtime.GOMAXPROCS(0), laneMax, 1+objects/worthwhile)
	if own := in.options.Own; own != nil {
		count = min(count, own.Workers)
	}
	return count
}

func newLanes(ctx context.Context, in *Ingest, count int, cancel context.CancelCauseFunc) *lanes {
	l := &lanes{in: in, cancel: cancel, free: make(chan []byte, arenaCountMax)}
	l.arenaSize = min(max(count*1<<10, arenaSizeMin), arenaSizeMax)
	lanes := in.laneCount(count)
	l.load.max = func() int64 { return min(largeBytesMax, in.memory.queued()) }
	l.load.wake = make(chan struct{}, 1)
	for range arenaCountMax {
		l.free <- nil // allocated on demand
	}
	for range lanes {
		one := &lane{queue: make(chan parcel, queueSize), x: newExaminer(in, count)}
		one.keptMax = func() int64 { return in.memory.deltas() / int64(lanes) }
		one.bases = baseCache{bytesMax: func() int64 { return in.memory.bases() / int64(lanes) }, buffers: &one.buffers}
		l.lanes = append(l.lanes, one)
		rescue.Go(&l.wait, func() error {
			l.run(fair.Beside(ctx), one)
			return nil
		}, l.cancel)
	}
	return l
}

// idlest returns the lane with the shortest queue.
func (l *lanes) idlest() int {
	l.next = (l.next + 1) % len(l.lanes)
	best := l.next
	for i := range l.lanes {
		if len(l.lanes[i].queue) < len(l.lanes[best].queue) {
			best = i
		}
	}
	return best
}

// read reads the content of the reader's current entry and puts it into a lane's queue.
func (l *lanes) read(ctx context.Context, laneIndex int, reader *pack.Reader, it item) error {
	entry := reader.Entry()
	if err := l.in.addInflated(entry.Size); err != nil {
		return err
	}
	one := l.lanes[laneIndex]
	switch size := entry.Size; {
	case entry.Kind == pack.KindRefDelta && size > keptDeltaSizeMax,
		entry.Kind.IsDelta() && size > l.in.held(object.TypeBlob):
		return l.drain(ctx, reader)
	case entry.Kind == pack.KindBlob && size > l.in.held(object.TypeBlob):
		return l.readParts(ctx, one, reader, it)
	case size > int64(l.arenaSize)/4:
		return l.readLarge(ctx, one, reader, it)
	default:
		return l.readSmall(ctx, one, reader, it)
	}
}

// drain checks an entry that no lane needs. Next would skip it, too, but its size and checksum are
// needed now.
func (l *lanes) drain(ctx context.Context, reader *pack.Reader) error {
	arena, err := l.arena(ctx)
	if err != nil {
		return err
	}
	defer func() { l.free <- arena }()
	for {
		_, err := reader.Read(arena[:cap(arena)])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *lanes) readSmall(ctx context.Context, one *lane, reader *pack.Reader, it item) error {
	p := &one.filling
	if size := reader.Entry().Size; p.arena == nil || int64(cap(p.arena)-len(p.arena)) < size ||
		len(p.items) == parcelCountMax {
		if err := l.send(ctx, one); err != nil {
			return err
		}
		arena, err := l.arena(ctx)
		if err != nil {
			return err
		}
		p.arena = arena
	}
	start := len(p.arena)
	content, err := reader.ReadContent(p.arena)
	if err != nil {
		return err
	}
	p.arena = content
	it.entry, it.content = reader.Entry(), content[start:]
	p.items = append(p.items, it)
	return nil
}

func (l *lanes) readLarge(ctx context.Context, one *lane, reader *pack.Reader, it item) error {
	if err := l.send(ctx, one); err != nil {
		return err
	}
	size := reader.Entry().Size
	if err := fair.Rest(ctx, func() error { return l.load.acquire(ctx, size) }); err != nil {
		return err
	}
	content, err := reader.ReadContent(nil)
	if err != nil {
		return err
	}
	it.entry, it.content, it.owned = reader.Entry(), content, true
	return one.push(ctx, parcel{items: []item{it}})
}

func (l *lanes) readParts(ctx context.Context, one *lane, reader *pack.Reader, it item) error {
	if err := l.send(ctx, one); err != nil {
		return err
	}
	for {
		arena, err := l.arena(ctx)
		if err != nil {
			return err
		}
		n, err := io.ReadFull(reader, arena[:l.arenaSize])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		it.entry, it.content = reader.Entry(), arena[:n]
		if sendErr := one.push(ctx, parcel{items: []item{it}, arena: arena, part: true, last: err != nil}); sendErr != nil {
			return sendErr
		}
		if err != nil {
			return nil
		}
	}
}

// arena returns an empty arena, and waits until one is free.
func (l *lanes) arena(ctx context.Context) (arena []byte, err error) {
	select {
	case arena = <-l.free:
	default:
		err = fair.Rest(ctx, func() error {
			select {
			case arena = <-l.free:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	if arena == nil && err == nil {
		arena = make([]byte, l.arenaSize)
	}
	return arena[:0], err
}

// send puts the filled parcel into the queue.
func (l *lanes) send(ctx context.Context, one *lane) error {
	if one.filling.arena == nil {
		return nil
	}
	p := one.filling
	one.filling = parcel{items: make([]item, 0, len(p.items))}
	return one.push(ctx, p)
}

func (one *lane) push(ctx context.Context, p parcel) error {
	select {
	case one.queue <- p:
		return nil
	default:
	}
	return fair.Rest(ctx, func() error {
		select {
		case one.queue <- p:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// finish waits until all entries have been examined, or a lane has failed, and returns the first
// error of a lane.
func (l *lanes) finish(ctx context.Context) error {
	for _, one := range l.lanes {
		if err := l.send(ctx, one); err != nil {
			break
		}
	}
	for _, one := range l.lanes {
		close(one.queue)
	}
	l.wait.Wait()
	for _, one := range l.lanes {
		if one.err != nil {
			return one.err
		}
	}
	for _, one := range l.lanes {
		l.in.table.setDone(one.x.done)
		l.in.kept = append(l.in.kept, one.kept)
	}
	return nil
}

// run is a lane's goroutine. After an error it goes on taking parcels, so that the reader never
// blocks.
func (l *lanes) run(ctx context.Context, one *lane) {
	for p := range one.queue {
		if one.err == nil {
			one.err = rescue.Do(func() error {
				return fair.Do(ctx, func(ctx context.Context) error { return one.examine(ctx, &p) })
			})
			if one.err != nil {
				l.cancel(one.err)
			}
		}
		if p.arena != nil {
			l.free <- p.arena
		} else {
			l.load.release(p.items[0].entry.Size)
		}
	}
	if one.err == nil {
		one.err = rescue.Do(func() error { return one.x.finish(ctx) })
	}
}

func (one *lane) examine(ctx context.Context, p *parcel) error {
	for i := range p.items {
		it := &p.items[i]
		err := one.x.in.options.Own.rest(ctx)
		switch {
		case err != nil:
		case p.part:
			err = one.part(ctx, it, p.last)
		case it.entry.Kind.IsDelta():
			err = one.delta(ctx, it)
		default:
			err = one.whole(ctx, it)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (it *item) facts() entryFacts {
	e := &it.entry
	facts := entryFacts{
		ordinal: it.ordinal, base: it.base, offset: e.Offset, packedSize: e.PackedSize, crc: e.CRC32, baseOffset: -1,
	}
	if e.Kind.IsDelta() {
		facts.baseOffset = e.BaseOffset
	}
	return facts
}

func (one *lane) whole(ctx context.Context, it *item) error {
	t := it.entry.Kind.Type()
	if _, err := one.x.object(ctx, it.facts(), t, it.content); err != nil {
		return err
	}
	data := it.content
	if !it.owned {
		data = append(one.buffers.get(len(data)), data...)
	}
	one.bases.put(cachedBase{ordinal: it.ordinal, t: t, data: data})
	return nil
}

// delta resolves a delta whose base is in the cache.
func (one *lane) delta(ctx context.Context, it *item) error {
	in := one.x.in
	base, ok := one.bases.get(it.base)
	if !ok {
		one.kept.keep(it.ordinal, it.content, one.keptMax())
		return nil
	}
	if err := in.checkDepth(it.entry.Offset, base.depth+1); err != nil {
		return err
	}
	_, size, err := delta.Sizes(it.content)
	if err != nil {
		return badEntry(it.entry.Offset, err)
	}
	if size > in.held(base.t) {
		return nil
	}
	if err := in.checkResult(base.t, size); err != nil {
		return err
	}
	data, err := delta.Apply(one.buffers.get(int(min(size, trustedBytes))), base.data, it.content, size)
	if err != nil {
		return badEntry(it.entry.Offset, err)
	}
	if _, err := one.x.object(ctx, it.facts(), base.t, data); err != nil {
		return err
	}
	one.bases.put(cachedBase{ordinal: it.ordinal, t: base.t, depth: base.depth + 1, data: data})
	return nil
}

// part hashes a part of a blob.
func (one *lane) part(ctx context.Context, it *item, last bool) error {
	if one.stream == nil {
		one.stream = object.NewHasher(object.TypeBlob, it.entry.Size)
	}
	if _, err := one.stream.Write(it.content); err != nil {
		return err
	}
	if !last {
		return nil
	}
	id, err := one.stream.Sum()
	one.stream = nil
	if err != nil {
		return fmt.Errorf("blob at offset %d: %w", it.entry.Offset, err)
	}
	return one.x.known(ctx, it.facts(), id, object.TypeBlob, it.entry.Size)
}

// throttle bounds the bytes in flight. One goroutine acquires, many release.
type throttle struct {
	max  func() int64
	wake chan struct{}

	mu   sync.Mutex // guards used
	used int64
}

// acquire waits until size more bytes fit, or nothing else is in flight.
func (t *throttle) acquire(ctx context.Context, size int64) error {
	for !t.try(size) {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (t *throttle) try(size int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used > 0 && t.used+size > t.max() {
		return false
	}
	t.used += size
	return true
}

func (t *throttle) release(size int64) {
	t.mu.Lock()
	t.used -= size
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
