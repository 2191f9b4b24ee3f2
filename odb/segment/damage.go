package segment

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// Facts that a caller decides on.
var (
	// ErrCorrupt says that stored bytes failed a check.
	ErrCorrupt = errors.New("odb: stored bytes are corrupt")
	// ErrTooLarge says that an object is over a limit, or over what the call holds in memory.
	ErrTooLarge = errors.New("odb: too large")
)

// ErrFormat says that stored bytes are not what their place promises.
var ErrFormat = errors.New("malformed")

// CorruptError is [ErrCorrupt] with its evidence. Object is zero when the damage is in an index or
// a manifest, File is empty when it is not in a file.
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

// damageMax bounds the damage that a DamageLog remembers.
const damageMax = 10_000

// DamageLog counts stored bytes that failed a check, logs each damage once, and remembers what was
// not found healed since. Its methods may be called concurrently.
type DamageLog struct {
	log      *slog.Logger
	MetCount atomic.Uint64 // reads that met damage

	mu     sync.Mutex // guards what follows
	set    map[CorruptError]uint64
	checks uint64 // have begun; set has how many there were when damage was met last
}

// NewDamageLog returns an empty one, which logs to log.
func NewDamageLog(log *slog.Logger) *DamageLog {
	return &DamageLog{log: log, set: make(map[CorruptError]uint64)}
}

// Corrupt reports stored bytes of layer that failed a check, and returns the error that says so.
func (d *DamageLog) Corrupt(layer LayerID, id object.ID, format string, args ...any) error {
	return d.met(&CorruptError{Object: id, Layer: layer, Why: fmt.Sprintf(format, args...)})
}

// Wrap turns the failed check of stored bytes into a reported [CorruptError]; file is empty when
// they lie in none. Other errors, such as those of a file system, stay what they are.
func (d *DamageLog) Wrap(file string, layer LayerID, id object.ID, err error) error {
	for _, check := range []error{ErrFormat, pack.ErrCorrupt, delta.ErrCorrupt, delta.ErrTooLarge, object.ErrMalformed} {
		if errors.Is(err, check) {
			return d.met(&CorruptError{Object: id, Layer: layer, File: file, Why: err.Error()})
		}
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

// isNew takes in damage, and reports whether it was not met before. What does not fit any more is
// never new.
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

// BeginCheck begins a check of everything. Its caller calls sound when it has found nothing: damage
// that was met before, and not since, is forgotten.
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

// KnownCount is how many different things are known to be wrong.
func (d *DamageLog) KnownCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.set)
}
