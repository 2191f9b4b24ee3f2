package odb_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/kv/trips"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// processes are those that share the stores of a world.
type processes struct {
	mu   sync.Mutex // guards live
	live map[intent.ServerID]struct{}
}

func (p *processes) join() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == nil {
		p.live = make(map[intent.ServerID]struct{})
	}
	one := &process{all: p, id: intent.ServerID(odb.NewPoolID())}
	p.live[one.id] = struct{}{}
	return one
}

// process is one of them.
type process struct {
	all *processes
	id  intent.ServerID
}

func (p *process) Own(context.Context) (intent.ServerID, error) { return p.id, nil }

func (p *process) Live(context.Context) (map[intent.ServerID]struct{}, error) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	live := make(map[intent.ServerID]struct{})
	for id := range p.all.live {
		live[id] = struct{}{}
	}
	return live, nil
}

// remove has the others take the process for dead.
func (p *process) remove() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	delete(p.all.live, p.id)
}

// bucketWorld is a world whose files lie in a bucket that other processes use, too.
type bucketWorld struct {
	*world
	bucket *odbtest.Bucket
	all    *processes
	random *rand.Rand
}

func newBucketWorld(t *testing.T) *bucketWorld {
	t.Helper()
	folder := newWorld(t, odb.Options{}).Files // its files stay where they are sealed
	w := &bucketWorld{bucket: odbtest.NewBucket(t, folder), all: &processes{}, random: rand.New(rand.NewPCG(1, 2))}
	w.world = &world{World: &odbtest.World{
		TB: t, FS: vfs.NewCrashableMem(), Options: w.options(w.all.join()),
		OpenFiles: func() file.Store { return w.bucket.Open(odbtest.NewLife(0, false)) },
	}}
	w.Begin()
	return w
}

// options make two objects a segment.
func (w *bucketWorld) options(of *process) odb.Options {
	return odb.Options{Servers: of, Limits: odb.Limits{HotCount: 1}}
}

// server is another process over the stores of a world.
type server struct {
	*process
	life *odbtest.Life
	keys kv.Store
	odb  *odb.Store
}

func (w *bucketWorld) start(life *odbtest.Life) *server {
	w.Helper()
	s := &server{process: w.all.join(), life: life}
	s.keys = life.Keys(w.Keys)
	var err error
	s.odb, err = odbtest.OpenOn(w.Context(), s.keys, w.bucket.Open(life), w.options(s.process))
	w.Must(err)
	return s
}

// write writes the objects of a segment with a graph file.
func (w *bucketWorld) write(ctx context.Context, q *odb.Quarantine) error {
	blob := odbtest.Noise(w.random, 500)
	id, err := q.Write(ctx, object.TypeBlob, blob, object.ZeroID)
	if err == nil {
		id, err = q.Write(ctx, object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("file", id)), object.ZeroID)
	}
	if err == nil {
		_, err = q.Write(ctx, object.TypeCommit, odbtest.CommitOf(id, 1), object.ZeroID)
	}
	return err
}

