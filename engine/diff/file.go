package diff

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"iter"
	"path"
	"sync"

	"packhorse/engine/diff/lines"
)

// FilterReason says why the diff of a file is left out unless the file is selected by its path:
// docs/api.md, "Diffs".
type FilterReason string

// Reasons to leave out diffs.
const (
	NotFiltered    FilterReason = ""
	FilteredSize   FilterReason = "size"
	FilteredLines  FilterReason = "lines"
	FilteredBinary FilterReason = "binary"
	FilteredLock   FilterReason = "lock"
)

const (
	// fileBytesMax is the size of a file above which it is listed without computing a diff.
	fileBytesMax = 512_000
	// fileLinesMax bounds the changed lines of a diff that is shown.
	fileLinesMax = 2_000
	// largeBytes is the size of both sides together from which a file is compared when its turn has
	// come, alone, and its diff goes out without being held.
	largeBytes = 2 << 20
)

// lockFiles are the names of files that package managers write.
var lockFiles = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range []string{
		"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb", "deno.lock",
		"Cargo.lock",
		"go.sum", "Gemfile.lock", "composer.lock", "poetry.lock", "Pipfile.lock", "uv.lock", "pdm.lock", "mix.lock",
		"pubspec.lock",
		"Podfile.lock", "Package.resolved", "flake.lock", "gradle.lockfile", "packages.lock.json",
	} {
		names[name] = true
	}
	return names
}()

// File is a changed file. It is valid until the next one is requested.
type File struct {
	Change
	// Reason says why the diff is left out.
	Reason FilterReason
	// Bytes is the size of the diff; 0 if it was not computed, or for a large file, whose diff is
	// only computed when it is written.
	Bytes                int64
	Additions, Deletions int
	// EndsInNewline is about the new content, or about the old one of a deleted file.
	EndsInNewline bool
	// Raw is the diff, unless the file is filtered or large.
	Raw []byte

	pairs []lines.Pair // of a file that is not large
	text  *Text        // of a large file
}

// IsLarge reports whether the diff is to be had from WriteRaw instead of Raw.
func (f *File) IsLarge() bool { return f.text != nil }

// WriteRaw writes the diff of a large file, the same bytes each time.
func (f *File) WriteRaw(ctx context.Context, w io.Writer) error { return f.text.Write(ctx, w) }

// Inline walks the pairs of changed lines with the differences within them. There are none unless
// they were requested, and none for contents that are not compared by lines.
func (f *File) Inline(ctx context.Context) iter.Seq2[lines.Pair, error] {
	if f.text != nil {
		return pairsOf(ctx, f.text)
	}
	return func(yield func(lines.Pair, error) bool) {
		for _, p := range f.pairs {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func pairsOf(ctx context.Context, text *Text) iter.Seq2[lines.Pair, error] {
	before, after, changes, ok := text.Lines()
	if !ok {
		return func(func(lines.Pair, error) bool) {}
	}
	return lines.Pairs(ctx, before, after, changes)
}

// settings are what holds for all files of a comparison.
type settings struct {
	selected bool // files were selected by their paths, and are shown whatever their kind
	inline   bool // the differences within changed lines are computed, too
	text     TextOptions
}

// sizes returns the sizes of the two sides; entries other than blobs have none.
func sizes(ctx context.Context, objects Objects, c *Change) (before, after int64, err error) {
	for _, side := range []struct {
		entry *Entry
		size  *int64
	}{{&c.Old, &before}, {&c.New, &after}} {
		if !side.entry.Exists() || side.entry.Mode.IsGitlink() {
			continue
		}
		info, err := objects.Stat(ctx, side.entry.ID)
		if err != nil {
			return 0, 0, err
		}
		*side.size = info.Size
	}
	return before, after, nil
}

// compare writes the diff of a file to raw, and decides whether it is shown.
func (f *File) compare(ctx context.Context, objects Objects, s *settings, raw *bytes.Buffer) error {
	before, after, err := sizes(ctx, objects, &f.Change)
	if err != nil {
		return err
	}
	if !s.selected && max(before, after) > fileBytesMax {
		f.Reason = FilteredSize
		side := &f.New
		if !side.Exists() {
			side = &f.Old
		}
		f.EndsInNewline, err = EndsInNewline(ctx, objects, side)
		return err
	}
	text, err := NewText(ctx, objects, &f.Change, s.text)
	if err != nil {
		return err
	}
	f.take(text)
	if f.Reason = f.filter(text, s); f.Reason == NotFiltered {
		err = writeText(ctx, raw, text)
		f.Raw, f.Bytes = raw.Bytes(), int64(raw.Len())
		if s.inline && err == nil {
			err = f.compareLines(ctx, text)
		}
		return err
	}
	var size byteCount
	err = writeText(ctx, &size, text)
	f.Bytes = int64(size)
	return err
}

func (f *File) compareLines(ctx context.Context, text *Text) error {
	for p, err := range pairsOf(ctx, text) {
		if err != nil {
			return err
		}
		f.pairs = append(f.pairs, p)
	}
	return nil
}

// heldBytes is the approximate memory of a compared file.
func (f *File) heldBytes() int {
	const pairBytes, rangeBytes = 64, 16
	size := len(f.Raw)
	for _, p := range f.pairs {
		size += pairBytes + rangeBytes*(len(p.Old)+len(p.New))
	}
	return size
}

func (f *File) take(text *Text) {
	f.Additions, f.Deletions, f.EndsInNewline = text.Additions, text.Deletions, text.EndsInNewline
}

func (f *File) filter(text *Text, s *settings) FilterReason {
	switch {
	case s.selected:
		return NotFiltered
	case lockFiles[path.Base(f.Path())]:
		return FilteredLock
	case text.Binary:
		return FilteredBinary
	case text.Additions+text.Deletions > fileLinesMax:
		return FilteredLines
	default:
		return NotFiltered
	}
}

// hunkBuffers holds the buffers that hunks are written through.
var hunkBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 32<<10) }}

func writeText(ctx context.Context, w io.Writer, text *Text) error {
	buffer := hunkBuffers.Get().(*bufio.Writer)
	defer hunkBuffers.Put(buffer)
	buffer.Reset(w)
	err := text.Write(ctx, buffer)
	if err == nil {
		err = buffer.Flush()
	}
	buffer.Reset(nil)
	return err
}

// byteCount counts the bytes written to it.
type byteCount int64

func (n *byteCount) Write(p []byte) (int, error) {
	*n += byteCount(len(p))
	return len(p), nil
}
