package odb

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/fair"
	"packhorse/odb/file"
)

// writeCompanion creates the file of a companion and makes it durable. write fills it and returns how many IDs it holds.
func writeCompanion(
	ctx context.Context, files file.Store, kind layerKind, write func(sections *sectionWriter) (int, error),
) (LayerID, error) {
	id := newLayerID()
	f, err := files.Create(ctx, kind.fileName(id))
	if err != nil {
		return LayerID{}, fmt.Errorf("begin a companion: %w", err)
	}
	sections := newSectionWriter(f, id, 0)
	count, err := write(sections)
	if err == nil {
		var footer []byte
		if footer, err = sections.finish(count, kind.magic()); err == nil {
			_, err = f.Write(footer)
		}
	}
	if err == nil {
		err = fair.Rest(ctx, func() error { return f.Seal(ctx) })
	}
	if err != nil {
		return LayerID{}, fmt.Errorf("write companion: %w", errors.Join(err, f.Abort()))
	}
	return id, nil
}
