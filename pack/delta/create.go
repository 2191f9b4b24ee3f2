package delta

// Create appends to dst a delta that builds target from the index's base, if it takes at most sizeMax bytes; else ok is false and dst is
// returned as it was.
//
// The result depends on base and target only. target is only read. The time is linear in its length, give or take the bounded chains.
func (x *Index) Create(dst, target []byte, sizeMax int) (delta []byte, ok bool) {
	sizeMax = min(sizeMax, len(target)+len(target)/insertMax+2*sizeBytesMax+1) // what inserting everything takes
	e := encoder{dst: appendSize(appendSize(dst, int64(len(x.base))), int64(len(target))), limit: len(dst) + sizeMax, target: target}
	at := 0
	for {
		// What is not matched must be inserted, so that the search ends where that alone exceeds the limit.
		end := e.done + e.limit - len(e.dst) + 1
		at = x.skip(target, at, end)
		if at >= end {
			return dst, false
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
		length = min(length, offsetMax-offset)
		e.insert(at)
		e.copy(offset, length)
		at = e.done
		if len(e.dst) > e.limit {
			return dst, false
		}
	}
	e.insert(len(target))
	if len(e.dst) > e.limit {
		return dst, false
	}
	return e.dst, true
}

// encoder appends instructions; target[:done] is encoded.
type encoder struct {
	dst, target []byte
	limit, done int
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

// copy encodes the next length bytes of the target as copies from the base, of 64 KiB each: what every reader of packs takes.
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
