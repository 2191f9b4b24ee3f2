package file

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
)

// settledPath returns the path of a settled file.
func (d *Dir) settledPath(name string) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name)
	return d.fs.PathJoin(d.root, settledName, fmt.Sprintf("%02x", byte(h.Sum32())), name)
}

// find returns the path of a file, or ErrNotFound. Files move only from incoming to settled, so a
// search in this order, with a second look at the settled path, does not miss one.
func (d *Dir) find(ctx context.Context, name string) (string, error) {
	if err := d.begin(ctx); err != nil {
		return "", err
	}
	if err := CheckName(name); err != nil {
		return "", err
	}
	settled := d.settledPath(name)
	if ok, err := d.exists(settled); ok || err != nil {
		return settled, err
	}
	path, err := d.findIncoming(ctx, name)
	if !errors.Is(err, ErrNotFound) {
		return path, err
	}
	if ok, err := d.exists(settled); ok || err != nil {
		return settled, err
	}
	return "", fmt.Errorf("%w: %s", ErrNotFound, name)
}

// findIncoming looks under incoming, in the folder of this server first.
func (d *Dir) findIncoming(ctx context.Context, name string) (string, error) {
	own := d.fs.PathJoin(d.incoming, name)
	if ok, err := d.exists(own); ok || err != nil {
		return own, err
	}
	servers, err := d.servers(ctx)
	if err != nil {
		return "", err
	}
	for _, server := range servers {
		path := d.fs.PathJoin(server, name)
		if ok, err := d.exists(path); ok || err != nil {
			return path, err
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNotFound, name)
}

// servers returns the folders of all servers.
func (d *Dir) servers(ctx context.Context) ([]string, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	all := d.fs.PathJoin(d.root, incomingName)
	names, err := d.fs.List(all)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", all, err)
	}
	for i, name := range names {
		names[i] = d.fs.PathJoin(all, name)
	}
	return names, nil
}

func (d *Dir) exists(path string) (bool, error) {
	_, err := d.fs.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
