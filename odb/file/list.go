package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// List implements Store. It walks incoming before settled, so a file that moves during the walk is
// seen in one of them.
func (d *Dir) List(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		servers, err := d.servers(ctx)
		if err != nil {
			yield(Info{}, err)
			return
		}
		seen := make(map[string]struct{}) // unsettled files are few
		for _, server := range servers {
			for info, err := range d.folder(ctx, server, false) {
				seen[info.Name] = struct{}{}
				if !yield(info, err) || err != nil {
					return
				}
			}
		}
		settled := d.fs.PathJoin(d.root, settledName)
		folders, err := d.fs.List(settled)
		if err != nil {
			yield(Info{}, fmt.Errorf("list %s: %w", settled, err))
			return
		}
		for _, folder := range folders {
			for info, err := range d.folder(ctx, d.fs.PathJoin(settled, folder), true) {
				if _, double := seen[info.Name]; double {
					continue
				}
				if !yield(info, err) || err != nil {
					return
				}
			}
		}
	}
}

// Leftovers implements Incoming.
func (d *Dir) Leftovers(ctx context.Context) iter.Seq2[Info, error] {
	return d.folder(ctx, d.incoming, false)
}

// folder walks the sealed files in one folder.
func (d *Dir) folder(ctx context.Context, path string, settled bool) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := d.begin(ctx); err != nil {
			yield(Info{}, err)
			return
		}
		names, err := d.fs.List(path)
		if err != nil {
			yield(Info{}, fmt.Errorf("list %s: %w", path, err))
			return
		}
		for _, name := range names {
			if CheckName(name) != nil {
				continue // the lock, and unsealed files
			}
			var info vfs.FileInfo
			err := ctx.Err()
			if err == nil {
				info, err = d.fs.Stat(d.fs.PathJoin(path, name))
			}
			switch {
			case errors.Is(err, fs.ErrNotExist): // deleted or moved in between
			case err != nil:
				yield(Info{}, err)
				return
			default:
				if !yield(Info{Name: name, Size: info.Size(), Time: info.ModTime(), Settled: settled}, nil) {
					return
				}
			}
		}
	}
}
