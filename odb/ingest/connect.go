package ingest

import (
	"context"
	"errors"
	"slices"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// connect verifies that every object named by the pack is in the pack or readable in the pool, and
// has the type that it is named as. Everything in a pool is connected, so connect does not look
// behind stored objects.
func (in *Ingest) connect(ctx context.Context) error {
	var stored []linkItem
	done := int64(0)
	for item, err := range in.links.sorted(ctx) {
		if err == nil {
			err = fair.Pause(ctx)
		}
		if err != nil {
			return err
		}
		in.summary.Note(item.id, item.is != 0, item.wants != 0)
		if item.is != 0 {
			in.distinct++
			if err := item.judge(item.is); err != nil {
				return err
			}
			continue
		}
		if stored = append(stored, item); len(stored) < connectBatch {
			continue
		}
		if err := in.connectStored(ctx, stored); err != nil {
			return err
		}
		done += int64(len(stored))
		in.progress.Step(phaseChecking, done, 0)
		stored = stored[:0]
	}
	return in.connectStored(ctx, stored)
}

const connectBatch = 4096

// connectStored verifies sorted links to objects that are not in the pack.
func (in *Ingest) connectStored(ctx context.Context, links []linkItem) error {
	for i := range links {
		if err := fair.Pause(ctx); err != nil {
			return err
		}
		info, err := in.view.Stat(ctx, links[i].id)
		if errors.Is(err, odb.ErrNotFound) {
			err = in.missing(ctx, &links[i])
		} else if err == nil {
			err = links[i].judge(info.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judge returns a [WrongTypeError] if an object of type t is named as another type.
func (i *linkItem) judge(t object.Type) error {
	for want := object.TypeCommit; want <= object.TypeTag; want++ {
		if want != t && i.wants.has(want) {
			return &WrongTypeError{Object: i.id, Type: t, Want: want}
		}
	}
	return nil
}

// missing returns the error for a link to a missing object. Git knows the empty tree without having
// it: for that link, missing returns nil and marks the tree to be stored.
func (in *Ingest) missing(ctx context.Context, link *linkItem) error {
	if link.id == object.EmptyTreeID {
		if err := link.judge(object.TypeTree); err != nil {
			return err
		}
		return in.addEmptyTree(ctx)
	}
	from, err := in.links.idOf(ctx, link.from)
	if err != nil {
		return err
	}
	return &MissingError{Object: link.id, From: from, Shallow: slices.Contains(in.options.Shallow, from)}
}

// checkDotfiles checks the content of the dotfiles that trees of the pack name.
func (in *Ingest) checkDotfiles(ctx context.Context) error {
	for found := range in.dotfiles {
		if err := in.judge(found.ID, in.quarantine.View().CheckDotfile(ctx, found)); err != nil {
			return badObject(found.ID, object.TypeBlob, err)
		}
	}
	return nil
}
