package rest

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"packhorse/engine"
	diffs "packhorse/engine/diff"
	"packhorse/engine/diff/lines"
	"packhorse/odb/file"
)

// diffStream writes the answer to a diff. The JSON lists files with a diff apart from files without
// one, so the latter are kept until the end.
type diffStream struct {
	ctx      context.Context // of the answer
	out      *bufio.Writer
	filtered *file.SpillBuffer
	inline   bool
	paged    bool
	entry    []byte // of the file that is being written

	told, kept                  int // files
	files, additions, deletions int64
}

// diffStreamBuffer is the size of a write, while more files follow.
const diffStreamBuffer = 64 << 10

// diffWriters are those of streams that are closed.
var diffWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, diffStreamBuffer) }}

func newDiffStream(ctx context.Context, w io.Writer, filtered *file.SpillBuffer, o engine.DiffOptions) *diffStream {
	out := diffWriters.Get().(*bufio.Writer)
	out.Reset(w)
	return &diffStream{ctx: ctx, out: out, filtered: filtered, inline: o.Inline, paged: o.Limit > 0}
}

// close gives the buffer back. It is called once, after the last use.
func (s *diffStream) close() {
	s.out.Reset(nil)
	diffWriters.Put(s.out)
	s.out = nil
}

func (s *diffStream) write(head []byte, diff *engine.Diff) error {
	fmt.Fprintf(s.out, `%s,"files":[`, head)
	for f, err := range diff.Files(s.out.Flush) {
		if err == nil {
			err = s.file(f)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprint(s.out, `],"filtered_files":[`)
	if _, err := s.filtered.WriteTo(s.out); err != nil {
		return err
	}
	fmt.Fprintf(s.out, `],"stats":{"files":%d,"additions":%d,"deletions":%d,"changes":%d},"complete":%t`,
		s.files, s.additions, s.deletions, s.additions+s.deletions, s.kept == 0)
	s.entry = s.entry[:0]
	if s.paged {
		s.entry = appendPage(s.entry, diff.Next())
	}
	if _, err := s.out.Write(append(s.entry, "}\n"...)); err != nil {
		return err
	}
	return s.out.Flush()
}

// file writes the entry of one file.
func (s *diffStream) file(f *diffs.File) error {
	s.files++
	s.additions += int64(f.Additions)
	s.deletions += int64(f.Deletions)
	if f.Reason != diffs.NotFiltered {
		s.entry = appendDiffEntry(separated(s.entry[:0], &s.kept), f)
		s.entry = appendTextField(s.entry, "reason", string(f.Reason))
		return s.filtered.Write(s.ctx, appendBytes(s.entry, f.Bytes))
	}
	s.entry = appendDiffEntry(separated(s.entry[:0], &s.told), f)
	if f.IsLarge() {
		return s.large(f)
	}
	s.entry = appendField(s.entry, "raw")
	s.entry = appendText(s.entry, f.Raw)
	if !utf8.Valid(f.Raw) {
		s.entry = append(appendField(s.entry, "raw_base64"), '"')
		s.entry = append(base64.StdEncoding.AppendEncode(s.entry, f.Raw), '"')
	}
	if _, err := s.out.Write(s.entry); err != nil {
		return err
	}
	return s.end(f, f.Bytes)
}

// end writes the fields behind the diff of a file.
func (s *diffStream) end(f *diffs.File, size int64) error {
	s.entry = s.entry[:0]
	if s.inline {
		s.entry = append(s.entry, `,"inline":[`...)
		count := 0
		for pair, err := range f.Inline(s.ctx) {
			if err != nil {
				return err
			}
			s.entry = appendPair(separated(s.entry, &count), &pair)
			if len(s.entry) < diffStreamBuffer {
				continue
			}
			if _, err := s.out.Write(s.entry); err != nil {
				return err
			}
			s.entry = s.entry[:0]
		}
		s.entry = append(s.entry, ']')
	}
	_, err := s.out.Write(appendBytes(s.entry, size))
	return err
}

// large writes an entry whose diff is not held: it is written, and its size said behind it.
func (s *diffStream) large(f *diffs.File) error {
	fmt.Fprintf(s.out, `%s"`, appendField(s.entry, "raw"))
	text := textWriter{out: s.out}
	if err := f.WriteRaw(s.ctx, &text); err != nil {
		return err
	}
	if err := text.end(); err != nil {
		return err
	}
	if text.invalid {
		fmt.Fprintf(s.out, `","raw_base64":"`)
		encoder := base64.NewEncoder(base64.StdEncoding, s.out)
		if err := f.WriteRaw(s.ctx, encoder); err != nil {
			return err
		}
		if err := encoder.Close(); err != nil {
			return err
		}
	}
	fmt.Fprint(s.out, `"`)
	return s.end(f, text.size)
}

// separated begins an entry of an array that has count of them.
func separated(dst []byte, count *int) []byte {
	if *count++; *count > 1 {
		return append(dst, ',')
	}
	return dst
}

// appendDiffEntry appends the fields that every file has: docs/api.md, "Diffs".
func appendDiffEntry(dst []byte, f *diffs.File) []byte {
	state, oldPath := string(f.Status), ""
	if f.Status == diffs.Renamed {
		state, oldPath = fmt.Sprintf("R%03d", diffs.Percent(f.Score)), f.Old.Path
	}
	dst = appendTextField(append(dst, '{'), "path", f.Path())
	dst = appendTextField(dst, "state", state)
	dst = appendTextField(dst, "old_path", oldPath)
	return fmt.Appendf(dst, `,"is_eof":%t,"additions":%d,"deletions":%d`, f.EndsInNewline, f.Additions, f.Deletions)
}

// appendPair appends what differs within a pair of lines, which are counted from 1:
// docs/invariants.md 42.
func appendPair(dst []byte, p *lines.Pair) []byte {
	dst = fmt.Appendf(dst, `{"old_line":%d,"new_line":%d,"old":`, p.OldIndex+1, p.NewIndex+1)
	dst = appendRanges(dst, p.Old)
	dst = appendRanges(append(dst, `,"new":`...), p.New)
	return append(dst, '}')
}

func appendRanges(dst []byte, ranges []lines.ByteRange) []byte {
	dst = append(dst, '[')
	for i, r := range ranges {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, "[%d,%d]", r.From, r.To)
	}
	return append(dst, ']')
}

// appendBytes ends an entry with the size of its diff.
func appendBytes(dst []byte, size int64) []byte { return fmt.Appendf(dst, `,"bytes":%d}`, size) }
