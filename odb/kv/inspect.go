package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// inspect looks for damage in the manifest and in the logs of dir that Pebble would take for the end of the file, which loses
// what comes after it without a word. It returns an ErrCorrupt.
//
// A crash leaves the last log and the manifest with an end in which anything can lie. What tells damage from it:
//
//   - The manifest is synced after every record, so a crash tears at most the last one: no intact chunk follows.
//   - A log that is not the last was closed before the next was begun, so it has its end mark.
//   - The last log and the manifest reach at least as far as any statement of the witness says.
//
// What was synced within restAfter before a crash has no statement behind it; damage exactly there looks like the crash.
func inspect(fileSystem vfs.FS, dir string) error {
	names, err := fileSystem.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	marked, err := atomicfs.ReadMarker(fileSystem, dir, "manifest")
	if err != nil {
		return err
	}
	logs := logNumbers(names)
	number, ok := manifestNumber(marked)
	if !ok {
		if len(logs) > 0 || slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".sst") }) {
			return fmt.Errorf("%w: %s names no manifest", ErrCorrupt, dir)
		}
		return nil
	}
	manifestEnd, oldest, err := inspectManifest(fileSystem, fileSystem.PathJoin(dir, marked))
	if err != nil {
		return err
	}
	logs = slices.DeleteFunc(logs, func(n uint32) bool { return n < oldest })
	for i, n := range logs {
		name := fmt.Sprintf("%06d.log", n)
		reached, err := inspectLog(fileSystem, fileSystem.PathJoin(dir, name), n, i == len(logs)-1)
		if err != nil {
			return err
		}
		if synced := syncedBytes(reached, number); manifestEnd < synced {
			return fmt.Errorf("%w: %s ends at %d and was synced to %d", ErrCorrupt, marked, manifestEnd, synced)
		}
	}
	return nil
}

// logNumbers returns the numbers of the logs among names, ascending.
func logNumbers(names []string) []uint32 {
	var numbers []uint32
	for _, name := range names {
		if number, ok := logNumber(name); ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// inspectManifest returns where the intact part of a manifest ends and the oldest log that it says is needed.
func inspectManifest(fileSystem vfs.FS, path string) (end int64, oldest uint32, err error) {
	file, err := fileSystem.Open(path)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	chunks := chunkFile{file: file}
	torn := true
	end, _, err = chunks.walk(func(c chunk) {
		if c.behind {
			torn = false
		} else if number, ok := unflushedLog(c); ok {
			oldest = number
		}
	})
	if err == nil && !torn {
		err = fmt.Errorf("%w: %s at %d", ErrCorrupt, path, end)
	}
	return end, oldest, err
}

// unflushedLog returns the oldest log that is needed, if the version edit that begins in c changes it. The field is the first one
// after the name of the comparer.
func unflushedLog(c chunk) (uint32, bool) {
	const tagComparator, tagLogNumber = 1, 2
	edit := c.payload
	if !c.start {
		return 0, false
	}
	if len(edit) > 1 && edit[0] == tagComparator {
		size, n := binary.Uvarint(edit[1:])
		if n <= 0 || size > uint64(len(edit)-1-n) {
			return 0, false
		}
		edit = edit[1+n+int(size):]
	}
	if len(edit) < 2 || edit[0] != tagLogNumber {
		return 0, false
	}
	number, n := binary.Uvarint(edit[1:])
	return uint32(number), n > 0
}

// inspectLog checks one log and returns the furthest that a statement in it says about a manifest.
func inspectLog(fileSystem vfs.FS, path string, number uint32, last bool) (manifest uint64, err error) {
	file, err := fileSystem.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	chunks := chunkFile{file: file, log: true, number: number}
	var synced int64
	end, clean, err := chunks.walk(func(c chunk) {
		synced = max(synced, c.synced)
		if !c.start {
			return
		}
		if s, ok := decodeStatement(c.payload); ok {
			synced = max(synced, syncedBytes(s.log, number))
			manifest = max(manifest, s.manifest)
		}
	})
	switch {
	case err != nil:
		return 0, err
	case end < synced:
		return 0, fmt.Errorf("%w: %s ends at %d and was synced to %d", ErrCorrupt, path, end, synced)
	case !last && !clean:
		return 0, fmt.Errorf("%w: %s ends at %d without its end mark", ErrCorrupt, path, end)
	}
	return manifest, nil
}
