package hot

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Layer is a hot layer of which there may be a copy. Its methods may be called concurrently. It
// stays usable when its copy has given way to others; [Layer.Gone] then says that another one has
// its place.
type Layer struct {
	copies  *Copies
	id      segment.LayerID
	lookups atomic.Int64
	asked   atomic.Bool   // set once a copy was tried in case that the frozen layer has few rows
	turn    chan struct{} // holds a token while rows are read into the copy
	gone    atomic.Bool   // set while mu is held
	// others, of a sealed layer, lets lookups of what it lacks pass without mu. Set while mu is held.
	others atomic.Pointer[idFilter]

	mu   sync.RWMutex // guards the fields below
	rows *Rows
	// bare are the objects of rows that additions named, and whose rows were not read yet.
	bare map[object.ID]struct{}
	// number is that of the last addition that rows include; loaded is number as the copy was made.
	number, loaded uint64
	bytes          int64
	// sealed: the layer is frozen, and rows has all of it.
	sealed bool
	// refused: the layer is too large, or a row of it is damaged.
	refused bool
	// staged is the highest number at which batches were prepared, stagings how many of them.
	staged   uint64
	stagings int
}

// Row is what a layer has of an object: its value, and of a commit its graph row and path filter,
// nil if there is none. All are as stored, with their checksums, shared and read-only.
type Row struct{ Value, Graph, Filter []byte }

// Put adds the row of an object in a layer to b.
func (r *Row) Put(b *kv.Batch, layer segment.LayerID, id object.ID) {
	b.Put(ObjectKey(layer, id), r.Value)
	if r.Graph != nil {
		b.Put(GraphKey(layer, id), r.Graph)
	}
	if r.Filter != nil {
		b.Put(FilterKey(layer, id), r.Filter)
	}
}

// rowCost is the estimated overhead of a row in bytes.
const rowCost = 192

func (r *Row) cost() int64 { return rowCost + int64(len(r.Value)+len(r.Graph)+len(r.Filter)) }

// State is what a copy knows of an object.
type State uint8

// The states.
const (
	// NotCopied: there is no copy to ask.
	NotCopied State = iota
	// Held: the layer has the object.
	Held
	// Absent: the layer does not have the object and never will.
	Absent
	// AbsentSoFar: the layer did not have the object after the addition that the copy includes last.
	AbsentSoFar
)

// Gone reports whether the layer has left its [Copies] and is no more worth asking.
func (l *Layer) Gone() bool { return l.gone.Load() }

// IsCopied reports whether there is a copy.
func (l *Layer) IsCopied() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.rows != nil
}

// Find returns what the copy knows of an object, and its row if it is [Held]. It makes a copy when
// the lookups are worth it. frozen says that the layer takes no more writes. Errors: those of the
// store.
func (l *Layer) Find(ctx context.Context, id object.ID, frozen bool) (Row, State, error) {
	row, state, err := l.look(ctx, id, frozen)
	if err != nil || state != Held || row.Value != nil {
		return row, state, err
	}
	if err := l.fill(ctx); err != nil {
		return Row{}, NotCopied, err
	}
	if row, state = l.find(id); state == Held && row.Value == nil {
		state = NotCopied // the store lacks the row, and a reader of it says so
	}
	return row, state, nil
}

// Has is [Layer.Find] without the row.
func (l *Layer) Has(ctx context.Context, id object.ID, frozen bool) (State, error) {
	_, state, err := l.look(ctx, id, frozen)
	return state, err
}

// look is Find of a row that may be bare.
func (l *Layer) look(ctx context.Context, id object.ID, frozen bool) (Row, State, error) {
	row, state := l.find(id)
	if state == NotCopied {
		if err := l.demand(ctx, frozen); err != nil {
			return Row{}, NotCopied, err
		}
		row, state = l.find(id)
	}
	if state == AbsentSoFar && frozen && !l.copies.options.Remote {
		l.forget()
		return Row{}, NotCopied, nil
	}
	if state == AbsentSoFar && frozen {
		if err := l.read(ctx, true); err != nil {
			return Row{}, NotCopied, err
		}
		row, state = l.find(id)
	}
	return row, state, nil
}

// lacks reports whether the layer is sealed and its filter rules an object out.
func (l *Layer) lacks(id object.ID) bool {
	others := l.others.Load()
	return others != nil && !others.mayHave(id)
}

