package ingest

import "math/bits"

// buffers holds memory for reuse, for one goroutine. Reuse saves the allocation, the zeroing and
// the page faults for every inflated object of a pack.
type buffers struct {
	free [bufferClassCount][][]byte
	held int64
}

const (
	// Buffers come in four sizes to the power of two, from 1 KiB to 32 MiB.
	bufferSizeMin    = 1 << 10
	bufferClassCount = 4*15 + 1
	// buffersHeldMax bounds the unused bytes.
	buffersHeldMax = 8 << 20
)

// bufferClass returns the smallest class that holds size bytes, and its size.
func bufferClass(size int) (class, classSize int) {
	if size <= bufferSizeMin {
		return 0, bufferSizeMin
	}
	shift := max(bits.Len(uint(size-1))-3, 0) // leaves 4 to 7
	quarters := (size-1)>>shift + 1           // 5 to 8
	return 4*(shift-8) + quarters - 4, quarters << shift
}

// get returns an empty slice with room for size bytes.
func (b *buffers) get(size int) []byte {
	class, classSize := bufferClass(size)
	if class >= len(b.free) {
		return make([]byte, 0, size)
	}
	for class := class; class < min(class+classesTried, len(b.free)); class++ {
		if last := len(b.free[class]) - 1; last >= 0 {
			buf := b.free[class][last]
			b.free[class][last] = nil
			b.free[class] = b.free[class][:last]
			b.held -= int64(cap(buf))
			return buf[:0]
		}
	}
	return make([]byte, 0, classSize)
}

// classesTried is the number of classes that are searched for a free buffer: the found one is at
// most twice as large as needed.
const classesTried = 5

// put takes back a buffer of get. It leaves other memory to the garbage collector.
func (b *buffers) put(buf []byte) {
	class, classSize := bufferClass(cap(buf))
	if class >= len(b.free) || cap(buf) != classSize || b.held+int64(classSize) > buffersHeldMax {
		return
	}
	b.free[class] = append(b.free[class], buf)
	b.held += int64(classSize)
}
