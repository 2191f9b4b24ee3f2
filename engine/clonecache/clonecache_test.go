package clonecache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/engine/clonecache"
)

const dir = "data/cache"

var errBroken = errors.New("the generation broke")

func open(t *testing.T, fs vfs.FS, o clonecache.Options) *clonecache.Cache {
	t.Helper()
	o.FS = fs
	if o.CostMin == 0 {
		o.CostMin = -1
	}
	c, err := clonecache.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// pack makes some bytes of a size.
func pack(size int) []byte {
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(p)
	return p
}

// writes is a generation that writes p in pieces of 100,000 bytes.
func writes(p []byte) func() clonecache.Generate {
	return func() clonecache.Generate {
		return func(_ context.Context, w io.Writer, tell func(string)) error {
			tell("writing\n")
			for rest := p; len(rest) > 0; {
				n := min(len(rest), 100_000)
				if _, err := w.Write(rest[:n]); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		}
	}
}

// never is a generation that must not begin.
func never(t *testing.T) func() clonecache.Generate {
	t.Helper()
	return func() clonecache.Generate {
		t.Error("the pack is generated again")
		return writes(nil)()
	}
}

// errAlone says that a request is to generate its pack for itself.
var errAlone = errors.New("no pack and no reservation")

// request sends the pack of a key, which it generates when it has to.
func request(
	ctx context.Context, c *clonecache.Cache, key clonecache.Key, w io.Writer, tell func(string),
	begin func() clonecache.Generate,
) error {
	p, reservation, err := c.Lookup(ctx, key, tell)
	if err != nil {
		return err
	}
	if reservation != nil {
		p = reservation.Store(begin())
	}
	if p == nil {
		return errAlone
	}
	return p.Send(ctx, w, tell)
}

// reserve reserves a key.
func reserve(t *testing.T, c *clonecache.Cache, key clonecache.Key) *clonecache.Reservation {
	t.Helper()
	p, reservation, err := c.Lookup(t.Context(), key, nil)
	if p != nil || reservation == nil || err != nil {
		t.Fatalf("no reservation, but %v, %v", p, err)
	}
	t.Cleanup(reservation.Release)
	return reservation
}

// await returns when so many requests wait for the holder of a reservation.
func await(c *clonecache.Cache, waiting int) {
	for c.Stats().Waiting != waiting {
		runtime.Gosched()
	}
}

// send requests a pack and compares the result.
func send(t *testing.T, c *clonecache.Cache, key clonecache.Key, want []byte, begin func() clonecache.Generate) {
	t.Helper()
	var got bytes.Buffer
	if err := request(t.Context(), c, key, &got, nil, begin); err != nil {
		t.Errorf("send: %v", err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got %d bytes, want %d others", got.Len(), len(want))
	}
}

// settle waits until nothing is generated any more, which is when the cache is closed, and opens it
// again.
func settle(t *testing.T, c *clonecache.Cache, fs vfs.FS, o clonecache.Options) *clonecache.Cache {
	t.Helper()
	c.Close()
	return open(t, fs, o)
}

func TestSend(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1 << 20, 3_000_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewMem()
			c := open(t, fs, clonecache.Options{})
			p := pack(size)
			send(t, c, clonecache.Key{1}, p, writes(p))
			c = settle(t, c, fs, clonecache.Options{})
			if size > 0 {
				send(t, c, clonecache.Key{1}, p, never(t))
				send(t, c, clonecache.Key{1}, p, never(t))
			}
			send(t, c, clonecache.Key{2}, p[:size/2], writes(p[:size/2]))
		})
	}
}