func (l *Layer) find(id object.ID) (Row, State) {
	if l.lacks(id) {
		return Row{}, Absent
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.rows == nil {
		return Row{}, NotCopied
	}
	row, ok := l.rows.get(id)
	switch {
	case ok:
		return row, Held
	case l.sealed:
		return Row{}, Absent
	default:
		return Row{}, AbsentSoFar
	}
}

// Tail returns the keys of the additions that the copy lacks, false if there is no copy or nothing
// can be missing.
func (l *Layer) Tail() (kv.ScanOptions, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return additionsAfter(l.id, l.number), l.rows != nil && !l.sealed
}

// Advance brings the copy up to date with a page of the keys of [Layer.Tail]. frozen says that the
// layer took no more writes when the page was read.
func (l *Layer) Advance(page kv.Page, frozen bool) {
	if page.More {
		return // a lookup or CatchUp reads all of them
	}
	l.apply(page.Pairs, frozen)
}

// CatchUp reports whether the copy includes the addition of a number, after reading what it lacks.
// Errors: those of the store.
func (l *Layer) CatchUp(ctx context.Context, number uint64) (bool, error) {
	l.mu.RLock()
	copied, reached := l.rows != nil, l.number >= number
	l.mu.RUnlock()
	if !copied || reached {
		return copied, nil
	}
	if err := l.read(ctx, false); err != nil {
		return false, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.rows != nil && l.number >= number, nil
}

// read reads and applies the additions that the copy lacks. frozen says that the layer takes no
// more.
func (l *Layer) read(ctx context.Context, frozen bool) error {
	tail, ok := l.Tail()
	if !ok {
		return nil
	}
	// An addition is visible as a whole, and the pages follow the numbers: the last one is complete.
	var pairs []kv.Pair
	for pair, err := range l.copies.keys.Scan(ctx, tail) {
		if err != nil {
			return fmt.Errorf("read additions to layer %s: %w", l.id, err)
		}
		pairs = append(pairs, kv.Pair{Key: append([]byte(nil), pair.Key...), Value: append([]byte(nil), pair.Value...)})
	}
	l.apply(pairs, frozen)
	return nil
}

// apply notes the objects of all additions after one that the copy includes, up to the last. They
// are bare.
func (l *Layer) apply(pairs []kv.Pair, frozen bool) {
	l.mu.Lock()
	err := l.applyLocked(pairs)
	if err != nil {
		l.clear()
		l.refused = true
	}
	if l.rows != nil && frozen {
		l.seal()
	}
	l.mu.Unlock()
	if err != nil && l.copies.options.Damaged != nil {
		l.copies.options.Damaged(l.id, err)
	}
	if len(pairs) > 0 {
		l.copies.account(l)
	}
}

func (l *Layer) applyLocked(pairs []kv.Pair) error {
	if l.rows == nil {
		return nil
	}
	before := l.number
	for _, pair := range pairs {
		number, ids, err := DecodeAddition(pair.Key, pair.Value)
		if err != nil {
			return err
		}
		if number <= before {
			continue
		}
		if number > l.number+1 {
			return fmt.Errorf("%w: addition %d follows %d", segment.ErrFormat, number, l.number)
		}
		l.number = number
		for ; len(ids) > 0; ids = ids[object.IDSize:] {
			id := object.ID(ids[:object.IDSize])
			if l.rows.has(id) {
				continue
			}
			if l.bare == nil {
				l.bare = make(map[object.ID]struct{})
			}
			l.bare[id] = struct{}{}
			l.rows.put(id, Row{})
			l.bytes += rowCost
		}
	}
	return nil
}

// Prepared notes that a batch is made that adds objects to the layer after the addition of a
// number.
func (l *Layer) Prepared(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number > l.staged || l.stagings == 0 {
		l.staged, l.stagings = number, 0
	}
	if number == l.staged {
		l.stagings++
	}
}

// Added puts the rows of a batch that was applied into the copy, if there is one. The batch was
// prepared after the addition of a number.
//
// The copy then includes the batch's addition, unless other batches were prepared at this number:
// these may have been applied together with it.
func (l *Layer) Added(number uint64, rows map[object.ID]Row) {
	l.mu.Lock()
	if l.rows == nil {
		l.mu.Unlock()
		return
	}
	for id, row := range rows {
		l.put(id, row)
	}
	if l.number == number && number > l.loaded && l.staged == number && l.stagings == 1 {
		l.number++
	}
	l.mu.Unlock()
	l.copies.account(l)
}

// seal notes that rows has all of the layer, which is frozen.
func (l *Layer) seal() {
	l.sealed = true
	others := newIDFilter(maps.Keys(l.rows.places), l.rows.count())
	l.others.Store(&others)
}

// put adds the row of an object to the copy.
func (l *Layer) put(id object.ID, row Row) {
	known, ok := l.rows.get(id)
	if ok && known.Value != nil {
		return
	}
	if ok {
		l.bytes -= known.cost()
		delete(l.bare, id)
	} else {
		l.others.Store(nil)
	}
	l.rows.put(id, row)
	l.bytes += row.cost()
}

// forget drops a copy that was made before the layer was frozen, and may lack what was added since
// without a word.
func (l *Layer) forget() {
	l.mu.Lock()
	if !l.sealed {
		l.clear()
		l.lookups.Store(0)
		l.asked.Store(false)
	}
	l.mu.Unlock()
	l.copies.account(l)
}

// trim returns the size of the copy, which it drops if that is above bytesMax.
func (l *Layer) trim(bytesMax int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes > bytesMax {
		l.clear()
		l.refused = true
	}
	return l.bytes
}

// evict ends the use of the layer.
func (l *Layer) evict() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	l.gone.Store(true)
}

func (l *Layer) clear() {
	l.rows, l.bare, l.bytes, l.sealed = nil, nil, 0, false
	l.others.Store(nil)
}
