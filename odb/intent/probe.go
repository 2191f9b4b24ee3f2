package intent

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"packhorse/odb/kv"
)

const (
	// probeSuffix is that of the names of files that a store is tried with.
	probeSuffix = ".probe"
	// probeTime is how long a collector leaves such a file alone.
	probeTime = time.Hour
)

// IsProbe reports whether a file is one of [Probe].
func IsProbe(name string) bool { return strings.HasSuffix(name, probeSuffix) }

// ProbeName returns the name of a new file to try a store with. What is left of it is found by a
// listing only.
func ProbeName() string { return hex.EncodeToString(newKey()[1:]) + probeSuffix }

// Probe calls try with the name of a new file, which try writes and removes. What is left of it
// when this process is killed is left to a collector. try takes less than an hour.
func Probe(ctx context.Context, keys kv.Store, try func(name string) error) error {
	key := newKey()
	r := row{server: nobody, files: []noted{{name: ProbeName()}}}
	value := r.encode()
	b := kv.NewBatch()
	b.Put(key, value)
	if err := apply(ctx, keys, b); err != nil {
		return err
	}
	if err := try(r.files[0].name); err != nil {
		return err // something may be left
	}
	b = kv.NewBatch()
	b.Require(key, value)
	b.Delete(key)
	if err := apply(ctx, keys, b); !errors.Is(err, kv.ErrConflict) {
		return err
	}
	return nil // a collector was quicker
}