// TestSingleFlight lets many ask at once for a pack that is not ready before all of them do.
func TestSingleFlight(t *testing.T) {
	t.Parallel()
	const readers = 16
	c := open(t, vfs.NewMem(), clonecache.Options{})
	p := pack(2_000_000)
	var begun atomic.Int32
	var waiting sync.WaitGroup
	waiting.Add(readers)
	begin := func() clonecache.Generate {
		begun.Add(1)
		return func(ctx context.Context, w io.Writer, tell func(string)) error {
			if _, err := w.Write(p[:1000]); err != nil {
				return err
			}
			waiting.Wait()
			return writes(p[1000:])()(ctx, w, tell)
		}
	}
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			var got bytes.Buffer
			first := &arrival{Writer: &got, arrived: waiting.Done}
			var text string
			err := request(t.Context(), c, clonecache.Key{1}, first, func(line string) { text += line }, begin)
			if err != nil {
				t.Errorf("send: %v", err)
			}
			if !bytes.Equal(got.Bytes(), p) {
				t.Errorf("got %d bytes, want %d others", got.Len(), len(p))
			}
			if text != "writing\n" {
				t.Errorf("heard %q", text)
			}
		})
	}
	group.Wait()
	if s := c.Stats(); begun.Load() != 1 || s.Generated != 1 || s.Joined != readers-1 {
		t.Errorf("begun %d times: %+v", begun.Load(), s)
	}
}

// arrival signals the first write.
type arrival struct {
	io.Writer
	arrived func()
	once    sync.Once
}

func (a *arrival) Write(p []byte) (int, error) {
	a.once.Do(a.arrived)
	return a.Writer.Write(p)
}

// stuck is a client that takes nothing until it is let go.
type stuck struct {
	io.Writer
	asked, free chan struct{}
	once        sync.Once
}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.asked) })
	<-s.free
	return s.Writer.Write(p)
}

// TestSlowClient lets a client that takes nothing begin a flight: another gets its pack.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	c := open(t, vfs.NewMem(), clonecache.Options{})
	p := pack(3_000_000)
	var got bytes.Buffer
	slow := &stuck{Writer: &got, asked: make(chan struct{}), free: make(chan struct{})}
	var group sync.WaitGroup
	group.Go(func() {
		if err := request(t.Context(), c, clonecache.Key{1}, slow, nil, writes(p)); err != nil {
			t.Errorf("slow: %v", err)
		}
	})
	<-slow.asked
	send(t, c, clonecache.Key{1}, p, never(t))
	c.Clear() // the slow client's file may go
	close(slow.free)
	group.Wait()
	if !bytes.Equal(got.Bytes(), p) {
		t.Errorf("the slow client got %d bytes, want %d others", got.Len(), len(p))
	}
}

// TestLeaverStays has the client that began a flight go away while another waits for it.
func TestLeaverStays(t *testing.T) {
	t.Parallel()
	c := open(t, vfs.NewMem(), clonecache.Options{})
	p := pack(300_000)
	ctx, cancel := context.WithCancel(t.Context())
	begun, goOn := make(chan struct{}), make(chan struct{})
	begin := func() clonecache.Generate {
		return func(ctx context.Context, w io.Writer, tell func(string)) error {
			close(begun)
			<-goOn
			return errors.Join(ctx.Err(), writes(p)()(ctx, w, tell))
		}
	}
	var group sync.WaitGroup
	left := make(chan struct{})
	group.Go(func() {
		defer close(left)
		err := request(ctx, c, clonecache.Key{1}, io.Discard, nil, begin)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the leaver: %v", err)
		}
	})
	<-begun
	group.Go(func() {
		var got bytes.Buffer
		err := request(t.Context(), c, clonecache.Key{1}, &got, func(string) {}, never(t))
		if err != nil || !bytes.Equal(got.Bytes(), p) {
			t.Errorf("the other: %d bytes, %v", got.Len(), err)
		}
	})
	for c.Stats().Joined == 0 {
		runtime.Gosched()
	}
	cancel()
	<-left
	close(goOn)
	group.Wait()
}

