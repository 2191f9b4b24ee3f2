package space_test

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/space"
)

const total = 1_000_000

// never is an interval after which no watch of a test looks by itself.
const never = time.Hour

func mem(free uint64) *vfs.MemFS {
	fs := vfs.NewMem()
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: total})
	return fs
}

func open(t *testing.T, fs vfs.FS, o space.Options) *space.Watch {
	t.Helper()
	o.FS = fs
	if o.Every == 0 {
		o.Every = never
	}
	w, err := space.Open("", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestHysteresis(t *testing.T) {
	t.Parallel()
	type step struct {
		free uint64
		err  error
	}
	tests := map[string]struct {
		minBytes int64
		steps    []step // the first one is before the start
	}{
		"5 percent": {0, []step{
			{50_000, nil},
			{49_999, space.ErrShort},
			{50_001, space.ErrShort},
			{62_499, space.ErrShort},
			{62_500, nil},
			{50_000, nil},
		}},
		"stated": {400, []step{{400, nil}, {0, space.ErrShort}, {499, space.ErrShort}, {500, nil}}},
		"after a start": {
			400, []step{{399, space.ErrRecovering}, {499, space.ErrRecovering}, {500, nil}, {399, space.ErrShort}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := mem(test.steps[0].free)
			w := open(t, fs, space.Options{MinBytes: test.minBytes})
			for i, s := range test.steps {
				fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: s.free, TotalBytes: total})
				check := w.Look
				if i == 0 {
					check = w.Check
				}
				if err := check(); !errors.Is(err, s.err) || (err == nil) != (s.err == nil) {
					t.Errorf("step %d: %d bytes: %v, want %v", i, s.free, err, s.err)
				}
				if w.Free() != s.free || w.Err() != nil {
					t.Errorf("step %d: %d bytes free, %v; want %d", i, w.Free(), w.Err(), s.free)
				}
			}
		})
	}
}

// TestUnknown has no telling of free space: nothing is refused.
func TestUnknown(t *testing.T) {
	t.Parallel()
	var none *space.Watch
	for name, w := range map[string]*space.Watch{
		"nil": none, "unsupported": open(t, vfs.NewMem(), space.Options{MinBytes: 1 << 60}),
	} {
		meter := w.Meter()
		if err := errors.Join(w.Check(), w.Look(), meter.Add(1<<30)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := io.ReadAll(w.Reader(strings.NewReader("text"))); string(got) != "text" || err != nil {
			t.Errorf("%s: read %q, %v", name, got, err)
		}
	}
}

// unaskable is a file system whose free space cannot be asked for while failing is set.
type unaskable struct {
	vfs.FS
	failing atomic.Bool
}

func (u *unaskable) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if u.failing.Load() {
		return vfs.DiskUsage{}, syscall.EIO
	}
	return u.FS.GetDiskUsage(path)
}

func TestFailure(t *testing.T) {
	t.Parallel()
	fs := &unaskable{FS: mem(1000)}
	w := open(t, fs, space.Options{MinBytes: 400})
	fs.failing.Store(true)
	if err := w.Look(); err != nil {
		t.Errorf("what is not known refuses writes: %v", err)
	}
	if !errors.Is(w.Err(), syscall.EIO) {
		t.Errorf("got %v, want EIO", w.Err())
	}
	fs.failing.Store(false)
	if err := errors.Join(w.Look(), w.Err()); err != nil {
		t.Error(err)
	}
}

// TestRunLooks waits for the periodic check of the watch.
func TestRunLooks(t *testing.T) {
	t.Parallel()
	fs := mem(1000)
	w := open(t, fs, space.Options{MinBytes: 400, Every: time.Millisecond})
	relieved := make(chan struct{}, 1)
	w.Relieve(space.Spare{Free: func(int64) {
		select {
		case relieved <- struct{}{}:
		default:
		}
	}})
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1, TotalBytes: total})
	<-relieved
	for w.Check() == nil {
		time.Sleep(time.Millisecond)
	}
}

// TestRelief has something that can be spared: giving it up makes enough room, or not.
func TestRelief(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after uint64
		err   error
	}{"enough": {500, nil}, "not enough": {399, space.ErrShort}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := mem(1000)
			w := open(t, fs, space.Options{MinBytes: 400})
			w.Relieve(space.Spare{Free: func(missing int64) {
				if missing != 400 {
					t.Errorf("%d bytes are missing", missing)
				}
				fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: test.after, TotalBytes: total})
			}})
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 100, TotalBytes: total})
			if err := w.Look(); !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
		})
	}
}

// sparing lets each of two caches give up 200 bytes, and returns what each was asked.
func sparing(fs *vfs.MemFS, w *space.Watch, free uint64) (asked *[2][]int64) {
	asked = new([2][]int64)
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: total})
	for i := range asked {
		spare := int64(200)
		w.Relieve(space.Spare{Bytes: func() int64 { return spare }, Free: func(missing int64) {
			asked[i] = append(asked[i], missing)
			given := min(spare, missing)
			spare -= given
			free += uint64(given)
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: total})
		}})
	}
	return asked
}

// TestReliefInOrder asks a second cache for what the first one cannot spare, at each check, also
// after a start on a disk that is short.
func TestReliefInOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		start, free uint64
		looks       int
		asked       [2][]int64
		err         error
	}{
		"the first":           {1000, 350, 1, [2][]int64{{150}, nil}, nil},
		"both":                {1000, 200, 1, [2][]int64{{300}, {100}}, nil},
		"both, after a start": {100, 200, 1, [2][]int64{{300}, {100}}, nil},
		"not enough":          {0, 0, 2, [2][]int64{{500, 100}, {300, 100}}, space.ErrRecovering},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := mem(test.start)
			w := open(t, fs, space.Options{MinBytes: 400})
			asked := sparing(fs, w, test.free)
			for range test.looks {
				if err := w.Look(); !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
					t.Errorf("got %v, want %v", err, test.err)
				}
			}
			if !reflect.DeepEqual(*asked, test.asked) {
				t.Errorf("asked for %v, want %v", *asked, test.asked)
			}
		})
	}
}

