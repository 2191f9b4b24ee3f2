package segment

import (
	"context"
	"crypto/sha1" // the trailer of a packfile is a SHA-1
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"packhorse/odb/fair"
	"packhorse/odb/file"
	"packhorse/odb/rescue"
	"packhorse/pack"
	"packhorse/pack/object"
)

// Row describes an object of a segment to its writer.
type Row struct {
	ID         object.ID
	Type       object.Type // of the object, also when the entry is a delta
	Size       int64       // of the object
	Offset     int64       // of the entry in the data region
	PackedSize int64       // of the entry, header included
	Base       int64       // the offset of the delta base's entry in the same segment; -1 when the entry is whole
	CRC32      uint32      // IEEE, of the entry as packed, header included
}

// Writer writes a segment file and the graph file that belongs to it. The order of calls is: data
// by Write, WriteAt, Rewind, AppendWhole and AppendDelta; Complete, unless the written bytes are a
// complete pack with its trailer; AddRow and AddGraph in any order; Finish. Abort is safe at any
// time and removes the files.
//
// ReadAt may be called concurrently with everything; the rest belongs to one goroutine.
type Writer struct {
	env   *Env
	ID    LayerID
	aside LayerID // of the graph file
	file  file.Writer
	size  int64 // of the data region; the file may hold more, which a Rewind left
	index *indexTable
	graph *graphTable // nil until there is a commit

	finished bool // the file is sealed
	done     bool

	summary     *Summary // nil if unknown
	Provisional bool     // delta-incomplete, see sectionProvisional
}

// NewWriter begins a segment. It is invisible until it is registered.
func NewWriter(ctx context.Context, env *Env) (*Writer, error) {
	id, aside := NewLayerID(), NewLayerID()
	file.Reserve(ctx, env.Files, FileName(id), GraphFile(aside))
	f, err := env.Files.Create(ctx, FileName(id))
	if err != nil {
		return nil, fmt.Errorf("begin segment: %w", err)
	}
	return &Writer{env: env, ID: id, aside: aside, file: f, index: newIndexTable(env.Files)}, nil
}

// Write appends bytes of the data region: a pack as it arrives, header and trailer included.
func (w *Writer) Write(p []byte) (int, error) {
	over := min(int64(len(p)), w.file.Size()-w.size)
	if over > 0 {
		if _, err := w.file.WriteAt(p[:over], w.size); err != nil {
			return 0, fmt.Errorf("write segment: %w", err)
		}
	}
	if _, err := w.file.Write(p[over:]); err != nil {
		return 0, fmt.Errorf("write segment: %w", err)
	}
	w.size += int64(len(p))
	return len(p), nil
}

// ReadAt reads written bytes.
func (w *Writer) ReadAt(p []byte, off int64) (int, error) { return w.file.ReadAt(p, off) }

// WriteAt replaces written bytes, such as the header of a pack.
func (w *Writer) WriteAt(p []byte, off int64) (int, error) { return w.file.WriteAt(p, off) }

// Size returns the number of bytes in the data region so far.
func (w *Writer) Size() int64 { return w.size }

// Rewind discards the data region from off on, such as the trailer of a thin pack. The next Write
// continues there.
func (w *Writer) Rewind(off int64) { w.size = off }

// Region returns a reader of the entries written so far.
func (w *Writer) Region() Region {
	return Region{env: w.env, Layer: w.ID, Data: written{w}}
}

// written reads what a Writer has written, which waits for nothing.
type written struct{ w *Writer }

func (r written) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	return r.w.ReadAt(p, off)
}

// Level is the compression level of objects that are written one at a time: maintenance has more
// time than a request.
const Level = pack.LevelFast

// AppendWhole writes an object as a whole deflated entry, such as the base that completes a thin
// pack. It returns the row, which the caller adds.
func (w *Writer) AppendWhole(id object.ID, t object.Type, data []byte) (Row, error) {
	header := pack.EntryHeader{Kind: pack.EntryKind(t), Size: int64(len(data))}
	return w.appendEntry(header, data, Level, Row{ID: id, Type: t, Size: int64(len(data)), Base: -1})
}

// AppendDelta writes an object of size bytes as the delta that builds it from an object of the same
// type, whose entry begins at base. It returns the row, which the caller adds.
func (w *Writer) AppendDelta(id object.ID, t object.Type, size int64, delta []byte, base int64) (Row, error) {
	header := pack.EntryHeader{Kind: pack.KindOFSDelta, Size: int64(len(delta)), BaseDistance: w.size - base}
	level := Level
	if len(delta) <= storedDeltaMax {
		level = pack.LevelStore
	}
	return w.appendEntry(header, delta, level, Row{ID: id, Type: t, Size: size, Base: base})
}

// storedDeltaMax is the size of a delta up to which it is not compressed: most of it is an ID.
const storedDeltaMax = 64

// appendEntry writes an entry, compressed at a level, and completes its row.
func (w *Writer) appendEntry(header pack.EntryHeader, content []byte, level int, row Row) (Row, error) {
	buffer := packedBuffers.Get().(*[]byte)
	defer packedBuffers.Put(buffer)
	packed := pack.Deflate(header.Append((*buffer)[:0]), content, level)
	*buffer = packed
	row.Offset, row.PackedSize, row.CRC32 = w.size, int64(len(packed)), crc32.ChecksumIEEE(packed)
	_, err := w.Write(packed)
	return row, err
}