// TestGivenUp has the only client go away: the generation ends, and the next request begins
// another.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	c := open(t, fs, clonecache.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	err := request(ctx, c, clonecache.Key{1}, io.Discard, nil, func() clonecache.Generate {
		return func(ctx context.Context, w io.Writer, _ func(string)) error {
			if _, err := w.Write(pack(1000)); err != nil {
				return err
			}
			cancel()
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(<-ended, context.Canceled) {
		t.Errorf("the client: %v", err)
	}
	p := pack(500)
	send(t, c, clonecache.Key{1}, p, writes(p))
	c.Close()
	if names, err := fs.List(dir); err != nil || len(names) != 1 {
		t.Errorf("left: %q, %v", names, err)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		generate clonecache.Generate
		err      error
	}{
		"at once": {func(context.Context, io.Writer, func(string)) error { return errBroken }, errBroken},
		"half way": {func(_ context.Context, w io.Writer, _ func(string)) error {
			return errors.Join(ignore(w.Write(pack(300_000))), errBroken)
		}, errBroken},
		"panicking": {func(context.Context, io.Writer, func(string)) error { panic("oh") }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewMem()
			c := open(t, fs, clonecache.Options{})
			begin := func() clonecache.Generate { return test.generate }
			err := request(t.Context(), c, clonecache.Key{1}, io.Discard, nil, begin)
			if err == nil || test.err != nil && !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
			c.Close()
			if names, err := fs.List(dir); err != nil || len(names) != 0 {
				t.Errorf("left: %q, %v", names, err)
			}
			if err := request(t.Context(), c, clonecache.Key{1}, io.Discard, nil, never(t)); !errors.Is(err, errAlone) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}

func ignore(_ int, err error) error { return err }

// TestFailureIsNotJoined asks again as soon as a generation has failed: that failure is not heard
// of twice.
func TestFailureIsNotJoined(t *testing.T) {
	t.Parallel()
	c := open(t, vfs.NewMem(), clonecache.Options{})
	breaks := func() clonecache.Generate {
		return func(context.Context, io.Writer, func(string)) error { return errBroken }
	}
	for round := range 500 {
		key := clonecache.Key{byte(round), byte(round >> 8)}
		if err := request(t.Context(), c, key, io.Discard, nil, breaks); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		send(t, c, key, pack(100), writes(pack(100)))
	}
}

// TestCheapIsNotKept generates a pack again that was quickly made.
func TestCheapIsNotKept(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	o := clonecache.Options{CostMin: 1 << 60}
	c := open(t, fs, o)
	p := pack(1000)
	send(t, c, clonecache.Key{1}, p, writes(p))
	c = settle(t, c, fs, o)
	if s := c.Stats(); s.Count != 0 || s.Bytes != 0 {
		t.Errorf("kept: %+v", s)
	}
	send(t, c, clonecache.Key{1}, p, writes(p))
}

// TestDamage changes, shortens or removes the file of a pack before it is asked for again, by the
// process that wrote it and by the next.
func TestDamage(t *testing.T) {
	t.Parallel()
	p := pack(600_000)
	key := clonecache.Key{7}
	damages := map[string]func(data []byte) []byte{
		"empty":    func([]byte) []byte { return nil },
		"no tail":  func(data []byte) []byte { return data[:len(p)] },
		"one less": func(data []byte) []byte { return data[:len(data)-1] },
		"one more": func(data []byte) []byte { return append(data, 0) },
		"removed":  nil,
	}
	for _, at := range []int{0, 256 << 10, len(p) - 1, len(p), len(p) + 11, len(p) + 13, len(p) + 30, len(p) + 57, len(p) +
		62} {
		damages[fmt.Sprint("flip at ", at)] = func(data []byte) []byte { data[at] ^= 0x40; return data }
	}
	for name, damage := range damages {
		for _, restarted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/restarted=%v", name, restarted), func(t *testing.T) {
				t.Parallel()
				fs := vfs.NewMem()
				c := open(t, fs, clonecache.Options{})
				send(t, c, key, p, writes(p))
				if restarted {
					c = settle(t, c, fs, clonecache.Options{})
				}
				path := fs.PathJoin(dir, key.String())
				for !exists(fs, path) {
					runtime.Gosched()
				}
				rewrite(t, fs, path, damage)
				var got bytes.Buffer
				err := request(t.Context(), c, key, &got, nil, writes(p))
				if err == nil && !bytes.Equal(got.Bytes(), p) {
					t.Errorf("%d wrong bytes were sent as right", got.Len())
				}
				if err != nil && (restarted || !bytes.HasPrefix(p, got.Bytes()) || got.Len() == len(p)) {
					t.Errorf("after %d bytes: %v", got.Len(), err)
				}
				send(t, c, key, p, writes(p))
			})
		}
	}
}

