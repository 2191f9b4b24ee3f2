package odbtest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// Pool is a pool and the stores that it lies in. Its methods end the test when they fail.
//
// A copy with another ID is another pool of the same stores.
type Pool struct {
	testing.TB
	FS    vfs.FS // below both stores
	Keys  kv.Store
	Files file.Store
	Store *odb.Store
	ID    odb.PoolID
}

// NewPool returns an empty pool in new stores in memory, which are closed when the test ends.
func NewPool(tb testing.TB, options odb.Options) *Pool {
	tb.Helper()
	return NewPoolOn(tb, vfs.NewMem(), "", options)
}

// NewPoolOn is NewPool with stores in a folder of a file system.
func NewPoolOn(tb testing.TB, fs vfs.FS, dir string, options odb.Options) *Pool {
	tb.Helper()
	p := &Pool{TB: tb, FS: fs}
	var err error
	if Shared() && dir == "" {
		p.Keys, p.Files = OpenKeys(tb, fs), OpenFiles(tb, fs)
	} else {
		p.Keys, err = kv.OpenPebble(fs.PathJoin(dir, "keys"), kv.PebbleOptions{FS: fs})
		p.Must(err)
		p.Files, err = file.OpenDir(fs.PathJoin(dir, "files"), file.DirOptions{FS: filetest.AtomicRenames(fs), ServerID: "test"})
		p.Must(err)
	}
	p.Store, err = OpenOn(p.Context(), p.Keys, p.Files, options)
	p.Must(err)
	tb.Cleanup(func() {
		ctx := context.Background() //nolint:usetesting // the context of the test has ended
		if err := errors.Join(p.Store.Close(ctx), p.Files.Close(), p.Keys.Close()); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return p.Another(tb)
}

// Another returns an empty pool of the same stores, for a test that may end earlier.
func (p *Pool) Another(tb testing.TB) *Pool {
	tb.Helper()
	other := *p
	other.TB = tb
	batch := kv.NewBatch()
	other.ID = p.Store.CreatePool(batch)
	other.Apply(batch)
	return &other
}

// Must ends the test if err is not nil.
func (p *Pool) Must(err error) {
	p.Helper()
	Must(p.TB, err)
}

// Apply commits a batch without waiting for its sync.
func (p *Pool) Apply(batch *kv.Batch) {
	p.Helper()
	_, err := p.Keys.Apply(p.Context(), batch)
	p.Must(err)
}

// View opens the pool for reading until the test ends.
func (p *Pool) View() *odb.View {
	p.Helper()
	v := p.open()
	p.Cleanup(func() { p.Must(v.Close()) })
	return v
}

func (p *Pool) open() *odb.View {
	p.Helper()
	v, err := p.Store.View(p.Context(), p.ID)
	p.Must(err)
	return v
}

// Push ingests a pack and commits its objects. It returns the reason if the pack is refused.
func (p *Pool) Push(packed []byte, options ingest.Options) (ingest.Stats, error) {
	p.Helper()
	v := p.open()
	defer v.Close()
	in, err := ingest.Read(p.Context(), v, bytes.NewReader(packed), options)
	if err != nil {
		return ingest.Stats{}, err
	}
	defer in.Close()
	q, stats, err := in.Resolve(p.Context(), nil)
	if err != nil {
		return stats, err
	}
	p.commit(q)
	return stats, nil
}

// PushGit pushes a thin pack that git makes of revisions, which are lines for git rev-list.
func (p *Pool) PushGit(g *Repository, revisions string) {
	p.Helper()
	packed := g.Input([]byte(revisions), "pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q")
	_, err := p.Push(packed, ingest.Options{})
	p.Must(err)
}

// PushSegment pushes a pack that becomes a segment whatever its size is. The files are in their
// place when it returns.
func (p *Pool) PushSegment(packed []byte) {
	p.Helper()
	other := *p
	var err error
	other.Store, err = OpenOn(p.Context(), p.Keys, p.Files, odb.Options{Limits: odb.Limits{HotCount: 1}})
	p.Must(err)
	_, err = other.Push(packed, ingest.Options{})
	p.Must(errors.Join(err, other.Store.Close(p.Context())))
}

// Write writes objects of a repository in one transaction, as the API does: one by one, each with
// the one of the same type before it as its predecessor.
func (p *Pool) Write(g *Repository, ids []object.ID) {
	p.Helper()
	v := p.open()
	defer v.Close()
	q := v.NewQuarantine(p.Context())
	last := map[object.Type]object.ID{}
	g.read(ids, func(id object.ID, kind object.Type, data []byte) {
		written, err := q.Write(p.Context(), kind, data, last[kind])
		if err != nil || written != id {
			p.Fatalf("write %s %s: %s, %v", kind, id, written, err)
		}
		last[kind] = id
	})
	p.commit(q)
}

// commit makes the objects of a quarantine visible, and closes it.
func (p *Pool) commit(q *odb.Quarantine) {
	p.Helper()
	for {
		batch := kv.NewBatch()
		p.Must(q.Stage(p.Context(), batch))
		_, err := p.Keys.Apply(p.Context(), batch)
		if errors.Is(err, kv.ErrConflict) { // the walk of a fork has changed the manifest
			p.Must(q.Refresh(p.Context()))
			continue
		}
		p.Must(err)
		break
	}
	q.Settled(p.Context())
	p.Must(q.Close())
}

// Fsck checks the pool, and reports what is wrong as errors of the test.
func (p *Pool) Fsck() {
	p.Helper()
	report, err := p.Store.Fsck(p.Context(), p.ID, odb.FsckOptions{})
	p.Must(err)
	for _, problem := range report.Problems {
		p.Errorf("fsck: %s", problem)
	}
}

// CompactAll compacts all layers into one segment. anew searches all deltas again.
func (p *Pool) CompactAll(anew bool) repack.Compacted {
	p.Helper()
	done, err := repack.Compact(p.Context(), p.Store, p.ID,
		repack.CompactOptions{All: true, RepackOptions: packgen.RepackOptions{Anew: anew}})
	p.Must(err)
	return done
}

// BuildHistories builds the path histories of all segments.
func (p *Pool) BuildHistories() {
	p.Helper()
	p.Must(repack.BuildHistories(p.Context(), p.Store, p.ID, 0))
}

// BuildTrigrams builds the trigrams of all segments.
func (p *Pool) BuildTrigrams() {
	p.Helper()
	p.Must(repack.BuildTrigrams(p.Context(), p.Store, p.ID, 0))
}

// BuildFilters builds the changed-path filters of all segments.
func (p *Pool) BuildFilters() {
	p.Helper()
	p.Must(repack.BuildFilters(p.Context(), p.Store, p.ID))
}
