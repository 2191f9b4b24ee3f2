package outbox_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/outbox"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// outboxed is a repository with one listener for transactions of branches.
type outboxed struct {
	outbox.Outbox[repository]
	keys  kv.Store
	names *refs.Store
	rec   repository
	told  int
}

// repository is what the listener is told of one.
type repository struct {
	ID  refs.RepoID
	Org string
}

func openOutbox(t *testing.T, fs vfs.FS, id refs.RepoID) (box *outboxed, shut func()) {
	t.Helper()
	stored := odbtest.OpenKeys(t, fs)
	box = &outboxed{
		Outbox: outbox.New[repository](stored), keys: stored, names: refs.Open(stored, refs.Options{}),
		rec: repository{ID: id, Org: "acme"},
	}
	box.Subscribe(outbox.Subscription[repository]{
		Listener: outbox.Webhook,
		Wants:    func(rec repository, cause string) bool { return rec.Org == "acme" && cause != "quiet" },
		Matters:  func(ref string) bool { return strings.HasPrefix(ref, "refs/heads/") },
		Told:     func(refs.RepoID, repository) { box.told++ },
	})
	if _, err := box.names.Head(t.Context(), id); err != nil {
		b := kv.NewBatch()
		if err := box.names.Create(b, id, refs.Change{}); err != nil {
			t.Fatal(err)
		}
		box.apply(t, b)
	}
	return box, func() {
		if err := stored.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (o *outboxed) apply(t *testing.T, b *kv.Batch) {
	t.Helper()
	commit, err := o.keys.Apply(t.Context(), b)
	if err == nil {
		err = commit.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// set points a ref to an id that n makes.
func (o *outboxed) set(t *testing.T, cause, ref string, n byte) {
	t.Helper()
	change := refs.Change{Cause: cause}
	o.Follow(&change, o.rec.ID, o.rec)
	_, err := o.names.Update(t.Context(), o.rec.ID, change, func(ctx context.Context, tx *refs.Tx) error {
		return tx.Set(ctx, ref, nil, object.ID{n}, object.ZeroID)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rest describes the pending rows of the listener.
func (o *outboxed) rest(t *testing.T, after uint64) string {
	t.Helper()
	var ids []refs.RepoID
	for id, err := range o.Repositories(t.Context(), outbox.Webhook) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	s, found, err := o.Span(t.Context(), outbox.Webhook, o.rec.ID, after)
	if err != nil {
		t.Fatal(err)
	}
	if found && !slices.Equal(ids, []refs.RepoID{o.rec.ID}) || !found && after == 0 && ids != nil {
		t.Errorf("repositories %v", ids)
	}
	if !found {
		return "nothing"
	}
	return fmt.Sprintf("%d to %d", s.First, s.Last)
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	box, shut := openOutbox(t, vfs.NewMem(), refs.RepoID{15: 0xff})
	defer shut()
	step := func(want string, told int) {
		t.Helper()
		if got := box.rest(t, 0); got != want || box.told != told {
			t.Errorf("left %s, told %d times; want %s, %d", got, box.told, want, told)
		}
	}
	step("nothing", 0)
	box.set(t, "quiet", "refs/heads/main", 1)
	box.set(t, "quiet", "refs/heads/main", 2)
	box.set(t, "push", "refs/notes/commits", 3)
	step("nothing", 0)
	box.set(t, "push", "refs/heads/main", 4) // sequence 5
	box.set(t, "push", "refs/notes/commits", 5)
	box.set(t, "merge", "refs/heads/main", 6)
	box.set(t, "merge", "refs/heads/main", 6) // nothing changes
	step("5 to 7", 2)
	if got := box.rest(t, 5); got != "7 to 7" {
		t.Errorf("after 5: %s", got)
	}
	if got := box.rest(t, 7); got != "nothing" {
		t.Errorf("after 7: %s", got)
	}

	b := kv.NewBatch()
	box.Remove(b, outbox.Webhook, box.rec.ID, outbox.Span{First: 5, Last: 7})
	box.set(t, "push", "refs/heads/main", 7) // committed before the batch of a listener that read an older state
	box.apply(t, b)
	step("8 to 8", 3)
	b = kv.NewBatch()
	box.Take(b, outbox.Webhook, box.rec.ID, outbox.Span{First: 7, Last: 8}) // of a server that was slower
	if _, err := box.keys.Apply(t.Context(), b); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("a row was taken twice: %v", err)
	}
	step("8 to 8", 3)

	for i := range byte(100) {
		box.set(t, "push", "refs/heads/other", i+1)
	}
	step("8 to 108", 103)
	b = kv.NewBatch()
	box.Take(b, outbox.Webhook, box.rec.ID, outbox.Span{First: 8, Last: 107})
	box.apply(t, b)
	step("108 to 108", 103)

	b = kv.NewBatch()
	box.Remove(b, outbox.Upstream, box.rec.ID, outbox.Span{First: 1, Last: 1000}) // another listener's
	box.apply(t, b)
	step("108 to 108", 103)
	b = kv.NewBatch()
	outbox.DropFor(b, outbox.Webhook, refs.RepoID{15: 0xfe}) // another one
	box.apply(t, b)
	step("108 to 108", 103)
	b = kv.NewBatch()
	for _, left := range outbox.Leftovers(box.rec.ID) {
		b.DeleteRange(left.Start, left.End)
	}
	box.apply(t, b)
	step("nothing", 103)
}

// An acknowledged transaction is in the outbox after a loss of power, until the listener's own
// state is durable.
func TestOutboxAfterCrash(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	box, shut := openOutbox(t, fs, refs.RepoID{1})
	box.set(t, "push", "refs/heads/main", 1)
	box.set(t, "push", "refs/heads/main", 2)
	b := kv.NewBatch()
	box.Remove(b, outbox.Webhook, box.rec.ID, outbox.Span{First: 2, Last: 2})
	box.apply(t, b)
	dead := fs.CrashClone(vfs.CrashCloneCfg{})
	shut()

	box, shut = openOutbox(t, dead, refs.RepoID{1})
	defer shut()
	if got := box.rest(t, 0); got != "3 to 3" || box.told != 0 {
		t.Errorf("left %s, told %d times", got, box.told)
	}
}

// TestRepositories walks repositories with few and with many rows.
func TestRepositories(t *testing.T) {
	t.Parallel()
	box, shut := openOutbox(t, vfs.NewMem(), refs.RepoID{})
	defer shut()
	b := kv.NewBatch()
	var want []refs.RepoID
	for i, count := range []int{1, 63, 64, 65, 200, 1, 1} {
		id := refs.RepoID{0: byte(40 * i), 15: 0xff}
		want = append(want, id)
		for sequence := range count {
			key := append([]byte{outbox.Table, byte(outbox.Webhook)}, id[:]...)
			b.Put(binary.BigEndian.AppendUint64(key, uint64(1+sequence)), nil)
		}
	}
	box.apply(t, b)
	for stop := range len(want) + 1 {
		var got []refs.RepoID
		for id, err := range box.Repositories(t.Context(), outbox.Webhook) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, id); len(got) == stop {
				break
			}
		}
		if right := want[:cmp.Or(stop, len(want))]; !slices.Equal(got, right) {
			t.Errorf("repositories %v, want %v", got, right)
		}
	}
	for id, err := range box.Repositories(t.Context(), outbox.Upstream) {
		t.Errorf("a listener without rows has %v, %v", id, err)
	}
}
