package repack

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"

	"packhorse/odb"
	"packhorse/odb/extsort"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// A change of a path, as it is sorted: the path, the place of the commit among all of the segment,
// the newest first, the index of the parent, the ordinal of the commit, and what is at the path
// before and after.
//
//	20 path | 4 place | 4 parent | 4 ordinal | 4 mode | 20 ID | 4 mode | 20 ID
const pathChangeSize = object.IDSize + 4 + 4 + 4 + 2*(4+object.IDSize)

// changesPerCommit is the number of changes of paths, folders too, for each commit that may be
// sorted beside the HistoryChanges of [odb.Options].
const changesPerCommit = 16

// errManyChanges says that the commits of a segment changed more paths than may be sorted.
var errManyChanges = errors.New("repack: many paths changed")

// commitChanges adds the changes of a commit.
type commitChanges struct {
	sorter         *extsort.Sorter
	left           *int // that may be added
	place, ordinal uint32
	record         []byte
	first          map[string]struct{} // what a merge changed against its first parent
}

// collect adds the changes against the first parent, and of the same paths those against the
// others.
func (c *commitChanges) collect(ctx context.Context, v *odb.View, row *odb.GraphRow) error {
	old, err := v.FirstParentTree(ctx, row)
	if err != nil {
		return err
	}
	if len(row.Parents) > 1 {
		c.first = make(map[string]struct{})
	}
	err = v.TreeChanges(ctx, old, row.Tree, func(path string, old, now segment.Version) (bool, error) {
		if c.first != nil {
			c.first[path] = struct{}{}
		}
		return true, c.add(ctx, 0, segment.PathID(path), old, now)
	})
	for i := 1; i < len(row.Parents) && err == nil && len(c.first) > 0; i++ {
		var parent odb.GraphRow
		if parent, err = v.Graph(ctx, row.Parents[i]); err != nil {
			return err
		}
		err = v.TreeChanges(ctx, parent.Tree, row.Tree, func(path string, old, now segment.Version) (bool, error) {
			if _, ok := c.first[path]; !ok {
				return false, nil
			}
			return true, c.add(ctx, i, segment.PathID(path), old, now)
		})
	}
	return err
}

func (c *commitChanges) add(ctx context.Context, parent int, path object.ID, old, now segment.Version) error {
	if *c.left--; *c.left < 0 {
		return errManyChanges
	}
	c.record = append(c.record[:0], path[:]...)
	for _, n := range [3]uint32{c.place, uint32(parent), c.ordinal} {
		c.record = binary.BigEndian.AppendUint32(c.record, n)
	}
	for _, v := range [2]segment.Version{old, now} {
		c.record = binary.BigEndian.AppendUint32(c.record, uint32(v.Mode))
		c.record = append(c.record, v.ID[:]...)
	}
	return c.sorter.Add(ctx, c.record)
}

// pathGroup is the changes of one path, the newest first.
type pathGroup struct {
	path    object.ID
	commits int // that have changed it against their first parent
	rows    []groupRow
}

type groupRow struct {
	parent, ordinal uint32
	old, new        segment.Version
}

// groups yields the changes of each path that is a file in all commits of the segment that have
// it: of a folder, changes in it are no changes of its own. It leaves out those with more changes
// than a file has rows. A group is valid until the next step.
func groups(ctx context.Context, changes *extsort.Sorter) iter.Seq2[*pathGroup, error] {
	return func(yield func(*pathGroup, error) bool) {
		var group pathGroup
		isFile := true
		for record, err := range changes.All(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			if path := object.ID(record); path != group.path {
				if len(group.rows) > 0 && isFile && !yield(&group, nil) {
					return
				}
				group.path, group.commits, group.rows, isFile = path, 0, group.rows[:0], true
			}
			version := func(at int) segment.Version {
				return segment.Version{Mode: object.Mode(binary.BigEndian.Uint32(record[at:])), ID: object.ID(record[at+4:])}
			}
			row := groupRow{
				binary.BigEndian.Uint32(record[24:]), binary.BigEndian.Uint32(record[28:]), version(32), version(56),
			}
			n := len(group.rows)
			// Old tools wrote trees with a name twice.
			isTwice := n > 0 && group.rows[n-1].ordinal == row.ordinal && group.rows[n-1].parent == row.parent
			isFile = isFile && !row.old.Mode.IsTree() && !row.new.Mode.IsTree() && !isTwice && n < historyRows
			if !isFile {
				continue
			}
			group.rows = append(group.rows, row)
			if row.parent == 0 {
				group.commits++
			}
		}
		if len(group.rows) > 0 && isFile {
			yield(&group, nil)
		}
	}
}
