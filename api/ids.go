package api

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync/atomic"
)

// ids makes request ids: a random part of this process and a count.
type ids struct {
	prefix string
	count  atomic.Uint64
}

func newIDs() *ids {
	var b [6]byte
	_, _ = rand.Read(b[:]) // it never fails
	return &ids{prefix: hex.EncodeToString(b[:]) + "-"}
}

func (i *ids) next() string {
	return i.prefix + strconv.FormatUint(i.count.Add(1), 36)
}
