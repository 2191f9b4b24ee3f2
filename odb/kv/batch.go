package kv

import (
	"bytes"
	"iter"
)

// Batch collects operations and the preconditions under which they become visible. It belongs to no
// store.
//
// Operations take effect in the order of their calls: a Put after a DeleteRange that covers its key
// stays, one before it does not. Preconditions refer to the state before the batch. Arguments are
// copied. A batch may not be used concurrently.
//
// Beyond a limit of the contract a batch ignores further calls, so that its memory stays bounded;
// Apply then returns the error of Err.
type Batch struct {
	data       []byte
	operations []record
	required   []record
	rewinds    *uint64
	err        error
}

// record is an operation or a precondition whose key and second part are in Batch.data.
type record struct {
	kind   OperationKind
	absent bool
	start  int
	middle int
	end    int
}

// OperationKind is the kind of an operation of a batch.
type OperationKind uint8

// The operations.
const (
	OperationPut OperationKind = iota + 1
	OperationDelete
	OperationDeleteRange
)

// Operation is one write of a batch, as an implementation of Store sees it. Its memory belongs to
// the batch.
type Operation struct {
	Kind OperationKind
	// Key is the key, or the start of a range.
	Key []byte
	// Value is the value to put.
	Value []byte
	// End is the exclusive end of a range.
	End []byte
}

// Precondition is a condition that must hold for a batch to become visible. Its memory belongs to
// the batch.
type Precondition struct {
	Key []byte
	// Value is the required value of the key, byte for byte.
	Value []byte
	// Absent asks for no value instead.
	Absent bool
}

// NewBatch returns an empty batch.
func NewBatch() *Batch { return new(Batch) }

// Put stores value under key.
func (b *Batch) Put(key, value []byte) {
	if len(value) > ValueBytesMax {
		b.fail(&LimitError{What: "value size", Got: len(value), Max: ValueBytesMax})
	}
	b.operations = b.add(b.operations, record{kind: OperationPut}, key, value)
}

// Delete removes key, which need not exist.
func (b *Batch) Delete(key []byte) {
	b.operations = b.add(b.operations, record{kind: OperationDelete}, key, nil)
}

// DeleteRange removes every key with start <= key < end. A range without keys between its ends is
// empty.
func (b *Batch) DeleteRange(start, end []byte) {
	if len(end) > KeyBytesMax {
		b.fail(&LimitError{What: "key size", Got: len(end), Max: KeyBytesMax})
	}
	if bytes.Compare(start, end) < 0 {
		b.operations = b.add(b.operations, record{kind: OperationDeleteRange}, start, end)
	}
}

// Require makes the batch fail with ErrConflict unless key holds exactly value.
func (b *Batch) Require(key, value []byte) {
	if len(value) > ValueBytesMax {
		b.fail(&LimitError{What: "value size", Got: len(value), Max: ValueBytesMax})
	}
	b.required = b.add(b.required, record{}, key, value)
}

// RequireAbsent makes the batch fail with ErrConflict if key holds a value.
func (b *Batch) RequireAbsent(key []byte) {
	b.required = b.add(b.required, record{absent: true}, key, nil)
}

// RequireRewinds makes the batch fail with ErrConflict if the store is a [Rewinder] that has been
// rewound more often than n times when it applies the batch: whatever the caller has in memory may
// be lost, and rows that look the same may speak of something else.
func (b *Batch) RequireRewinds(n uint64) { b.rewinds = &n }

// AllowsRewinds reports whether the batch may be applied by a store that has been rewound n times.
func (b *Batch) AllowsRewinds(n uint64) bool { return b.rewinds == nil || *b.rewinds >= n }

// Append adds the operations and preconditions of another batch, in their order.
func (b *Batch) Append(other *Batch) {
	for p := range other.Preconditions() {
		b.required = b.add(b.required, record{absent: p.Absent}, p.Key, p.Value)
	}
	for op := range other.Operations() {
		second := op.Value
		if op.Kind == OperationDeleteRange {
			second = op.End
		}
		b.operations = b.add(b.operations, record{kind: op.Kind}, op.Key, second)
	}
	if other.rewinds != nil && b.AllowsRewinds(*other.rewinds+1) {
		b.rewinds = other.rewinds
	}
	if other.err != nil {
		b.fail(other.err)
	}
}

// Size returns the sum of the sizes of all keys and values in the batch, preconditions included.
func (b *Batch) Size() int { return len(b.data) }

// Count returns the number of operations and preconditions.
func (b *Batch) Count() int { return len(b.operations) + len(b.required) }

// Err returns the first refusal, a [LimitError] or [ErrEmptyKey], or nil.
func (b *Batch) Err() error { return b.err }

// Operations walks the operations in their order.
func (b *Batch) Operations() iter.Seq[Operation] {
	return func(yield func(Operation) bool) {
		for _, r := range b.operations {
			op := Operation{Kind: r.kind, Key: b.data[r.start:r.middle:r.middle]}
			second := b.data[r.middle:r.end:r.end]
			if r.kind == OperationDeleteRange {
				op.End = second
			} else {
				op.Value = second
			}
			if !yield(op) {
				return
			}
		}
	}
}

// Preconditions walks the preconditions in their order.
func (b *Batch) Preconditions() iter.Seq[Precondition] {
	return func(yield func(Precondition) bool) {
		for _, r := range b.required {
			if !yield(Precondition{
				Key: b.data[r.start:r.middle:r.middle], Value: b.data[r.middle:r.end:r.end], Absent: r.absent,
			}) {
				return
			}
		}
	}
}

// add appends r with its two parts to list, unless that would exceed a limit.
func (b *Batch) add(list []record, r record, key, second []byte) []record {
	size := len(b.data) + len(key) + len(second)
	switch {
	case b.err != nil:
	case len(key) == 0 && r.kind != OperationDeleteRange:
		b.fail(ErrEmptyKey)
	case len(key) > KeyBytesMax:
		b.fail(&LimitError{What: "key size", Got: len(key), Max: KeyBytesMax})
	case size > BatchBytesMax:
		b.fail(&LimitError{What: "batch size", Got: size, Max: BatchBytesMax})
	case b.Count() == BatchCountMax:
		b.fail(&LimitError{What: "batch count", Got: b.Count() + 1, Max: BatchCountMax})
	default:
		r.start = len(b.data)
		b.data = append(b.data, key...)
		r.middle = len(b.data)
		b.data = append(b.data, second...)
		r.end = len(b.data)
		return append(list, r)
	}
	return list
}

// fail remembers the first refusal.
func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}
