// Package space watches the free space of the disk, so that writes are refused before the stores
// would fail.
//
// Start at [Open], which returns a [Watch]; writes call [Watch.Check] first. The disk becomes short
// when its free space falls below a limit, and stays short until the free space is a quarter above
// it. Pebble ends the process when a write of its log fails. Therefore a ballast file reserves some
// space: if the disk is full nevertheless, the file system of [Watch.FS] deletes the ballast during
// the failing write and repeats the write. The watch creates the ballast again when there is room.
package space

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/rescue"
)

var (
	// ErrShort says that writes are refused until there is room. Errors that wrap it include the free
	// space.
	ErrShort = errors.New("space: writes are paused: the disk is full; reads continue")
	// ErrRecovering replaces [ErrShort] after a start on a disk that was already short.
	ErrRecovering = errors.New("space: writes are paused: the disk was full at the start; reads continue")
	// ErrNoRoom says that a large write would make the disk short.
	ErrNoRoom = errors.New("space: not enough free disk space")
)

// Options adjusts a watch. The zero value works.
type Options struct {
	// FS holds the folder; nil is the file system of the operating system.
	FS vfs.FS
	// MinBytes is the free space below which the disk is short; if 0, 1 GiB, or 5 % of the disk if
	// that is less.
	MinBytes int64
	// BallastBytes is the size of the ballast file; 64 MiB if 0, and at most half of MinBytes.
	BallastBytes int64
	// Every is the interval of the periodic check; one second if 0.
	Every  time.Duration
	Logger *slog.Logger
}

const (
	minBytes     = 1 << 30
	minPercent   = 5
	ballastBytes = 64 << 20
	lookEvery    = time.Second
	// meterStep is the number of bytes that a [Meter] counts between two checks.
	meterStep = 16 << 20
)

// Watch knows the free space of a disk. Its methods may be called concurrently. A nil Watch always
// finds room.
type Watch struct {
	fs      vfs.FS
	dir     string
	options Options
	log     *slog.Logger

	ctx     context.Context // of run
	cancel  context.CancelFunc
	running sync.WaitGroup

	state atomic.Pointer[state]

	mu      sync.Mutex // guards the fields below, and changes of state
	ballast ballast
	spares  []Spare
}

// state is the result of the last check.
type state struct {
	free    uint64
	total   uint64 // size of the disk; 0 if the file system does not report it
	limit   uint64
	refusal error // of writes: nil, or a *shortage
	failed  error // why the free space is unknown
}

// Open checks the disk of dir, and watches it until Close. Call it before the stores in dir are
// opened: they may need the space of the ballast.
func Open(dir string, o Options) (*Watch, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	o.BallastBytes = cmp.Or(o.BallastBytes, ballastBytes)
	o.Every = cmp.Or(o.Every, lookEvery)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Watch{
		fs: o.FS, dir: dir, options: o, log: o.Logger,
		ballast: ballast{fs: o.FS, path: o.FS.PathJoin(dir, ballastName)},
	}
	if err := w.ballast.find(); err != nil {
		return nil, fmt.Errorf("open ballast: %w", err)
	}
	w.state.Store(&state{})
	w.look(ErrRecovering)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	rescue.Keep(w.ctx, &w.running, o.Every, w.run, func(err error) {
		w.log.Error("failed to check the free disk space", "error", err)
	})
	return w, nil
}

// run checks the disk periodically.
func (w *Watch) run(ctx context.Context) error {
	ticker := time.NewTicker(w.options.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.look(ErrShort)
		}
	}
}

// Close ends the watch. The ballast stays.
func (w *Watch) Close() {
	w.cancel()
	w.running.Wait()
}

// Spare is space that can be given up. Its functions must not call the watch.
type Spare struct {
	// Bytes returns how much it is.
	Bytes func() int64
	// Free releases so many bytes or a little more; all of them if there are fewer.
	Free func(bytes int64)
}

// Relieve has the watch free s at each check that finds the disk short, and when a large write fits
// only after that. What was given first goes first, and the rest while it is not enough.
func (w *Watch) Relieve(s Spare) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spares = append(w.spares, s)
}

// Check reports whether writes are allowed, as of the last check of the disk. Errors: [ErrShort],
// [ErrRecovering].
func (w *Watch) Check() error {
	if w == nil {
		return nil
	}
	return w.state.Load().refusal
}

// Look checks the disk and then does the same as [Watch.Check].
func (w *Watch) Look() error {
	if w == nil {
		return nil
	}
	w.look(ErrShort)
	return w.Check()
}

// Room checks the disk, and returns an error if a write of size bytes would make it short. While
// the free space cannot be determined, the last known state decides. Errors: [ErrShort],
// [ErrRecovering], [ErrNoRoom].
func (w *Watch) Room(size int64) error {
	if err := w.Look(); w == nil || err != nil {
		return err
	}
	s := w.state.Load()
	if s.failed == nil && s.free < s.limit+uint64(size) {
		s = w.makeRoom(s.limit + uint64(size))
	}
	if s.failed == nil && s.free < s.limit+uint64(size) {
		return fmt.Errorf("%w: %d bytes to write, %d free, %d of them reserved", ErrNoRoom, size, s.free,
			s.limit)
	}
	return nil
}

// Free returns the free space at the last check, [math.MaxUint64] if the file system does not
// report it.
func (w *Watch) Free() uint64 { return w.state.Load().free }