// TestRoomIsMade has room made for large writes, and for none that does not fit all the same.
func TestRoomIsMade(t *testing.T) {
	t.Parallel()
	fs := mem(1000)
	w := open(t, fs, space.Options{MinBytes: 400})
	asked := sparing(fs, w, 500)
	if err := w.Room(50); err != nil {
		t.Error(err)
	}
	for _, size := range []int64{300, 500} {
		if err := w.Room(size); err != nil || w.Free() != uint64(400+size) {
			t.Errorf("%v, %d bytes are free", err, w.Free())
		}
	}
	if err := w.Room(1000); !errors.Is(err, space.ErrNoRoom) || w.Check() != nil {
		t.Errorf("got %v, %v", err, w.Check())
	}
	if want := [2][]int64{{200, 200}, {200}}; !reflect.DeepEqual(*asked, want) {
		t.Errorf("asked for %v, want %v", *asked, want)
	}
}

func TestBallast(t *testing.T) {
	t.Parallel()
	fs := mem(10_000)
	there := func() bool {
		_, err := fs.Stat("ballast")
		return err == nil
	}
	for i, step := range []struct {
		free  uint64
		there bool
	}{
		{10_000, true},
		{300, true},
		{199, false},
		{499, false},
		{600, false},
		{700, false},
		{701, true},
		{399, true},
		{1, false},
	} {
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: step.free, TotalBytes: total})
		w := open(t, fs, space.Options{MinBytes: 400}) // the ballast is 200
		if there() != step.there {
			t.Errorf("step %d: started with %d bytes, the ballast is there: %v", i, step.free, there())
		}
		w.Close()
	}
}

// TestFull writes to a disk that is full until the ballast is gone: the write succeeds, and the
// disk is short. What it says is free is measured then, and not at the last check.
func TestFull(t *testing.T) {
	t.Parallel()
	base := mem(10_000)
	full := errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileWrite {
			return nil
		}
		if _, err := base.Stat("ballast"); err == nil {
			base.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 7, TotalBytes: total})
			return syscall.ENOSPC
		}
		return nil
	}))
	w := open(t, full, space.Options{MinBytes: 400})
	f, err := w.FS().Create("log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write([]byte("entry")); n != 5 || err != nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(); !errors.Is(err, space.ErrShort) || !strings.Contains(err.Error(), ": 7 bytes free on ") {
		t.Errorf("afterwards: %v", err)
	}
	base.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 10_000, TotalBytes: total})
	if err := w.Look(); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// TestReader lets the disk run full while something large is read.
func TestReader(t *testing.T) {
	t.Parallel()
	fs := mem(1000)
	w := open(t, fs, space.Options{MinBytes: 400})
	source := &draining{fs: fs, after: 40 << 20}
	n, err := io.Copy(io.Discard, w.Reader(source))
	if !errors.Is(err, space.ErrShort) {
		t.Errorf("got %v, want ErrShort", err)
	}
	if n < source.after-1<<20 || n > source.after+32<<20 {
		t.Errorf("read %d bytes, the disk was short after %d", n, source.after)
	}
}

// draining is an endless source; after some bytes the disk is full.
type draining struct {
	fs          *vfs.MemFS
	read, after int64
}

func (d *draining) Read(p []byte) (int, error) {
	if d.read += int64(len(p)); d.read > d.after {
		d.fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1, TotalBytes: total})
	}
	return len(p), nil
}

func TestRoom(t *testing.T) {
	t.Parallel()
	fs := mem(1000)
	w := open(t, fs, space.Options{MinBytes: 400})
	for size, want := range map[int64]error{0: nil, 600: nil, 601: space.ErrNoRoom} {
		if err := w.Room(size); !errors.Is(err, want) {
			t.Errorf("room for %d bytes: %v, want %v", size, err, want)
		}
	}
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 399, TotalBytes: total})
	if err := w.Room(0); !errors.Is(err, space.ErrShort) {
		t.Errorf("room on a short disk: %v", err)
	}
	var none *space.Watch
	if err := none.Room(1 << 40); err != nil {
		t.Errorf("without a watch: %v", err)
	}
}

// TestWords checks the message for refused writes, first and while there is not enough room yet.
func TestWords(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	fs := vfs.NewMem()
	disk := func(free uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 40}) }
	disk(2048 * mib)
	if err := fs.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := space.Open("data", space.Options{FS: fs, MinBytes: 800 * mib, Every: never})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	for _, step := range []struct {
		free uint64
		want string
	}{
		{512 * mib, "space: writes are paused: 512 MiB free on data, 1000 MiB needed; reads continue"},
		{900*mib + mib/2, "space: writes are paused: 900.5 MiB free on data, 1000 MiB needed; reads continue"},
	} {
		disk(step.free)
		if err := w.Look(); err == nil || err.Error() != step.want {
			t.Errorf("with %d bytes free: %v, want %s", step.free, err, step.want)
		}
	}
	for size, want := range map[uint64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1 KiB", 1 << 30: "1 GiB", 5 << 28: "1.2 GiB", 1<<64 - 1: "16 EiB",
	} {
		if got := space.Size(size); got != want {
			t.Errorf("%d bytes are %q, want %q", size, got, want)
		}
	}
}
