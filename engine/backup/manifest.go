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
	"strconv"
	"strings"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// A manifest is the file "backup-NUMBER.manifest", NUMBER in eight digits or more. It is text, a line each:
//
//	packhorse backup 1
//	time 2026-01-02T15:04:05Z
//	file NAME SIZE SHA-256      a file of pools; these are sorted by name
//	keys NAME SIZE SHA-256      a file of the key-value store, stored as SHA-256.keys
//	end SHA-256                 of everything above
const (
	manifestPrefix = "backup-"
	manifestSuffix = ".manifest"
	keysSuffix     = ".keys"

	kindFile = "file"
	kindKeys = "keys"
	lastLine = "end"
)

// headLines is how many lines are before the files, and head what they begin with.
const headLines = 2

var head = [headLines]string{"packhorse backup 1", "time "}

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

// newest returns the number of the newest backup. Errors: [ErrNone].
func newest(ctx context.Context, dest file.Store) (uint64, error) {
	var highest uint64
	for info, err := range dest.List(ctx) {
		if err != nil {
			return 0, fmt.Errorf("list backups: %w", err)
		}
		if number, ok := numberOf(info.Name); ok {
			highest = max(highest, number)
		}
	}
	if highest == 0 {
		return 0, ErrNone
	}
	return highest, nil
}

// entry is a line of a manifest that names a file.
type entry struct {
	kind string // kindFile or kindKeys
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

func (e *entry) line() string { return fmt.Sprintf("%s %s %d %x\n", e.kind, e.name, e.size, e.sum) }

// parseEntry returns what line wrote.
func parseEntry(line string) (entry, error) {
	var e entry
	fields := strings.Split(line, " ")
	if len(fields) != 4 {
		return e, errors.New("is no line of a manifest")
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

// manifestWriter writes a manifest while files are copied. It is found by nobody before its end.
type manifestWriter struct {
	out    file.Writer
	buffer *bufio.Writer
	hash   hash.Hash
	settle func(ctx context.Context) error
}

func beginManifest(ctx context.Context, dest file.Store, number uint64, now time.Time) (*manifestWriter, error) {
	name := manifestName(number)
	out, err := dest.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	w := &manifestWriter{out: out, hash: sha256.New(), settle: func(ctx context.Context) error { return dest.Settle(ctx, name) }}
	w.buffer = bufio.NewWriter(io.MultiWriter(out, w.hash))
	_, err = fmt.Fprintf(w.buffer, "%s\n%s%s\n", head[0], head[1], now.UTC().Format(time.RFC3339))
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
var errManifest = errors.New("is no whole manifest")

// ParseManifest walks the lines of a manifest that name files. Its form and its checksum are verified as it goes: what it yields may be
// wrong until the walk has ended without an error. It holds one line at a time.
func ParseManifest(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range parseManifest(r) {
			if !yield(strings.TrimSuffix(e.line(), "\n"), err) || err != nil {
				return
			}
		}
	}
}

func parseManifest(r io.Reader) iter.Seq2[entry, error] {
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
			if digest, ok := strings.CutPrefix(line, lastLine+" "); ok && number > headLines {
				if err := endOf(lines, digest, hash); err != nil {
					yield(entry{}, err)
				}
				return
			}
			hash.Write(text)
			if number <= headLines {
				if !strings.HasPrefix(line, head[number-1]) {
					yield(entry{}, fmt.Errorf("%w: line %d does not begin with %q", errManifest, number, head[number-1]))
					return
				}
				continue
			}
			e, err := parseEntry(line)
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
		return fmt.Errorf("%w: it goes on after its end", errManifest)
	}
	return nil
}

// entries walks the files that a backup names.
func entries(ctx context.Context, from file.Store, number uint64) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		name := manifestName(number)
		stored, err := from.Open(ctx, name)
		if err != nil {
			yield(entry{}, err)
			return
		}
		defer func() { _ = stored.Close() }() // it was read only
		for e, err := range parseManifest(io.NewSectionReader(stored, 0, stored.Size())) {
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

// verifyManifest reads a manifest to its end.
func verifyManifest(ctx context.Context, from file.Store, number uint64) error {
	for _, err := range entries(ctx, from, number) {
		if err != nil {
			return err
		}
	}
	return nil
}