// Complete writes the pack header for count objects, reads the data region once more for its
// checksum and appends that trailer. The checksum begins with the count, which is known only at the
// end. git reads a second time for the same reason.
func (w *Writer) Complete(ctx context.Context, count int) error {
	header := pack.Header{Version: 2, Count: uint32(count)}.Append(nil)
	if _, err := w.WriteAt(header, 0); err != nil {
		return fmt.Errorf("write pack header: %w", err)
	}
	sum := sha1.New()
	buffer := copyBuffers.Get().(*[CopyBufferSize]byte)
	defer copyBuffers.Put(buffer)
	for done := int64(0); done < w.size; {
		if err := fair.Pause(ctx); err != nil {
			return err
		}
		piece := buffer[:min(CopyBufferSize, w.size-done)]
		if err := ReadFullAt(w, piece, done); err != nil {
			return fmt.Errorf("read segment back: %w", err)
		}
		sum.Write(piece)
		done += int64(len(piece))
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// AddRow adds an object to the index. Rows that exceed the memory go to scratch files in sorted
// runs.
func (w *Writer) AddRow(ctx context.Context, row Row) error {
	return w.index.add(ctx, &row)
}

// Rows walks the rows added so far, by ID. It may be walked again.
func (w *Writer) Rows(ctx context.Context) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for record, err := range w.index.rows.All(ctx) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			if !yield(decodeRow(record), nil) {
				return
			}
		}
	}
}

// AddBlocks adds the table of a block stream to the index.
func (w *Writer) AddBlocks(id object.ID, table pack.BlockTable, sums []uint32) {
	w.index.addStream(id, table, sums)
}

// AddGraph adds a commit to the graph file.
func (w *Writer) AddGraph(ctx context.Context, id object.ID, row *GraphRow) error {
	if w.graph == nil {
		w.graph = newGraphTable(w.env.Files)
	}
	return w.graph.add(ctx, id, row)
}

// SetSummary sets the summary of the segment; nil means that it is unknown.
func (w *Writer) SetSummary(s *Summary) { w.summary = s }

// Finish writes the index and the graph file, and makes both files durable. The rows must describe
// the data region without gaps or overlaps, and every base must be a row. The writer cannot be used
// afterwards, also after an error, which removes the files.
func (w *Writer) Finish(ctx context.Context) (sealed *Sealed, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("finish segment: %w", err), w.Abort())
		}
	}()
	sealed = &Sealed{ID: w.ID, DataBytes: w.size, Count: w.index.rows.Count}
	var group rescue.Group // the two files become durable at the same time, in turns of their own
	group.Go(func() error { return fair.Do(fair.Apart(ctx), w.finishFile) })
	if w.graph != nil {
		group.Go(func() error {
			return fair.Do(fair.Apart(ctx), func(ctx context.Context) (err error) {
				if sealed.GraphBytes, err = w.graph.write(ctx, w.env.Files, w.aside); err == nil {
					sealed.Graph = w.aside
				}
				return err
			})
		})
	}
	if err := fair.Rest(ctx, group.Wait); err != nil {
		return nil, errors.Join(err, w.removeSealed(ctx, sealed))
	}
	w.done = true
	return sealed, errors.Join(w.index.close(), w.closeGraph())
}

// removeSealed removes the file that was finished when the other one failed.
func (w *Writer) removeSealed(ctx context.Context, sealed *Sealed) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	if sealed.Graph != (LayerID{}) {
		err = w.env.Files.Delete(ctx, GraphFile(sealed.Graph))
	}
	if w.finished {
		err = errors.Join(err, w.env.Files.Delete(ctx, FileName(w.ID)))
	}
	return err
}

// finishFile appends index and footer and seals the file.
func (w *Writer) finishFile(ctx context.Context) error {
	dataSize := w.size
	sections := NewSectionWriter(w, w.ID, dataSize)
	if err := w.index.write(ctx, sections); err != nil {
		return err
	}
	if w.summary != nil {
		w.summary.write(sections)
	}
	if w.Provisional {
		sections.Begin(sectionProvisional)
		sections.Add([]byte{1})
	}
	footer, err := sections.Finish(w.index.rows.Count, segmentMagic)
	if err != nil {
		return err
	}
	// A Rewind may have left bytes between the sections and the footer. The footer must end the file.
	w.size = max(w.size, w.file.Size()-int64(len(footer)))
	if _, err := w.Write(footer); err != nil {
		return err
	}
	if err := fair.Rest(ctx, func() error { return w.file.Seal(ctx) }); err != nil {
		return err
	}
	w.finished = true
	return nil
}

func (w *Writer) closeGraph() error {
	if w.graph == nil {
		return nil
	}
	return w.graph.close()
}

// Abort removes the files, unless Finish has succeeded.
func (w *Writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	return errors.Join(w.file.Abort(), w.index.close(), w.closeGraph())
}

// Sealed is a segment whose files are complete and durable but not registered yet.
type Sealed struct {
	ID         LayerID
	Graph      LayerID // zero when the segment holds no commit
	GraphBytes int64   // size of its file
	DataBytes  int64   // size of the data region
	Count      int     // of objects
}

var (
	_ io.Writer   = (*Writer)(nil)
	_ io.ReaderAt = (*Writer)(nil)
)
