package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// batches are the forms in which a batch reaches the database. All of them put "marker".
var batches = map[string]func() *kv.Batch{
	"one statement": func() *kv.Batch { return batchOf("1", "marker") },
	"several statements": func() *kv.Batch {
		batch := batchOf("1", "marker")
		batch.RequireAbsent([]byte("never"))
		batch.DeleteRange([]byte("old"), []byte("older"))
		return batch
	},
}

// TestLostRequest and TestLostAnswer cut the connection before and after a batch has happened.
// Apply finds out which: without that, the first one would lose the batch or the second one
// conflict with itself.
func TestLostRequest(t *testing.T) {
	t.Parallel()
	for name, batch := range batches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, url := postgrestest.Proxied(t)
			store := openHere(t, postgres.Options{URL: url})
			proxy.At("marker", postgrestest.CutRequest)
			apply(t, store, batch())
			want(t, store, "marker", "1")
			if m := store.Metrics(); m.Happened != 0 || m.Vanished != 1 || m.Undecided != 0 {
				t.Errorf("got %+v", m)
			}
		})
	}
}

func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for name, batch := range batches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, url := postgrestest.Proxied(t)
			store := openHere(t, postgres.Options{URL: url})
			proxy.At("marker", postgrestest.CutAnswer)
			apply(t, store, batch())
			want(t, store, "marker", "1")
			if m := store.Metrics(); m.Happened != 1 || m.Vanished != 0 || m.Undecided != 0 {
				t.Errorf("got %+v", m)
			}
		})
	}
}

// TestLateRequest lets a batch reach the database after its connection was given up, the batch was
// applied over another one, and its key was removed again.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	for name, batch := range batches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, url := postgrestest.Proxied(t)
			store := openHere(t, postgres.Options{URL: url})
			late := proxy.At("marker", postgrestest.DelayRequest)
			apply(t, store, batch())
			want(t, store, "marker", "1")
			remove := kv.NewBatch()
			remove.Delete([]byte("marker"))
			apply(t, store, remove)
			late.Release()
			<-late.Answered
			want(t, store, "marker", "")
			if m := store.Metrics(); m.Vanished != 1 {
				t.Errorf("got %+v", m)
			}
		})
	}
}

// TestUnknown loses the answer and then the database. The batch has happened, and who comes back
// sees all of it.
func TestUnknown(t *testing.T) {
	t.Parallel()
	proxy, url := postgrestest.Proxied(t)
	store := openHere(t, postgres.Options{URL: url, Deadline: short})
	var keys []string
	for i := 0; keys == nil; i++ {
		marker, other := fmt.Sprint("marker ", i), fmt.Sprint("other ", i)
		event := proxy.At(marker, postgrestest.CutAnswerAndDown)
		_, err := store.Apply(t.Context(), batchOf("1", marker, other))
		select {
		case <-event.Reached:
			if !errors.Is(err, kv.ErrUnknown) || errors.Is(err, kv.ErrUnavailable) || isOfDriver(err) {
				t.Errorf("got %v", err)
			}
			keys = []string{marker, other}
		default: // the machine is too slow for that short time
			proxy.Up()
		}
	}
	before := store.Metrics().Undecided
	proxy.Up()
	for _, key := range keys {
		want(t, store, key, "1")
	}
	if m := store.Metrics(); m.Undecided == 0 || m.Undecided != before {
		t.Errorf("got %+v", m)
	}
}

// isOfDriver reports whether an error could be taken for one of another package.
func isOfDriver(err error) bool {
	_, isAnswer := errors.AsType[*pgconn.PgError](err)
	_, isConnect := errors.AsType[*pgconn.ConnectError](err)
	_, isNetwork := errors.AsType[net.Error](err)
	return isAnswer || isConnect || isNetwork || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded)
}

// TestUnavailable takes the database away, by cuts and by silence, asks for everything, and brings
// it back.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ away, back func(p *postgrestest.Proxy) }{
		"cut":    {(*postgrestest.Proxy).Down, (*postgrestest.Proxy).Up},
		"silent": {(*postgrestest.Proxy).Freeze, (*postgrestest.Proxy).Thaw},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, url := postgrestest.Proxied(t)
			store := openHere(t, postgres.Options{URL: url, Deadline: short})
			want(t, store, "a", "")
			test.away(proxy)
			ctx := t.Context()
			calls := map[string]func() error{
				"get":  func() error { _, err := store.Get(ctx, []byte("a")); return err },
				"read": func() error { _, err := store.Read(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{{}}}); return err },
				"scan": func() error {
					for _, err := range store.Scan(ctx, kv.ScanOptions{}) {
						return err
					}
					return nil
				},
				"snapshot": func() error { _, err := store.Snapshot(ctx); return err },
				"apply":    func() error { _, err := store.Apply(ctx, batchOf("1", "a")); return err },
			}
			var group sync.WaitGroup
			for name, call := range calls {
				group.Go(func() {
					err := call()
					// The connection for the batch may have been there before.
					unknown := name == "apply" && errors.Is(err, kv.ErrUnknown)
					if !errors.Is(err, kv.ErrUnavailable) && !unknown || isOfDriver(err) {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			group.Wait()
			test.back(proxy)
			want(t, store, "a", "")
			if m := store.Metrics(); m.Unavailable == 0 {
				t.Errorf("got %+v", m)
			}
		})
	}
}

