// Package grep finds the lines of a tree's files that match a pattern, as `git grep -I` does.
//
// Start at [Compile], then [Search]. Files are searched in the order of trees, on all cores;
// symbolic links, submodules and binary files are skipped. A pattern is RE2, which takes linear
// time for any pattern; a DFA finds the lines, and package regexp where it would be too large.
// Where every match contains one of a few literals, only lines with one of
// these are matched, and [Trigrams] spares later searches most of the files; what [StoredTrigrams]
// made of a file spares the first one too. Results come in pages of bounded size, and a search can
// be continued at any line.
package grep

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"sync"
	"time"

	"packhorse/engine/pathspec"
	"packhorse/odb"
	"packhorse/odb/inorder"
	"packhorse/pack/object"
)

// LineBytesMax is the length of the part of a line that is returned.
const LineBytesMax = 1 << 20

// Options are the pattern, the files to search, and the bounds of a page. Pattern and Filter are
// required.
type Options struct {
	Pattern *Pattern
	Filter  *pathspec.Filter
	// Before and After are the numbers of context lines around each match. Overlapping lines are
	// returned once.
	Before, After int
	// MatchesMax bounds the matches that are returned for each file; 0 means no bound.
	MatchesMax int
	// FilesMax, LinesMax and BytesMax bound a page; by default 20, 10,000, and 4 MiB.
	FilesMax, LinesMax, BytesMax int
	// Patience bounds the time that a page takes; 0 does not.
	Patience time.Duration
	// From is where the search begins, zero at the beginning.
	From Position
	// Known, if not nil, spares later searches of the same files.
	Known *Trigrams
}

func (o *Options) setDefaults() {
	o.FilesMax = cmp.Or(o.FilesMax, 20)
	o.LinesMax = cmp.Or(o.LinesMax, 10_000)
	o.BytesMax = cmp.Or(o.BytesMax, 4<<20)
}

// Position is a place in a search: all lines up to Line of the file at Path have been returned, and
// all files before it.
type Position struct {
	Path string
	Line int64
}

// wholeFile is the position behind all lines of a file.
const wholeFile = math.MaxInt64

// File is a file with lines that match.
type File struct {
	Path  string
	Lines []Line
}

// Page is a page of search results.
type Page struct {
	Files []File
	// Next is the position where the search continues, if More.
	Next Position
	More bool
}

// found is the result of one file.
type found struct {
	path  string
	lines []Line
	full  bool
}

// Search searches the tree root from a position on, until the page is full or the tree ends. It
// works on its own goroutines, which have ended when it returns.
//
// Errors: [pathspec.ErrDepth] and those of view.
func Search(ctx context.Context, view *odb.View, root object.ID, o Options) (Page, error) {
	o.setDefaults()
	s := searcher{view: view, options: &o}
	s.memory.begin(o.Known, view.Pool(), o.Pattern)
	if err := s.memory.open(ctx, view); err != nil {
		return Page{}, err
	}
	defer s.memory.close()
	var page Page
	began := time.Now()
	lines, size := 0, 0
	options := inorder.Options{Ahead: filesAhead * runtime.GOMAXPROCS(0)}
	for f, err := range inorder.Map(ctx, s.files(ctx, root), options, s.search) {
		if err != nil {
			return Page{}, err
		}
		if len(f.lines) == 0 {
			if o.Patience > 0 && time.Since(began) > o.Patience {
				page.Next, page.More = Position{f.path, wholeFile}, true
				return page, nil
			}
			continue
		}
		if len(page.Files) == o.FilesMax {
			page.More = true
			return page, nil
		}
		told := 0
		for ; told < len(f.lines) && lines < o.LinesMax; told++ {
			if size += len(f.lines[told].Text); size > o.BytesMax && lines > 0 {
				break
			}
			lines++
		}
		if told > 0 {
			page.Files = append(page.Files, File{Path: f.path, Lines: f.lines[:told]})
			page.Next = Position{f.path, f.lines[told-1].Number}
		}
		if told < len(f.lines) || f.full {
			page.More = true
			return page, nil
		}
	}
	page.Next = Position{}
	return page, nil
}

// filesAhead bounds the files in progress for each core. Each holds its content, of up to 32 MiB,
// while it is searched, and its lines until their turn comes.
const filesAhead = 4

// searcher lives as long as a search.
type searcher struct {
	view    *odb.View
	options *Options
	memory  recollection
}

