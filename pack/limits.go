package pack

import (
	"errors"
	"fmt"
)

// ErrLimit is matched by every [LimitError].
var ErrLimit = errors.New("pack: limit exceeded")

// LimitError names the limit that a pack exceeds. Value is the value of the pack, actual or
// claimed, Max the limit.
type LimitError struct {
	Limit      string // "object size", "object count", "pack size" or "inflated size"
	Value, Max int64
}

// Error names the limit and both values.
func (e *LimitError) Error() string {
	return fmt.Sprintf("pack: %s %d exceeds the limit of %d", e.Limit, e.Value, e.Max)
}

// Is matches [ErrLimit].
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// Limits bounds what a [Reader] accepts. A zero field means its default.
type Limits struct {
	ObjectSizeMax int64 // inflated size of one entry
	CountMax      int64 // entries
	PackSizeMax   int64 // bytes of the pack
	// InflatedMax and InflatedRatioMax bound the sum of all inflated entries together: the sum is
	// refused when it is above InflatedMax and also above InflatedRatioMax times the bytes of the pack
	// read so far.
	InflatedMax      int64
	InflatedRatioMax int64
}

// The defaults of [Limits].
const (
	ObjectSizeMax    = 4 << 30
	CountMax         = 5_000_000
	PackSizeMax      = 16 << 30
	InflatedMax      = 20 << 30
	InflatedRatioMax = 200
)

func (l Limits) withDefaults() Limits {
	orDefault := func(field *int64, value int64) {
		if *field == 0 {
			*field = value
		}
	}
	orDefault(&l.ObjectSizeMax, ObjectSizeMax)
	orDefault(&l.CountMax, CountMax)
	orDefault(&l.PackSizeMax, PackSizeMax)
	orDefault(&l.InflatedMax, InflatedMax)
	orDefault(&l.InflatedRatioMax, InflatedRatioMax)
	return l
}

func checkLimit(limit string, value, most int64) error {
	if value > most {
		return &LimitError{Limit: limit, Value: value, Max: most}
	}
	return nil
}

// checkInflated judges a sum of inflated bytes after packed bytes of pack.
func (l Limits) checkInflated(inflated, packed int64) error {
	if inflated <= l.InflatedMax || inflated/l.InflatedRatioMax < packed {
		return nil
	}
	return &LimitError{Limit: "inflated size", Value: inflated, Max: max(l.InflatedMax, packed*l.InflatedRatioMax)}
}
