package kv

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// inspect looks for damage in the manifest and in the logs of dir that Pebble would take as the end
// of the file, silently losing the rest. It returns an ErrCorrupt, which is a [LossError] if the
// amount of the loss is known.
//
// After a crash the last log and the manifest may end in arbitrary bytes. Three facts distinguish
// damage from that:
//
//   - The manifest is synced after every record, so a crash tears at most the last one: no intact
//     chunk follows.
//   - A log that is not the last was closed before the next was begun, so it has its end mark.
//   - Logs and manifest are at least as long as every statement of the witness says, in a log or in
//     the [mark].
//
// Bytes that were synced after the mark was written, and that no later statement covers, are not
// protected: damage exactly there looks like a crash.
func inspect(dir string, m *mark) error {
	marks, err := m.load()
	if err != nil {
		return err
	}
	names, err := m.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	marked, err := atomicfs.ReadMarker(m.fs, dir, "manifest")
	if err != nil {
		return err
	}
	logs := logNumbers(names)
	found := remains{fs: m.fs, dir: dir, logs: make(map[uint32]int64)}
	var ok bool
	if found.manifest, ok = manifestNumber(marked); !ok {
		if len(logs) > 0 || len(marks) > 0 || slices.ContainsFunc(names, isTable) {
			return fmt.Errorf("%w: %s names no manifest", ErrCorrupt, dir)
		}
		return nil
	}
	if found.manifestEnd, found.oldest, err = inspectManifest(m.fs, m.fs.PathJoin(dir, marked)); err != nil {
		return err
	}
	logs = slices.DeleteFunc(logs, func(n uint32) bool { return n < found.oldest })
	said := make(claims)
	for i, n := range logs {
		if found.logs[n], err = inspectLog(m.fs, found.logPath(n), n, i == len(logs)-1, said); err != nil {
			return err
		}
	}
	if loss := found.missing(said); loss != nil {
		return loss
	}
	said = make(claims)
	for _, s := range marks {
		said.add(s)
	}
	if loss := found.missing(said); loss != nil {
		loss.Mark = m.path()
		return loss
	}
	return nil
}

// claims are how far files are said to be synced.
type claims map[claimed]int64

// claimed is a file about which there are claims.
type claimed struct {
	manifest bool
	number   uint32
}

// add records the claims of s.
func (c claims) add(s statement) {
	c.note(claimed{number: fileOf(s.log)}, syncedBytes(s.log))
	c.note(claimed{manifest: true, number: fileOf(s.manifest)}, syncedBytes(s.manifest))
}

func (c claims) note(file claimed, synced int64) { c[file] = max(c[file], synced) }

// remains is the measured state of a store.
type remains struct {
	fs          vfs.FS
	dir         string
	manifest    uint32
	manifestEnd int64
	oldest      uint32           // log that is needed
	logs        map[uint32]int64 // from the oldest on, and where each ends
}

func (r *remains) logPath(number uint32) string {
	return r.fs.PathJoin(r.dir, fmt.Sprintf("%06d.log", number))
}

// missing returns the part of the claims that the remains do not fulfil, or nil. Logs before the
// oldest one are in tables and may be gone. Other manifests may be gone, too: an older one was
// replaced, and a newer one takes effect only when its name is stored, which a crash may prevent.
func (r *remains) missing(said claims) *LossError {
	files := slices.SortedFunc(maps.Keys(said), func(a, b claimed) int { return cmp.Compare(a.number, b.number) })
	for _, file := range files {
		synced := said[file]
		switch {
		case synced == 0:
		case file.manifest && file.number == r.manifest && r.manifestEnd < synced:
			path := r.fs.PathJoin(r.dir, fmt.Sprintf("MANIFEST-%06d", file.number))
			return &LossError{Path: path, Synced: synced, Intact: r.manifestEnd}
		case !file.manifest && file.number >= r.oldest:
			if end, ok := r.logs[file.number]; !ok {
				return &LossError{Path: r.logPath(file.number), Synced: synced, Intact: -1}
			} else if end < synced {
				return &LossError{Path: r.logPath(file.number), Synced: synced, Intact: end}
			}
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

// inspectManifest returns where the intact part of a manifest ends and the oldest log that it says
// is needed.
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

// unflushedLog returns the oldest log that is needed, if the version edit that begins in c changes
// it. The field is the first one after the name of the comparer.
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

// inspectLog returns where the intact part of a log ends, and records the statements in it.
func inspectLog(fileSystem vfs.FS, path string, number uint32, last bool, said claims) (end int64, err error) {
	file, err := fileSystem.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	chunks := chunkFile{file: file, log: true, number: number}
	end, clean, err := chunks.walk(func(c chunk) {
		said.note(claimed{number: number}, c.synced)
		if !c.start {
			return
		}
		if s, ok := decodeStatement(c.payload); ok {
			said.add(s)
		}
	})
	if err == nil && !last && !clean {
		err = fmt.Errorf("%w: %s ends at %d without its end mark", ErrCorrupt, path, end)
	}
	return end, err
}