// files walks the files to search.
func (s *searcher) files(ctx context.Context, root object.ID) iter.Seq2[pathspec.Entry, error] {
	return func(yield func(pathspec.Entry, error) bool) {
		for entry, err := range pathspec.Walk(ctx, s.view, root, s.options.Filter, s.options.From.Path) {
			if err == nil && (!entry.Mode.IsRegular() || entry.Path == s.options.From.Path && s.options.From.Line == wholeFile) {
				continue
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

// scanners keep their buffers from one file to the next.
var scanners = sync.Pool{New: func() any { return new(scanner) }}

// bufferHeldMax bounds the memory of a file that is held for the next one.
const bufferHeldMax = 1 << 20

func (s *scanner) release() {
	s.lines, s.finder.text, s.finder.hay = nil, nil, nil
	if cap(s.buffer) > bufferHeldMax {
		s.buffer = nil
	}
	scanners.Put(s)
}

// search searches one file. It is called by several goroutines.
func (s *searcher) search(ctx context.Context, entry pathspec.Entry) (found, error) {
	known, mayMatch, err := s.memory.recall(ctx, entry.ID)
	if err != nil || !mayMatch {
		return found{path: entry.Path}, err
	}
	skip := int64(0)
	if entry.Path == s.options.From.Path {
		skip = s.options.From.Line
	}
	scan := scanners.Get().(*scanner)
	defer scan.release()
	scan.reset(s.options, skip)
	_, text, err := s.view.ReadInto(ctx, entry.ID, &scan.buffer)
	switch {
	case errors.Is(err, odb.ErrTooLarge):
		err = s.searchLarge(ctx, scan, entry.ID)
	case err == nil:
		binary := isBinary(text)
		if !known {
			mayMatch = s.memory.learn(entry.ID, text, binary)
		}
		if mayMatch && !binary {
			err = searchText(ctx, scan, text)
		}
	}
	if err != nil {
		return found{}, fmt.Errorf("search %q: %w", entry.Path, err)
	}
	return found{path: entry.Path, lines: scan.lines, full: scan.full}, nil
}

// isBinary reports whether git treats a file as binary: its first 8,000 bytes contain a NUL.
func isBinary(text []byte) bool {
	const first = 8000
	return bytes.IndexByte(text[:min(len(text), first)], 0) >= 0
}

// blockBytes is the number of bytes searched between two checks of the context.
const blockBytes = 1 << 20

// searchText searches a text in blocks of whole lines.
func searchText(ctx context.Context, scan *scanner, text []byte) error {
	for len(text) > 0 {
		end := min(blockBytes, len(text))
		end += lineEnd(text[end:], 0)
		more, err := scan.block(ctx, text[:end])
		if !more || err != nil {
			return err
		}
		text = text[end:]
	}
	return nil
}

// errEnough ends the reading of a file of which nothing more is wanted.
var errEnough = errors.New("grep: enough")

// searchLarge searches a file that is not held in memory.
func (s *searcher) searchLarge(ctx context.Context, scan *scanner, id object.ID) error {
	content, err := s.view.Open(ctx, id)
	if err != nil {
		return err
	}
	w := &window{ctx: ctx, scan: scan}
	_, err = content.WriteTo(w)
	if err == nil && len(w.text) > 0 {
		_, err = scan.block(ctx, w.text)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, content.Close())
}

// lineHeldMax bounds the buffered part of a line of a large file: a longer one is searched in
// pieces, as if they were lines.
const lineHeldMax = 32 << 20

// window collects writes into blocks of whole lines and searches them.
type window struct {
	ctx    context.Context
	scan   *scanner
	text   []byte // not searched yet
	looked bool   // for a NUL at the beginning
}

// Write implements io.Writer.
func (w *window) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	if len(w.text) < blockBytes {
		return len(p), nil
	}
	if !w.looked && isBinary(w.text) {
		return 0, errEnough
	}
	w.looked = true
	end := bytes.LastIndexByte(w.text, '\n') + 1
	if end == 0 && len(w.text) < lineHeldMax {
		return len(p), nil
	}
	if end == 0 {
		end = len(w.text)
	}
	more, err := w.scan.block(w.ctx, w.text[:end])
	if err == nil && !more {
		err = errEnough
	}
	w.text = append(w.text[:0], w.text[end:]...)
	return len(p), err
}