// TestLostSnapshot cuts the connection of a snapshot, which ends as its time would end it.
func TestLostSnapshot(t *testing.T) {
	t.Parallel()
	proxy, url := postgrestest.Proxied(t)
	store := openHere(t, postgres.Options{URL: url})
	view, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proxy.CutAll()
	for range 2 {
		if _, err := view.Get(t.Context(), []byte("a")); !errors.Is(err, kv.ErrSnapshotExpired) || isOfDriver(err) {
			t.Errorf("got %v", err)
		}
	}
	want(t, store, "a", "")
	if err := view.Close(); err != nil || store.Stats().Snapshots != 0 {
		t.Errorf("%v, %d are open", err, store.Stats().Snapshots)
	}
}

// TestIdleSnapshot takes more snapshots than a store can have. Each takes the place of one that
// nobody reads, and the one that is read stays.
func TestIdleSnapshot(t *testing.T) {
	t.Parallel()
	store := openHere(t, postgres.Options{URL: postgrestest.Database(t), Conns: 6})
	take := func() kv.Snapshot {
		view, err := store.Snapshot(t.Context())
		if err != nil {
			t.Error(err)
			return nil
		}
		t.Cleanup(func() { _ = view.Close() })
		return view
	}
	read, idle := take(), take()
	for range 3 {
		more := make(chan kv.Snapshot, 1)
		go func() { more <- take() }()
		for len(more) == 0 {
			if _, err := read.Get(t.Context(), []byte("a")); !errors.Is(err, kv.ErrNotFound) {
				t.Fatalf("the snapshot that is read: %v", err)
			}
		}
		if _, err := idle.Get(t.Context(), []byte("a")); !errors.Is(err, kv.ErrSnapshotExpired) {
			t.Errorf("the snapshot that nobody reads: %v", err)
		}
		if idle = <-more; idle == nil {
			t.FailNow()
		}
	}
}

// TestCancelled cancels a caller whose batch is under way. It goes on, also when the answer is
// lost: the caller hears what became of it.
func TestCancelled(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*postgrestest.Proxy, *postgrestest.Event){
		"the answer is late": func(_ *postgrestest.Proxy, event *postgrestest.Event) { event.Release() },
		"the answer is lost": func(proxy *postgrestest.Proxy, _ *postgrestest.Event) { proxy.CutAll() },
	}
	for name, goOn := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, url := postgrestest.Proxied(t)
			store := openHere(t, postgres.Options{URL: url})
			ctx, cancel := context.WithCancel(t.Context())
			event := proxy.At("marker", postgrestest.HoldAnswer)
			applied := make(chan error, 1)
			go func() {
				_, err := store.Apply(ctx, batchOf("1", "marker"))
				applied <- err
			}()
			<-event.Reached
			cancel()
			goOn(proxy, event)
			if err := <-applied; err != nil {
				t.Error(err)
			}
			want(t, store, "marker", "1")
		})
	}
}

// TestCancelledBefore cancels a batch that waits for its turn behind another one with the same key.
func TestCancelledBefore(t *testing.T) {
	t.Parallel()
	proxy, url := postgrestest.Proxied(t)
	store := openHere(t, postgres.Options{URL: url})
	event := proxy.At("marker", postgrestest.HoldAnswer)
	applied := make(chan error, 1)
	go func() {
		_, err := store.Apply(t.Context(), batchOf("1", "marker"))
		applied <- err
	}()
	<-event.Reached
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		batch := kv.NewBatch()
		batch.Put([]byte("marker"), []byte("2"))
		_, err := store.Apply(ctx, batch)
		second <- err
	}()
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	event.Release()
	if err := <-applied; err != nil {
		t.Error(err)
	}
	want(t, store, "marker", "1")
}

// TestCancelledReader ends a read whose answer does not come.
func TestCancelledReader(t *testing.T) {
	t.Parallel()
	proxy, url := postgrestest.Proxied(t)
	store := openHere(t, postgres.Options{URL: url})
	want(t, store, "marker", "")
	ctx, cancel := context.WithCancel(t.Context())
	event := proxy.At("marker", postgrestest.HoldAnswer)
	read := make(chan error, 1)
	go func() {
		_, err := store.Get(ctx, []byte("marker"))
		read <- err
	}()
	<-event.Reached
	cancel()
	if err := <-read; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	event.Release()
	want(t, store, "marker", "")
}

// TestLedger has writers count up rows of their own, each step required to be the next, while
// connections are cut at random. A step that happened twice, or not at all, conflicts with the next
// one; an answer that came belongs to a step that is there.
func TestLedger(t *testing.T) {
	t.Parallel()
	proxy, url := postgrestest.Proxied(t)
	stores := []*postgres.Store{openHere(t, postgres.Options{URL: url}), openHere(t, postgres.Options{URL: url})}
	proxy.CutRandomly(7)
	const writers, steps = 8, 150
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			head, last := fmt.Appendf(nil, "head/%d", writer), []byte(nil)
			for i := range steps {
				batch := batchOf("", fmt.Sprintf("step/%d/%d", writer, i))
				if last == nil {
					batch.RequireAbsent(head)
				} else {
					batch.Require(head, last)
				}
				last = fmt.Append(nil, i)
				batch.Put(head, last)
				if _, err := stores[i%2].Apply(t.Context(), batch); err != nil {
					t.Errorf("writer %d, step %d: %v", writer, i, err)
					return
				}
			}
		})
	}
	group.Wait()
	if found := count(t, stores[0], "step/"); found != writers*steps {
		t.Errorf("%d steps, want %d", found, writers*steps)
	}
	if proxy.Cuts() == 0 {
		t.Error("nothing was cut")
	}
}