// quarantine returns a quarantine of a server with a segment.
func (w *bucketWorld) quarantine(s *server) (*odb.Quarantine, error) {
	v, err := s.odb.View(w.Context(), w.Pool)
	if err != nil {
		return nil, err
	}
	q := v.NewQuarantine(w.Context())
	err = errors.Join(v.Close(), w.write(w.Context(), q))
	if err == nil {
		err = q.Seal(w.Context())
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// commit registers what a quarantine holds.
func (w *bucketWorld) commit(s *server, q *odb.Quarantine) error {
	for {
		b := kv.NewBatch()
		if err := q.Stage(w.Context(), b); err != nil {
			return err
		}
		commit, err := s.keys.Apply(w.Context(), b)
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		if err := commit.Wait(w.Context()); err != nil {
			return err
		}
		q.Settled(w.Context())
		return nil
	}
}

// push stores a segment and registers it.
func (w *bucketWorld) push(s *server) error {
	q, err := w.quarantine(s)
	if err != nil {
		return err
	}
	return errors.Join(w.commit(s, q), q.Close())
}

// keysOf returns the keys of a table.
func (w *bucketWorld) keysOf(table byte) (keys [][]byte) {
	w.Helper()
	for pair, err := range w.Keys.Scan(w.Context(), kv.ScanOptions{Start: []byte{table}, End: []byte{table + 1}}) {
		w.Must(err)
		keys = append(keys, bytes.Clone(pair.Key))
	}
	return keys
}

// clean checks that the bucket has the registered files and nothing else, that no intent is left,
// and that fsck finds nothing.
func (w *bucketWorld) clean(what string) {
	w.Helper()
	var registered []string
	for name, err := range odb.UsedFiles(w.Context(), w.Keys) {
		w.Must(err)
		registered = append(registered, name)
	}
	slices.Sort(registered)
	if got := w.bucket.Content(); !slices.Equal(got, registered) {
		w.Errorf("%s: the bucket has\n%s\nregistered are\n%s", what, strings.Join(got, "\n"), strings.Join(registered, "\n"))
	}
	if left := w.keysOf(intent.Table); len(left) > 0 {
		w.Errorf("%s: %d intents are left", what, len(left))
	}
	report, err := w.Store.FsckTables(w.Context(), func(context.Context, odb.PoolID) (bool, error) { return true, nil })
	w.Must(err)
	if report.ProblemCount > 0 || report.UnregisteredCount > 0 {
		w.Errorf("%s: fsck: %+v", what, report)
	}
	w.Sound()
}

// TestKilledWriters kills a server before and behind each of its changes of the stores, until one
// change is not needed any more. A collector then leaves what is registered, and only that.
func TestKilledWriters(t *testing.T) {
	t.Parallel()
	w := newBucketWorld(t)
	for last, alive := 1, false; !alive; last++ {
		for _, done := range []bool{false, true} {
			s := w.start(odbtest.NewLife(last, done))
			before, taken := len(w.keysOf('s')), w.Store.IntentStats().TakenCount
			err := w.push(s)
			alive = !s.life.Dead()
			if alive && err != nil {
				t.Fatal(err)
			}
			s.life.End()
			w.Must(s.odb.Close(t.Context()))
			w.Must(w.Store.Collect(t.Context(), 0))
			if now := w.Store.IntentStats(); now.TakenCount != taken {
				t.Errorf("step %d: the files of a live server are taken", last)
			}
			s.remove()
			w.Must(w.Store.Collect(t.Context(), 0))
			w.clean("step")
			if after := len(w.keysOf('s')); err == nil && after != before+2 {
				t.Errorf("step %d: %d files are registered, and were %d", last, after, before)
			}
		}
		if alive && last < 7 { // the intent, an upload noted and begun for each file, two files, the batch
			t.Errorf("a push takes %d steps only", last-1)
		}
	}
	if w.Store.IntentStats().RemovedCount == 0 {
		t.Error("nothing was collected")
	}
}

// TestKilledCollectors kills a collector before and behind each of its changes of the stores.
// Another one ends its work.
func TestKilledCollectors(t *testing.T) {
	t.Parallel()
	w := newBucketWorld(t)
	for last, alive := 1, false; !alive; last++ {
		for _, done := range []bool{false, true} {
			s := w.start(odbtest.NewLife(0, false))
			q, err := w.quarantine(s)
			w.Must(err)
			s.remove()
			collector := w.start(odbtest.NewLife(last, done))
			err = collector.odb.Collect(t.Context(), 0)
			if alive = !collector.life.Dead(); alive {
				w.Must(err)
			}
			collector.life.End()
			collector.remove()
			w.Must(w.Store.Collect(t.Context(), 0))
			w.Must(q.Close())
			w.Must(s.odb.Close(t.Context()))
			w.Must(collector.odb.Close(t.Context()))
			w.clean("collector")
		}
		if alive && last < 4 { // the row is taken, two files are discarded, the row goes
			t.Errorf("a collection takes %d steps only", last-1)
		}
	}
}

// TestZombie has a server wake up that was taken for dead: its batch fails, for good, once a
// collector came, and collectors leave its files alone once its batch was applied.
func TestZombie(t *testing.T) {
	t.Parallel()
	w := newBucketWorld(t)
	s := w.start(odbtest.NewLife(0, false))
	q, err := w.quarantine(s)
	w.Must(err)
	b := kv.NewBatch()
	w.Must(q.Stage(t.Context(), b))
	s.remove()
	w.Must(w.Store.Collect(t.Context(), time.Hour)) // what it has sent may still be on its way
	if got := w.Store.IntentStats(); got.TakenCount != 1 || got.WaitingCount != 1 || len(w.bucket.Content()) != 2 {
		t.Errorf("%+v, the bucket has %v", got, w.bucket.Content())
	}
	if _, err := s.keys.Apply(t.Context(), b); !intent.IsConflict(err) {
		t.Errorf("the batch of a server that was taken for dead: %v", err)
	}
	if err := q.Stage(t.Context(), kv.NewBatch()); !errors.Is(err, odb.ErrTaken) {
		t.Errorf("the next attempt: %v", err)
	}
	w.Must(q.Close())
	w.Must(w.Store.Collect(t.Context(), 0))
	w.clean("a collector was first")
	q, err = w.quarantine(s) // it does not know yet
	w.Must(err)
	w.Must(w.Store.Collect(t.Context(), 0))
	w.Must(q.Close())
	w.clean("a file under the ID of a dead server")

	s = w.start(odbtest.NewLife(0, false))
	q, err = w.quarantine(s)
	w.Must(err)
	s.remove()
	w.Must(w.commit(s, q))
	w.Must(q.Close())
	w.Must(w.Store.Collect(t.Context(), 0))
	w.clean("the server was first")
	if len(w.keysOf('s')) != 2 {
		t.Error("the server has not registered its files")
	}
}

// TestCollectorsAtOnce has servers that were taken for dead and several collectors meet: of each
// server and all collectors one wins.
func TestCollectorsAtOnce(t *testing.T) {
	t.Parallel()
	w := newBucketWorld(t)
	var writers []*server
	var drafts []*odb.Quarantine
	for range 12 {
		s := w.start(odbtest.NewLife(0, false))
		q, err := w.quarantine(s)
		w.Must(err)
		s.remove()
		writers, drafts = append(writers, s), append(drafts, q)
	}
	collectors := []*odb.Store{w.Store, w.start(odbtest.NewLife(0, false)).odb, w.start(odbtest.NewLife(0, false)).odb}
	var group sync.WaitGroup
	var won [12]error
	for i := range writers {
		group.Go(func() { won[i] = errors.Join(w.commit(writers[i], drafts[i]), drafts[i].Close()) })
	}
	failed := make([]error, len(collectors))
	for i, collector := range collectors {
		group.Go(func() { failed[i] = collector.Collect(t.Context(), 0) })
	}
	group.Wait()
	w.Must(errors.Join(failed...))
	w.Must(w.Store.Collect(t.Context(), 0))
	registered, taken := 0, uint64(0)
	for _, err := range won {
		if err == nil {
			registered++
		} else if !errors.Is(err, odb.ErrTaken) {
			t.Error(err)
		}
	}
	for _, collector := range collectors {
		taken += collector.IntentStats().TakenCount
	}
	if registered+int(taken) != len(writers) || len(w.keysOf('s')) != 2*registered {
		t.Errorf("%d servers and %d collectors have won, %d files are registered", registered, taken, len(w.keysOf('s')))
	}
	w.clean("all are done")
	for _, s := range writers {
		w.Must(s.odb.Close(t.Context()))
	}
	for _, collector := range collectors[1:] {
		w.Must(collector.Close(t.Context()))
	}
}

// TestUnknownOutcome loses the answer to a registration, and the store with it: the server itself
// says later that its files are left, and a collector removes them.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		w := newBucketWorld(t)
		s := w.start(odbtest.NewLife(0, false))
		away := odbtest.NewAway(w.Keys)
		s.keys = away
		var err error
		s.odb, err = odbtest.OpenOn(t.Context(), away, w.bucket.Open(s.life), w.options(s.process))
		w.Must(err)
		q, err := w.quarantine(s)
		w.Must(err)
		b := kv.NewBatch()
		w.Must(q.Stage(t.Context(), b))
		away.Lose(applied)
		if _, err := away.Apply(t.Context(), b); !errors.Is(err, kv.ErrUnknown) {
			t.Fatal(err)
		}
		away.Leave(0)
		w.Must(q.Close())
		away.Return()
		for len(w.keysOf(intent.Table)) > 0 { // the server lives, and is the first to know
			w.Must(w.Store.Collect(t.Context(), 0))
			time.Sleep(5 * time.Millisecond)
		}
		w.clean("the store is back")
		if got := len(w.keysOf('s')); got != 0 && !applied || got != 2 && applied {
			t.Errorf("applied: %v, %d files are registered", applied, got)
		}
		w.Must(s.odb.Close(t.Context()))
	}
}

