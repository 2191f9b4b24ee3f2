package segment

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/fair"
	"packhorse/odb/file"
)

// Auxiliary is an auxiliary file that is complete and durable but not registered yet.
type Auxiliary struct {
	ID    LayerID // zero: there is no file
	Bytes int64   // size of the file
}

// WriteAuxiliary creates an auxiliary file of a kind and makes it durable. write fills in the
// sections and returns the number of IDs. After an error the file is removed.
func WriteAuxiliary(
	ctx context.Context, files file.Store, kind LayerKind, write func(sections *SectionWriter) (int, error),
) (Auxiliary, error) {
	id := NewLayerID()
	size, err := writeAuxiliary(ctx, files, kind, id, write)
	if err != nil {
		return Auxiliary{}, err
	}
	return Auxiliary{ID: id, Bytes: size}, nil
}

// writeAuxiliary is WriteAuxiliary of a file whose ID is known. It returns the size of the file.
func writeAuxiliary(
	ctx context.Context, files file.Store, kind LayerKind, id LayerID, write func(sections *SectionWriter) (int, error),
) (size int64, err error) {
	f, err := files.Create(ctx, kind.FileName(id))
	if err != nil {
		return 0, fmt.Errorf("begin auxiliary file: %w", err)
	}
	sections := NewSectionWriter(f, id, 0)
	count, err := write(sections)
	if err == nil {
		var footer []byte
		if footer, err = sections.Finish(count, kind.magic()); err == nil {
			_, err = f.Write(footer)
		}
	}
	size = f.Size()
	if err == nil {
		err = fair.Rest(ctx, func() error { return f.Seal(ctx) })
	}
	if err != nil {
		return 0, fmt.Errorf("write auxiliary file: %w", errors.Join(err, f.Abort()))
	}
	return size, nil
}
