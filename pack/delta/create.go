package delta

import (
	"bytes"

	"packhorse/pack/invariants"
)

// Create appends to dst a delta that builds target from the index's base, if it takes at most
// sizeMax bytes; else ok is false and dst is returned unchanged, perhaps in larger memory.
//
// The result depends on base and target only. target is only read. The time is linear in its
// length, apart from the bounded chains.
func (x *Index) Create(dst, target []byte, sizeMax int) (delta []byte, ok bool) {
	e := newEncoder(dst, len(x.base), target, sizeMax)
	if !x.encode(&e, 0, len(target)) {
		return e.dst[:len(dst)], false
	}
	if invariants.Enabled {
		check(x.base, target, e.dst[len(dst):], sizeMax)
	}
	return e.dst, true
}

// Between appends to dst a delta that builds target from base, as [Index.Create] does for an index
// of base; x becomes an index of a part of base. The common beginning and end are copied without a
// search. For the middle of the target, the search in base reaches no further around than the
// length of that middle. For two versions of a file this takes a fraction of the time; content that
// has moved far is inserted.
func (x *Index) Between(dst, base, target []byte, sizeMax int) (delta []byte, ok bool) {
	start := worthCopy(matchLength(base, target))
	end := worthCopy(matchLengthBack(base[start:], target[start:]))
	if len(base) > offsetMax {
		start, end = 0, 0 // copies do not reach as far
	}
	e := newEncoder(dst, len(base), target, sizeMax)
	e.copy(0, start)
	around := len(target) - start - end
	from := max(0, start-around)
	x.Reset(base[from:min(len(base), len(base)-end+around)])
	if !x.encode(&e, from, len(target)-end) {
		return e.dst[:len(dst)], false
	}
	e.copy(len(base)-end, end)
	if len(e.dst) > e.limit {
		return e.dst[:len(dst)], false
	}
	if invariants.Enabled {
		check(base, target, e.dst[len(dst):], sizeMax)
	}
	return e.dst, true
}

// check checks that a delta makes target of base, and that its length is within the limit.
func check(base, target, delta []byte, sizeMax int) {
	made, err := Apply(nil, base, delta, int64(len(target)))
	invariants.Check(err == nil && bytes.Equal(made, target),
		"delta: %d bytes made of %d are not those that were meant: %v", len(target), len(base), err)
	invariants.Check(len(delta) <= sizeMax, "delta: %d bytes, at most %d", len(delta), sizeMax)
}

// worthCopy is length, or 0 if a copy would take about as much as an insertion.
func worthCopy(length int) int {
	if length < blockSize {
		return 0
	}
	return length
}

// encode encodes the target up to end. Copies of the base lie shift bytes further on in the base of
// the whole delta. It reports whether the limit was enough.
func (x *Index) encode(e *encoder, shift, end int) bool {
	target, at := e.target[:end], e.done
	for {
		// Unmatched bytes must be inserted, so that the search ends where they alone exceed the limit.
		last := e.done + e.limit - len(e.dst) + 1
		at = x.skip(target, at, last)
		if at >= last {
			return false
		}
		if at+blockSize > len(target) {
			break
		}
		offset, length := x.longest(target[at:])
		if length == 0 {
			at++
			continue
		}
		for offset > 0 && at > e.done && x.base[offset-1] == target[at-1] {
			offset, at, length = offset-1, at-1, length+1
		}
		length = min(length, offsetMax-offset-shift)
		e.insert(at)
		e.copy(offset+shift, length)
		at = e.done
		if len(e.dst) > e.limit {
			return false
		}
	}
	e.insert(len(target))
	return len(e.dst) <= e.limit
}

// encoder appends instructions; target[:done] is encoded.
type encoder struct {
	dst, target []byte
	limit, done int
}

// newEncoder begins a delta of at most sizeMax bytes behind dst.
func newEncoder(dst []byte, baseSize int, target []byte, sizeMax int) encoder {
	sizeMax = min(sizeMax, len(target)+len(target)/insertMax+2*sizeBytesMax+1) // size if everything is inserted
	return encoder{
		dst: appendSize(appendSize(dst, int64(baseSize)), int64(len(target))), limit: len(dst) + sizeMax, target: target,
	}
}

// insert encodes the target literally up to end.
func (e *encoder) insert(end int) {
	for e.done < end {
		n := min(end-e.done, insertMax)
		e.dst = append(e.dst, byte(n))
		e.dst = append(e.dst, e.target[e.done:e.done+n]...)
		e.done += n
		if len(e.dst) > e.limit {
			return
		}
	}
}

// copy encodes the next length bytes of the target as copies from the base, of at most 64 KiB each:
// every reader of packs accepts that.
func (e *encoder) copy(offset, length int) {
	for length > 0 {
		n := min(length, copySizeAll)
		e.dst = appendCopy(e.dst, offset, n)
		e.done += n
		offset += n
		length -= n
	}
}

func appendCopy(dst []byte, offset, n int) []byte {
	at := len(dst)
	dst = append(dst, copyFlag)
	for i := range 4 {
		if c := byte(offset >> (8 * i)); c != 0 {
			dst[at] |= 1 << i
			dst = append(dst, c)
		}
	}
	if n == copySizeAll {
		return dst
	}
	for i := range 2 {
		if c := byte(n >> (8 * i)); c != 0 {
			dst[at] |= 0x10 << i
			dst = append(dst, c)
		}
	}
	return dst
}