// TestUnregistered tells the files that nothing names from those that are registered, and those
// that are being stored.
func TestUnregistered(t *testing.T) {
	t.Parallel()
	w := newBucketWorld(t)
	s := w.start(odbtest.NewLife(0, false))
	w.Must(w.push(s))
	q, err := w.quarantine(s)
	w.Must(err)
	left := w.all.join() // a server of an older release, which noted nothing
	old, err := odbtest.OpenOn(t.Context(), w.Keys, oldFiles{w.bucket.Open(s.life)}, w.options(left))
	w.Must(err)
	before := w.bucket.Content()
	stray, err := w.quarantine(&server{odb: old})
	w.Must(err)
	var want []string
	for _, name := range w.bucket.Content() {
		if !slices.Contains(before, name) {
			want = append(want, name)
		}
	}
	var got []string
	for info, err := range w.Store.Unregistered(t.Context()) {
		w.Must(err)
		got = append(got, info.Name)
	}
	slices.Sort(got)
	if len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("unregistered are %v, want %v", got, want)
	}
	w.Must(w.Store.Collect(t.Context(), 0))
	if got := w.Store.IntentStats(); got.WritingCount != 1 || got.TakenCount != 0 {
		t.Errorf("%+v", got)
	}
	for _, name := range got {
		w.Must(w.Store.Files.Delete(t.Context(), name))
	}
	w.Must(w.commit(s, q))
	w.Must(q.Close())
	w.clean("the others are removed")
	_ = stray.Close() // its files are gone
	w.Must(old.Close(t.Context()))
	w.Must(s.odb.Close(t.Context()))
}

