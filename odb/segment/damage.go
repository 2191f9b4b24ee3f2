package segment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"packhorse/odb/file"
	"packhorse/pack/object"
)

// Errors that a caller decides on.
var (
	// ErrCorrupt says that stored bytes failed a check.
	ErrCorrupt = errors.New("odb: stored bytes are corrupt")
	// ErrTooLarge says that an object exceeds a limit, or the memory that the call may use.
	ErrTooLarge = errors.New("odb: too large")
)

// ErrGone says that a layer was replaced and then removed by another server's maintenance: a new
// view reads the same objects from other layers.
var ErrGone = errors.New("odb: a layer was removed while it was read")

// Unreadable reports whether err says that what was read is damaged, or was removed: a caller that
// can do without it goes on.
func Unreadable(err error) bool { return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrGone) }

// ErrFormat says that stored bytes do not have the format of their place.
var ErrFormat = errors.New("malformed")

// CorruptError is [ErrCorrupt] with its evidence. Object is zero when the damage is in an index or
// a manifest. File is the name of the damaged file, empty when the bytes lie in none. Why is the
// failed check.
type CorruptError struct {
	Object object.ID
	Layer  LayerID
	File   string
	Why    string
}

func (e *CorruptError) Error() string {
	place := "layer " + e.Layer.String()
	if e.File != "" {
		place = "file " + e.File
	}
	if e.Object.IsZero() {
		return fmt.Sprintf("odb: %s is corrupt: %s", place, e.Why)
	}
	return fmt.Sprintf("odb: object %s in %s is corrupt: %s", e.Object, place, e.Why)
}

// Is reports whether target is [ErrCorrupt].
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// damageMax bounds the entries that a DamageLog remembers.
const damageMax = 10_000

// DamageLog counts reads of stored bytes that failed a check, logs each damage once, and remembers
// it until a complete check no longer finds it. Its methods may be called concurrently.
type DamageLog struct {
	log      *slog.Logger
	used     func(context.Context, LayerID) (bool, error)
	MetCount atomic.Uint64 // reads that met damage

	mu     sync.Mutex // guards what follows
	set    map[CorruptError]uint64
	checks uint64 // have begun; set has how many there were when damage was met last
}

// NewDamageLog returns an empty DamageLog that logs to log. It calls used with a layer or auxiliary
// file whose file is missing: a file that a manifest names is damage, another one was removed.
func NewDamageLog(log *slog.Logger, used func(context.Context, LayerID) (bool, error)) *DamageLog {
	return &DamageLog{log: log, used: used, set: make(map[CorruptError]uint64)}
}

// Missing reports a file that is not there, if it should be. Errors: [ErrGone], [ErrCorrupt].
func (d *DamageLog) Missing(ctx context.Context, name string, layer LayerID) error {
	used, err := d.used(ctx, layer)
	switch {
	case err != nil:
		return fmt.Errorf("look for the users of file %s: %w", name, err)
	case used:
		return d.met(&CorruptError{Layer: layer, File: name, Why: "the file is missing"})
	default:
		return fmt.Errorf("read file %s: %w", name, ErrGone)
	}
}

// Corrupt reports stored bytes of layer that failed a check, and returns a [CorruptError].
func (d *DamageLog) Corrupt(layer LayerID, id object.ID, format string, args ...any) error {
	return d.met(&CorruptError{Object: id, Layer: layer, Why: fmt.Sprintf(format, args...)})
}

// Wrap turns the failed check of stored bytes into a reported [CorruptError]; file is empty when
// they lie in none. Of a file that was removed while it was open it returns what
// [DamageLog.Missing] does, and other errors, such as those of a file system, with context.
func (d *DamageLog) Wrap(name string, layer LayerID, id object.ID, err error) error {
	if isDamage(err) {
		return d.met(&CorruptError{Object: id, Layer: layer, File: name, Why: err.Error()})
	}
	if errors.Is(err, file.ErrNotFound) {
		return d.Missing(context.Background(), name, layer) // the read may have ended meanwhile
	}
	return fmt.Errorf("read layer %s: %w", layer, err)
}

// met counts damage that a read has met, and logs it the first time.
func (d *DamageLog) met(damage *CorruptError) error {
	d.MetCount.Add(1)
	if d.isNew(damage) {
		attrs := []any{"layer", damage.Layer.String(), "error", damage.Why}
		if damage.File != "" {
			attrs = append(attrs, "file", damage.File)
		}
		if !damage.Object.IsZero() {
			attrs = append(attrs, "object", damage.Object.String())
		}
		d.log.Error("corrupt bytes", attrs...)
	}
	return damage
}

// isNew records damage and reports whether it is seen for the first time. Damage beyond damageMax
// is never new.
func (d *DamageLog) isNew(damage *CorruptError) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.set[*damage]
	if !known && len(d.set) >= damageMax {
		return false
	}
	d.set[*damage] = d.checks
	return !known
}

// BeginCheck begins a check of the whole store. A caller whose check found nothing calls sound,
// which forgets the damage that no read has met since the check began.
func (d *DamageLog) BeginCheck() (sound func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks++
	begun := d.checks
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		maps.DeleteFunc(d.set, func(_ CorruptError, met uint64) bool { return met < begun })
	}
}

// KnownCount returns the number of different damages that are remembered.
func (d *DamageLog) KnownCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.set)
}