// Total returns the size of the disk at the last check, 0 if the file system does not report it.
func (w *Watch) Total() uint64 { return w.state.Load().total }

// Err returns why the free space could not be determined, nil if it could.
func (w *Watch) Err() error { return w.state.Load().failed }

// FS returns the file system of the folder. If a write fails for lack of space, it deletes the
// ballast and repeats the write once.
func (w *Watch) FS() vfs.FS { return vfs.OnDiskFull(w.fs, w.full) }

// full is called inside a write that failed for lack of space.
func (w *Watch) full() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.giveUpBallast()
	s := w.measure(ErrShort) // what was free at the last check has been written since
	s.refusal = w.shortage(ErrShort, &s)
	w.set(s)
}

// look measures the free space and sets the state. refusal is the error of writes if the disk has
// become short.
func (w *Watch) look(refusal error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.measure(refusal)
	if s.refusal != nil {
		s = w.reliefLocked(&s, resumeAt(s.limit), refusal)
	}
	if s.failed == nil {
		w.trim(&s)
	}
	w.set(s)
}

// makeRoom releases space until enough bytes are free, if there is so much to spare, and returns
// the state after that.
func (w *Watch) makeRoom(enough uint64) *state {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.measure(ErrShort)
	could := s.free
	for _, spare := range w.spares {
		could += uint64(max(0, spare.Bytes()))
	}
	if could >= enough {
		s = w.reliefLocked(&s, enough, ErrShort)
	}
	w.set(s)
	return &s
}

// reliefLocked releases space while less than enough is free, and returns the state after that.
func (w *Watch) reliefLocked(s *state, enough uint64, refusal error) state {
	now := *s
	for _, spare := range w.spares {
		if now.failed != nil || now.free >= enough {
			break
		}
		spare.Free(int64(min(enough-now.free, math.MaxInt64)))
		now = w.measure(refusal)
	}
	return now
}

// measure reads the free space and returns the state that follows the present one. The caller holds
// mu.
func (w *Watch) measure(refusal error) state {
	before := w.state.Load()
	usage, err := w.fs.GetDiskUsage(w.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return state{free: ^uint64(0)}
	}
	if err != nil {
		return state{
			free: before.free, total: before.total, refusal: before.refusal, failed: fmt.Errorf("get free space: %w", err),
		}
	}
	s := state{free: usage.AvailBytes, total: usage.TotalBytes}
	s.limit = w.limit(usage.TotalBytes)
	enough := s.limit
	if before.refusal != nil {
		enough = resumeAt(s.limit)
		if errors.Is(before.refusal, ErrRecovering) {
			refusal = ErrRecovering
		} else {
			refusal = ErrShort
		}
	}
	if s.free < enough {
		s.refusal = w.shortage(refusal, &s)
	}
	return s
}

// resumeAt is the free space at which a short disk accepts writes again.
func resumeAt(limit uint64) uint64 { return limit + limit/4 }

// shortage returns the error for a state with too little space.
func (w *Watch) shortage(kind error, s *state) error {
	return &shortage{kind: kind, dir: w.dir, free: s.free, needed: resumeAt(s.limit)}
}

// shortage is [ErrShort] or [ErrRecovering] with the measured values.
type shortage struct {
	kind         error
	dir          string
	free, needed uint64
}

func (s *shortage) Error() string {
	on := s.dir
	on = cmp.Or(on, "the disk")
	return fmt.Sprintf("space: writes are paused: %s free on %s, %s needed; reads continue", Size(s.free), on,
		Size(s.needed))
}

// Is reports whether target is the kind.
func (s *shortage) Is(target error) bool { return target == s.kind }

func (w *Watch) limit(totalBytes uint64) uint64 {
	if w.options.MinBytes > 0 {
		return uint64(w.options.MinBytes)
	}
	return MinFree(totalBytes)
}

// MinFree is the free space below which a disk of a size in bytes is short by default.
func MinFree(totalBytes uint64) uint64 { return min(minBytes, totalBytes/100*minPercent) }

// trim deletes the ballast when the disk is almost full, and creates it when enough room is left
// after that. The caller holds mu.
func (w *Watch) trim(s *state) {
	size := min(uint64(w.options.BallastBytes), s.limit/2)
	switch {
	case s.refusal != nil && s.free < size:
		w.giveUpBallast()
	case s.refusal == nil && !w.ballast.there && size > 0 && s.free > s.limit+s.limit/4+size:
		if err := w.ballast.create(int64(size)); err != nil {
			w.log.Warn("failed to create the ballast file", "error", err)
		}
	}
}

func (w *Watch) giveUpBallast() {
	if !w.ballast.there {
		return
	}
	w.log.Warn("the disk is full: deleting the ballast file")
	if err := w.ballast.remove(); err != nil {
		w.log.Error("failed to delete the ballast file", "error", err)
	}
}

// set stores s as the state and logs a change. The caller holds mu.
func (w *Watch) set(s state) {
	before := w.state.Swap(&s)
	switch {
	case s.failed != nil && before.failed == nil:
		w.log.Error("failed to determine the free disk space", "error", s.failed)
	case s.refusal != nil && before.refusal == nil:
		w.log.Error("short of disk space: refusing writes", "folder", w.dir, "free", s.free, "needed", resumeAt(s.limit))
	case s.refusal == nil && before.refusal != nil:
		w.log.Info("enough disk space again: accepting writes", "free", s.free)
	}
}
