package segment

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/fair"
	"packhorse/odb/file"
)

// WriteAuxiliary creates an auxiliary file of a kind and makes it durable. write fills in the
// sections and returns the number of IDs. After an error the file is removed.
func WriteAuxiliary(
	ctx context.Context, files file.Store, kind LayerKind, write func(sections *SectionWriter) (int, error),
) (LayerID, error) {
	id := NewLayerID()
	if err := writeAuxiliary(ctx, files, kind, id, write); err != nil {
		return LayerID{}, err
	}
	return id, nil
}

// writeAuxiliary is WriteAuxiliary of a file whose ID is known.
func writeAuxiliary(
	ctx context.Context, files file.Store, kind LayerKind, id LayerID, write func(sections *SectionWriter) (int, error),
) error {
	f, err := files.Create(ctx, kind.FileName(id))
	if err != nil {
		return fmt.Errorf("begin auxiliary file: %w", err)
	}
	sections := NewSectionWriter(f, id, 0)
	count, err := write(sections)
	if err == nil {
		var footer []byte
		if footer, err = sections.Finish(count, kind.magic()); err == nil {
			_, err = f.Write(footer)
		}
	}
	if err == nil {
		err = fair.Rest(ctx, func() error { return f.Seal(ctx) })
	}
	if err != nil {
		return fmt.Errorf("write auxiliary file: %w", errors.Join(err, f.Abort()))
	}
	return nil
}
