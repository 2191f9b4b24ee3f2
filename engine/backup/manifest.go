package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// A manifest is the file "backup-NUMBER.manifest", NUMBER in eight digits or more. It is text, a
// line each:
//
//	packhorse backup 2
//	time 2026-01-02T15:04:05Z
//	store ID                    of the store that the backup is of, 32 hexadecimal digits
//	file NAME SIZE SHA-256      a file of pools; these and the next are sorted by name
//	lost NAME                   a file of pools that is not in the backup: it was damaged in the store
//	keys NAME SIZE SHA-256      a file of the key-value store, stored as SHA-256.keys
//	end SHA-256                 of everything above
//
// Version 1 has neither a store nor lost files.
const (
	manifestPrefix = "backup-"
	manifestSuffix = ".manifest"
	keysSuffix     = ".keys"

	kindFile = "file"
	kindLost = "lost"
	kindKeys = "keys"
	lastLine = "end"

	versionLine    = "packhorse backup "
	timeLine       = "time "
	storeLine      = "store "
	currentVersion = 2
)

// head is the part of a manifest before the files.
type head struct {
	version int
	time    time.Time
	store   string // "" in version 1
}

// lineCount is the number of lines of the head.
func (h *head) lineCount() int { return h.version + 1 }

// take reads a line of the head.
func (h *head) take(number int, line string) error {
	var ok bool
	var text string
	var err error
	switch number {
	case 1:
		if text, ok = strings.CutPrefix(line, versionLine); ok {
			h.version, err = strconv.Atoi(text)
			ok = err == nil && h.version >= 1 && h.version <= currentVersion && strconv.Itoa(h.version) == text
		}
	case 2:
		if text, ok = strings.CutPrefix(line, timeLine); ok {
			h.time, err = time.Parse(time.RFC3339, text)
			ok = err == nil && h.time.UTC().Format(time.RFC3339) == text
		}
	default:
		if h.store, ok = strings.CutPrefix(line, storeLine); ok {
			ok = isStoreID(h.store)
		}
	}
	if !ok {
		return fmt.Errorf("%w: line %d is %q", errManifest, number, line)
	}
	return nil
}

// isStoreID reports whether id is written as the id of a store.
func isStoreID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == StoreIDSize && hex.EncodeToString(raw) == id
}

func manifestName(number uint64) string {
	return fmt.Sprintf("%s%08d%s", manifestPrefix, number, manifestSuffix)
}

// numberOf returns the number in a manifest's name.
func numberOf(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, manifestPrefix)
	digits, suffixed := strings.CutSuffix(digits, manifestSuffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, ok && suffixed && err == nil && name == manifestName(number)
}

// numbers returns the backups in a folder, ascending.
func numbers(ctx context.Context, dest file.Store) ([]uint64, error) {
	var found []uint64
	for info, err := range dest.List(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list backups: %w", err)
		}
		if number, ok := numberOf(info.Name); ok {
			found = append(found, number)
		}
	}
	slices.Sort(found)
	return found, nil
}

// entry is a line of a manifest that names a file.
type entry struct {
	kind string // kindFile, kindLost or kindKeys
	name string
	size int64
	sum  sum
}

// stored is the name of the file in the folder of the backup.
func (e *entry) stored() string {
	if e.kind == kindKeys {
		return hex.EncodeToString(e.sum[:]) + keysSuffix
	}
	return e.name
}

func (e *entry) line() string {
	if e.kind == kindLost {
		return fmt.Sprintf("%s %s\n", e.kind, e.name)
	}
	return fmt.Sprintf("%s %s %d %x\n", e.kind, e.name, e.size, e.sum)
}

// parseEntry returns what line wrote.
func parseEntry(line string) (entry, error) {
	var e entry
	fields := strings.Split(line, " ")
	if len(fields) == 2 && fields[0] == kindLost {
		return entry{kind: kindLost, name: fields[1]}, file.CheckName(fields[1])
	}
	if len(fields) != 4 {
		return e, errors.New("is not a manifest line")
	}
	e.kind, e.name = fields[0], fields[1]
	var err error
	switch e.kind {
	case kindFile:
		err = file.CheckName(e.name)
	case kindKeys:
		err = kv.CheckFileName(e.name)
	default:
		err = errors.New("is of no known kind")
	}
	if err != nil {
		return e, err
	}
	if e.size, err = strconv.ParseInt(fields[2], 10, 64); err != nil || e.size < 0 {
		return e, errors.New("has no size")
	}
	digest, err := hex.DecodeString(fields[3])
	if err != nil || len(digest) != len(e.sum) {
		return e, errors.New("has no checksum")
	}
	e.sum = sum(digest)
	if e.line() != line+"\n" {
		return e, errors.New("is not written as packhorse writes it")
	}
	return e, nil
}

// manifestWriter writes a manifest while files are copied. Readers cannot find the manifest before
// it is complete.
type manifestWriter struct {
	out    file.Writer
	buffer *bufio.Writer
	hash   hash.Hash
	settle func(ctx context.Context) error
}