func exists(fs vfs.FS, path string) bool {
	_, err := fs.Stat(path)
	return err == nil
}

// rewrite replaces a file by a damaged one, or removes it.
func rewrite(t *testing.T, fs vfs.FS, path string, damage func([]byte) []byte) {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close(), fs.Remove(path)); err != nil {
		t.Fatal(err)
	}
	if damage == nil {
		return
	}
	if f, err = fs.Create(path, vfs.WriteCategoryUnspecified); err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(damage(data))
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestFolderGone deletes the whole folder of a cache that is in use.
func TestFolderGone(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	c := open(t, fs, clonecache.Options{})
	p := pack(1000)
	send(t, c, clonecache.Key{1}, p, writes(p))
	c = settle(t, c, fs, clonecache.Options{})
	if err := fs.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	send(t, c, clonecache.Key{1}, p, writes(p))
	send(t, c, clonecache.Key{2}, p, writes(p))
}

// TestBudget fills a cache over its budget: the least recently used pack is evicted first, also
// after a restart.
func TestBudget(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	o := clonecache.Options{BudgetBytes: 1_000_000}
	c := open(t, fs, o)
	p := pack(200_000)
	for i := range byte(4) {
		send(t, c, clonecache.Key{i}, p, writes(p))
		c = settle(t, c, fs, o)
	}
	send(t, c, clonecache.Key{0}, p, never(t)) // now 1 is the oldest
	for i := range byte(2) {
		send(t, c, clonecache.Key{10 + i}, p, writes(p))
	}
	c.Close()
	if s := c.Stats(); s.Bytes > o.BudgetBytes || s.Count != 4 || s.Evicted != 2 {
		t.Errorf("%+v", s)
	}
	for key, there := range map[clonecache.Key]bool{{0}: true, {1}: false, {2}: false, {3}: true} {
		if exists(fs, fs.PathJoin(dir, key.String())) != there {
			t.Errorf("%v is there: %v", key[:1], !there)
		}
	}
	small := open(t, fs, clonecache.Options{BudgetBytes: 450_000})
	if s := small.Stats(); s.Count != 2 || s.Bytes > 450_000 {
		t.Errorf("with less budget: %+v", s)
	}
	large := pack(200_001) // over a quarter of the budget
	send(t, small, clonecache.Key{20}, large, writes(large))
	small.Close()
	if exists(fs, fs.PathJoin(dir, clonecache.Key{20}.String())) {
		t.Error("a pack of more than a quarter of the budget was kept")
	}
}

// TestFileFails makes the file system fail: every reader gets a whole pack or an error.
func TestFileFails(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	failing := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileWriteAt {
			return errBroken
		}
		return nil
	}))
	c := open(t, failing, clonecache.Options{})
	err := request(t.Context(), c, clonecache.Key{1}, io.Discard, nil, writes(pack(1000)))
	if !errors.Is(err, clonecache.ErrUnsent) {
		t.Errorf("got %v, want ErrUnsent", err)
	}
	c.Close()
	if names, err := fs.List(dir); err != nil || len(names) != 0 {
		t.Errorf("left: %q, %v", names, err)
	}
}

// A stored pack that cannot be opened for want of descriptors is not damaged: whoever asks for it
// meanwhile generates it alone.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	var short atomic.Bool
	failing := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpOpen && short.Load() {
			return errBroken
		}
		return nil
	}))
	c := open(t, failing, clonecache.Options{})
	want := pack(1000)
	send(t, c, clonecache.Key{1}, want, writes(want))
	c = settle(t, c, failing, clonecache.Options{})
	short.Store(true)
	if err := request(t.Context(), c, clonecache.Key{1}, io.Discard, nil, never(t)); !errors.Is(err, errAlone) {
		t.Errorf("got %v, want errAlone", err)
	}
	short.Store(false)
	send(t, c, clonecache.Key{1}, want, never(t))
	if s := c.Stats(); s.Damaged != 0 || s.Hits != 1 {
		t.Errorf("%+v", s)
	}
}