// oldFiles are files that get no intents.
type oldFiles struct{ file.Store }

func (f oldFiles) Create(ctx context.Context, name string) (file.Writer, error) {
	return f.Store.(file.Remote).CreateIntended(ctx, name, noted{})
}

// noted is an intent that nobody has noted.
type noted struct{}

func (noted) Begin(context.Context) error          { return nil }
func (noted) Upload(context.Context, string) error { return nil }
func (noted) End(error)                            {}

// heldKeys keep the notes of intents back until they are let go.
type heldKeys struct {
	kv.Store
	let chan struct{}
}

func (k *heldKeys) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	for op := range b.Operations() {
		if op.Kind == kv.OperationPut && op.Key[0] == intent.Table {
			<-k.let
		}
	}
	return k.Store.Apply(ctx, b)
}

// TestIntentTrips counts what intents cost: a round trip for a segment and its graph file, for
// which nothing waits before the files are complete.
func TestIntentTrips(t *testing.T) {
	t.Parallel()
	w := newBucketWorld(t)
	w.bucket.Whole = true
	var counts []int
	for _, shared := range []bool{false, true} {
		s := w.start(odbtest.NewLife(0, false))
		w.Must(s.odb.Close(t.Context()))
		held := &heldKeys{Store: w.Keys, let: make(chan struct{})}
		s.keys = trips.Over(held, 0)
		files := w.bucket.Open(s.life)
		if !shared {
			files = oldFiles{files}
		}
		var err error
		s.odb, err = odbtest.OpenOn(t.Context(), s.keys, files, w.options(s.process))
		w.Must(err)
		ctx, log := trips.Record(t.Context())
		v, err := s.odb.View(ctx, w.Pool)
		w.Must(err)
		q := v.NewQuarantine(ctx)
		w.Must(v.Close())
		w.Must(w.write(ctx, q))
		close(held.let)
		w.Must(q.Seal(ctx))
		b := kv.NewBatch()
		w.Must(q.Stage(ctx, b))
		_, err = s.keys.Apply(ctx, b)
		w.Must(err)
		q.Settled(ctx)
		w.Must(q.Close())
		w.Must(s.odb.Close(t.Context()))
		counts = append(counts, log.Count())
	}
	if counts[1] != counts[0]+1 {
		t.Errorf("%d round trips, and %d with an intent", counts[0], counts[1])
	}
	w.clean("two pushes")
}