func beginManifest(ctx context.Context, dest file.Store, number uint64, h head) (*manifestWriter, error) {
	name := manifestName(number)
	out, err := dest.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	w := &manifestWriter{out: out, hash: sha256.New(), settle: func(ctx context.Context) error {
		return file.Settle(ctx, dest, name)
	}}
	w.buffer = bufio.NewWriter(io.MultiWriter(out, w.hash))
	_, err = fmt.Fprintf(w.buffer, "%s%d\n%s%s\n%s%s\n",
		versionLine, currentVersion, timeLine, h.time.UTC().Format(time.RFC3339), storeLine, h.store)
	return w, err
}

func (w *manifestWriter) add(e entry) error {
	_, err := w.buffer.WriteString(e.line())
	return err
}

// end makes the backup exist.
func (w *manifestWriter) end(ctx context.Context) error {
	if err := w.buffer.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w.out, "%s %x\n", lastLine, w.hash.Sum(nil)); err != nil {
		return err
	}
	if err := w.out.Seal(ctx); err != nil {
		return err
	}
	return w.settle(ctx)
}

// lineBytesMax is more than any line of a manifest has.
const lineBytesMax = 1 << 10

// errManifest says that a text is no manifest, or no whole one.
var errManifest = errors.New("is not a complete manifest")

// parseManifest walks the lines of a manifest that name files, and fills in h before it yields the
// first one. It verifies syntax and checksum on the way, so entries may be wrong until the walk has
// ended without an error. It holds one line at a time.
func parseManifest(r io.Reader, h *head) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		hash := sha256.New()
		lines := bufio.NewReaderSize(r, lineBytesMax)
		for number := 1; ; number++ {
			text, err := lines.ReadSlice('\n')
			if errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull) {
				err = fmt.Errorf("%w: line %d has no end", errManifest, number)
			}
			if err != nil {
				yield(entry{}, err)
				return
			}
			line := string(text[:len(text)-1])
			if digest, ok := strings.CutPrefix(line, lastLine+" "); ok && number > 1 && number > h.lineCount() {
				if err := endOf(lines, digest, hash); err != nil {
					yield(entry{}, err)
				}
				return
			}
			hash.Write(text)
			if number == 1 || number <= h.lineCount() {
				if err := h.take(number, line); err != nil {
					yield(entry{}, err)
					return
				}
				continue
			}
			e, err := parseEntry(line)
			if err == nil && e.kind == kindLost && h.version < 2 {
				err = errors.New("is of a later version")
			}
			if err != nil {
				err = fmt.Errorf("%w: line %d %w", errManifest, number, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// endOf checks the last line.
func endOf(lines *bufio.Reader, digest string, hash hash.Hash) error {
	if digest != hex.EncodeToString(hash.Sum(nil)) {
		return fmt.Errorf("%w: it fails its checksum", errManifest)
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data after its end", errManifest)
	}
	return nil
}

// entries walks the files that a backup names, and fills in h first.
func entries(ctx context.Context, from file.Store, number uint64, h *head) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		name := manifestName(number)
		stored, err := from.Open(ctx, name)
		if err != nil {
			yield(entry{}, err)
			return
		}
		defer func() { _ = stored.Close() }() // it was read only
		for e, err := range parseManifest(file.NewSectionReader(ctx, stored, 0, stored.Size()), h) {
			switch {
			case err == nil:
				err = ctx.Err()
			case errors.Is(err, errManifest):
				err = &DamagedError{name, err.Error()}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Summary describes a backup.
type Summary struct {
	Number uint64
	Time   time.Time
	// Store is the id of the store that the backup is of, "" when it was made before stores had one.
	Store string
	// FileCount and Bytes are the size of the backup.
	FileCount, Bytes int64
	// LostCount files of pools were damaged in the store, and are not in the backup.
	LostCount int64
	// Damage is why the manifest cannot be read, so that the other fields are unknown, or nil.
	Damage error
}

// summarize reads a manifest to its end. Errors: those of from; damage is in the summary.
func summarize(ctx context.Context, from file.Store, number uint64) (Summary, error) {
	s, h := Summary{Number: number}, new(head)
	for e, err := range entries(ctx, from, number, h) {
		switch {
		case errors.Is(err, ErrDamaged):
			return Summary{Number: number, Damage: err}, nil
		case err != nil:
			return s, err
		case e.kind == kindLost:
			s.LostCount++
		default:
			s.FileCount++
			s.Bytes += e.size
		}
	}
	s.Time, s.Store = h.time, h.store
	return s, nil
}

// List returns the backups of a folder, the oldest first.
func List(ctx context.Context, from file.Store) ([]Summary, error) {
	found, err := numbers(ctx, from)
	if err != nil {
		return nil, err
	}
	var all []Summary
	for _, number := range found {
		s, err := summarize(ctx, from, number)
		if errors.Is(err, file.ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
