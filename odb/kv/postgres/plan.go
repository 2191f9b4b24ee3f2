package postgres

import (
	"bytes"
	"slices"

	"packhorse/odb/kv"
)

// statementBytesMax bounds the keys and values of one statement, unless that is a single pair.
const statementBytesMax = 4 << 20

// plan is a batch in the order in which the database gets it. Its memory is the batch's.
type plan struct {
	// checks has at least one element, and preconditions that fit one statement are one. They ascend.
	checks []check
	// holds are keys that must be absent and that the batch does not put, ascending: rows hold them
	// until the commit.
	holds [][]byte
	// steps are the operations.
	steps []step
	size  int
}

// check is preconditions of one statement.
type check struct {
	keys, values [][]byte // of what is required, ascending
	absent       [][]byte // and put by the batch, which holds them
	held         [][]byte // and not put
	size         int
}

// step is operations of one statement, which have no key in common.
type step struct {
	kind         kv.OperationKind
	keys, values [][]byte // a range has one of each: start and end
	size         int
}

// planOf returns the plan of a batch.
func planOf(batch *kv.Batch) *plan {
	p := &plan{size: batch.Size()}
	put := p.addSteps(batch)
	p.addChecks(batch, put)
	return p
}

// isOne reports whether a single statement does all of the plan.
func (p *plan) isOne() bool {
	size := p.checks[0].size
	if len(p.steps) > 0 {
		size += p.steps[0].size
	}
	return len(p.checks) == 1 && len(p.steps) <= 1 && len(p.holds) == 0 && size <= statementBytesMax
}

// addSteps adds the operations, and returns the keys that the batch puts at any time.
//
// Between ranges only the last operation on a key counts, so that a statement meets each row once.
func (p *plan) addSteps(batch *kv.Batch) map[string]struct{} {
	put := make(map[string]struct{})
	last := make(map[string]int) // index in run of the operation that counts
	var run []kv.Operation
	flush := func() {
		p.addRun(run, last)
		run = run[:0]
		clear(last)
	}
	for op := range batch.Operations() {
		if op.Kind == kv.OperationDeleteRange {
			flush()
			p.steps = append(p.steps, step{
				kind: op.Kind, keys: [][]byte{op.Key}, values: [][]byte{op.End}, size: len(op.Key) + len(op.End),
			})
			continue
		}
		if op.Kind == kv.OperationPut {
			put[string(op.Key)] = struct{}{}
		}
		last[string(op.Key)] = len(run)
		run = append(run, op)
	}
	flush()
	return put
}

// addRun adds the operations between two ranges: what is deleted, then what is put.
func (p *plan) addRun(run []kv.Operation, last map[string]int) {
	final := make([]kv.Operation, 0, len(last))
	for i, op := range run {
		if last[string(op.Key)] == i {
			final = append(final, op)
		}
	}
	slices.SortFunc(final, func(a, b kv.Operation) int { return bytes.Compare(a.Key, b.Key) })
	for _, kind := range []kv.OperationKind{kv.OperationDelete, kv.OperationPut} {
		current := step{kind: kind}
		for _, op := range final {
			if op.Kind != kind {
				continue
			}
			size := len(op.Key) + len(op.Value)
			if current.size+size > statementBytesMax && len(current.keys) > 0 {
				p.steps = append(p.steps, current)
				current = step{kind: kind}
			}
			current.keys, current.values = append(current.keys, op.Key), append(current.values, op.Value)
			current.size += size
		}
		if len(current.keys) > 0 {
			p.steps = append(p.steps, current)
		}
	}
}

// addChecks adds the preconditions; put are the keys that the batch puts.
func (p *plan) addChecks(batch *kv.Batch, put map[string]struct{}) {
	conditions := slices.SortedFunc(batch.Preconditions(), func(a, b kv.Precondition) int {
		return bytes.Compare(a.Key, b.Key)
	})
	var current check
	for _, c := range conditions {
		size := len(c.Key) + len(c.Value)
		if current.size+size > statementBytesMax && current.size > 0 {
			p.checks = append(p.checks, current)
			current = check{}
		}
		current.size += size
		_, isPut := put[string(c.Key)]
		switch {
		case !c.Absent:
			current.keys, current.values = append(current.keys, c.Key), append(current.values, c.Value)
		case isPut:
			current.absent = append(current.absent, c.Key)
		default:
			current.held = append(current.held, c.Key)
			if len(p.holds) == 0 || !bytes.Equal(p.holds[len(p.holds)-1], c.Key) {
				p.holds = append(p.holds, c.Key)
			}
		}
	}
	p.checks = append(p.checks, current)
}
