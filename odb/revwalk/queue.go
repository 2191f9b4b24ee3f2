package revwalk

// queued is a commit in a Queue with the key and the order that decide its place.
type queued struct {
	key   int64 // the larger comes out first
	order uint32
	n     int32
}

// Queue returns commits by descending key, and those of equal keys in the order of insertion, as
// git's lists do. The zero value is empty.
type Queue struct {
	heap  []queued
	order uint32
}

// Len returns the number of commits in the queue.
func (q *Queue) Len() int { return len(q.heap) }

// firstKey returns the key of the first commit; the queue must not be empty.
func (q *Queue) firstKey() int64 { return q.heap[0].key }

// Push adds commit n with a key.
func (q *Queue) Push(n int32, key int64) {
	q.heap = append(q.heap, queued{key: key, order: q.order, n: n})
	q.order++
	child := len(q.heap) - 1
	for child > 0 {
		parent := (child - 1) / 2
		if !q.heap[child].before(&q.heap[parent]) {
			break
		}
		q.heap[child], q.heap[parent] = q.heap[parent], q.heap[child]
		child = parent
	}
}

// Pop removes and returns the commit with the largest key. The queue must not be empty.
func (q *Queue) Pop() int32 {
	first, last := q.heap[0].n, len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	parent := 0
	for {
		child := 2*parent + 1
		if child >= last {
			return first
		}
		if child+1 < last && q.heap[child+1].before(&q.heap[child]) {
			child++
		}
		if !q.heap[child].before(&q.heap[parent]) {
			return first
		}
		q.heap[child], q.heap[parent] = q.heap[parent], q.heap[child]
		parent = child
	}
}

func (a *queued) before(b *queued) bool {
	if a.key != b.key {
		return a.key > b.key
	}
	return a.order < b.order
}
