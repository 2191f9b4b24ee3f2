package object

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/pjbgf/sha1cd"
)

// ErrCollision says that content was made to collide with other content under SHA-1; it is never
// stored.
var ErrCollision = errors.New("object: content attempts a SHA-1 collision")

// ErrSize says that a [Hasher] got more or fewer bytes than announced.
var ErrSize = errors.New("object: content does not have the stated size")

var hashers = sync.Pool{New: func() any { return newHasher() }}

// Hash returns the ID of the object of type t with content data. Errors: [ErrCollision].
func Hash(t Type, data []byte) (ID, error) {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	h.Reset(t, int64(len(data)))
	h.sha.Write(data)
	h.rest = 0
	return h.Sum()
}

// Hasher computes an object's ID from content that arrives in pieces. It is an [io.Writer] whose
// Write never fails.
type Hasher struct {
	sha  sha1cd.CollisionResistantHash
	rest int64
	buf  []byte
}

// NewHasher returns a Hasher for an object of type t and size bytes.
func NewHasher(t Type, size int64) *Hasher {
	h := newHasher()
	h.Reset(t, size)
	return h
}

func newHasher() *Hasher {
	return &Hasher{sha: sha1cd.New().(sha1cd.CollisionResistantHash), buf: make([]byte, 0, 64)}
}

// Reset starts over with another object.
func (h *Hasher) Reset(t Type, size int64) {
	h.sha.Reset()
	h.rest = size
	h.buf = AppendHashHeader(h.buf[:0], t, size)
	h.sha.Write(h.buf)
}

// Write adds content.
func (h *Hasher) Write(p []byte) (int, error) {
	h.rest -= int64(len(p))
	return h.sha.Write(p)
}

// Sum returns the ID. Errors: [ErrCollision], [ErrSize].
func (h *Hasher) Sum() (ID, error) {
	if h.rest != 0 {
		return ZeroID, fmt.Errorf("%w: off by %d bytes", ErrSize, -h.rest)
	}
	sum, collision := h.sha.CollisionResistantSum(h.buf[:0])
	if collision {
		return ZeroID, ErrCollision
	}
	return ID(sum), nil
}

// AppendHashHeader appends the header of the hashed content, "<type> <size>\0", to dst.
func AppendHashHeader(dst []byte, t Type, size int64) []byte {
	dst = append(dst, t.String()...)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, size, 10)
	return append(dst, 0)
}
