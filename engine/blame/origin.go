package blame

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"packhorse/engine/diff/lines"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// entry is a run of lines of the blamed file, from line on, which are in the file of an origin from
// source on.
type entry struct{ line, source, count int }

// origin is a file of a commit, with the lines that it is blamed for at the moment.
type origin struct {
	node     *node
	path     string
	mode     object.Mode
	blob     object.ID
	entries  []entry // by source
	text     lines.Text
	hasText  bool
	previous object.ID
}

// node is a commit on the way. These are few of a history: a [revwalk.Graph], which also numbers
// all parents, takes more memory and time.
type node struct {
	id      object.ID
	row     odb.GraphRow
	origins []*origin
	number  int32
	queued  bool
}

// node returns the node of a commit.
func (b *blamer) node(ctx context.Context, id object.ID) (*node, error) {
	if n := b.nodes[id]; n != nil {
		return n, nil
	}
	row, err := b.view.Graph(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", id, err)
	}
	n := &node{id: id, row: row, number: int32(len(b.commits))}
	b.nodes[id] = n
	b.commits = append(b.commits, n)
	return n, nil
}

// find returns the origin of a path, nil if there is none yet.
func (n *node) find(path string) *origin {
	for _, o := range n.origins {
		if o.path == path {
			return o
		}
	}
	return nil
}

// origin returns the origin of a path, a new one if need be.
func (n *node) origin(path string, mode object.Mode, blob object.ID) *origin {
	if o := n.find(path); o != nil {
		return o
	}
	o := &origin{node: n, path: path, mode: mode, blob: blob}
	n.origins = append(n.origins, o)
	return o
}

// file returns the origin of a path that is a file of a commit; nil if it is none, with the ID of
// what is there instead.
func (b *blamer) file(ctx context.Context, n *node, path string) (_ *origin, id object.ID, err error) {
	if o := n.find(path); o != nil {
		return o, o.blob, nil
	}
	reader, err := b.reader(ctx, path)
	if err != nil {
		return nil, object.ZeroID, err
	}
	mode, id, err := reader.Entry(ctx, n.row.Tree)
	if err != nil {
		return nil, object.ZeroID, fmt.Errorf("find %q: %w", path, err)
	}
	if mode == 0 || mode.IsTree() || mode.IsGitlink() {
		return nil, id, nil
	}
	return n.origin(path, mode, id), id, nil
}

// reader returns the reader of a path.
func (b *blamer) reader(ctx context.Context, path string) (*revwalk.PathReader, error) {
	if r := b.readers[path]; r != nil {
		return r, nil
	}
	r, err := revwalk.NewPathReader(ctx, b.view, path)
	if err != nil {
		return nil, fmt.Errorf("open path filters: %w", err)
	}
	b.readers[path] = r
	return r, nil
}

// A blame of a file of largeFrom bytes or more asks for textCosts times its size first: for some
// versions, their lines, and what compares them.
const (
	largeFrom = 1 << 20
	textCosts = 8
)

// text returns the lines of an origin's file, which is probably much like another text. They are
// kept until the origin has passed on its blame.
func (b *blamer) text(ctx context.Context, o *origin, near lines.Text) (lines.Text, error) {
	if o.hasText {
		return o.text, nil
	}
	info, err := b.view.Stat(ctx, o.blob)
	if err != nil {
		return lines.Text{}, err
	}
	if info.Size > SizeMax {
		return lines.Text{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, info.Size, SizeMax)
	}
	if info.Size >= largeFrom {
		if err := fair.Need(ctx, textCosts*info.Size); err != nil {
			return lines.Text{}, fmt.Errorf("blame a file of %d bytes: %w", info.Size, err)
		}
	}
	t, data, err := b.view.Read(ctx, o.blob)
	if err != nil {
		return lines.Text{}, err
	}
	if t != object.TypeBlob {
		return lines.Text{}, &odb.NotFoundError{Object: o.blob}
	}
	o.text, o.hasText = lines.SplitNear(data, near), true
	return o.text, nil
}

// forget releases the lines of a file without entries.
func (o *origin) forget() {
	if len(o.entries) == 0 {
		o.text, o.hasText = lines.Text{}, false
	}
}

// blame gives entries to an origin, which owns them from then on. They come in the order of their
// lines nearly always, from a child that had them in this order.
func (b *blamer) blame(o *origin, entries []entry) {
	b.left += len(entries)
	switch {
	case len(entries) == 0:
		return
	case len(o.entries) == 0:
		o.entries = entries
	default:
		o.entries = append(o.entries, entries...)
	}
	bySource := func(x, y entry) int { return cmp.Compare(x.source, y.source) }
	if !slices.IsSortedFunc(o.entries, bySource) {
		slices.SortStableFunc(o.entries, bySource)
	}
	b.push(o.node)
}

func (b *blamer) push(n *node) {
	if !n.queued {
		n.queued = true
		b.queue.Push(n.number, n.row.Seconds)
	}
}

// pop returns the newest commit that is blamed for something, nil if there is none.
func (b *blamer) pop() *node {
	if b.queue.Len() == 0 {
		return nil
	}
	n := b.commits[b.queue.Pop()]
	n.queued = false
	return n
}
