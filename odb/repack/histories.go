package repack

import (
	"context"
	"errors"
	"maps"
	"slices"

	"packhorse/odb"
	"packhorse/odb/extsort"
	"packhorse/odb/segment"
	"packhorse/odb/traffic"
	"packhorse/pack/object"
)

// The histories of a segment have historyRows rows at most, those of the paths that changed most
// often. Versions of more than historyBytes have no lines.
const (
	historyRows  = 1 << 18
	historyBytes = 1 << 20
)

// BuildHistories builds path histories for every segment of a pool that lacks them and has enough
// commits. A blame is faster with them, and a walk that is limited to a path; both are right
// without. A segment whose commits changed very many paths has empty ones.
//
// It takes 16 MiB of memory for objects, 16 for the sorter, up to 60 for rows, some 60 bytes a
// commit, and a scratch file. It may run beside everything else; it skips a segment that leaves the
// pool meanwhile, or that another call is at.
//
// It rests while requests are served: pause is the rest as a share of the work. Errors:
// [odb.ErrNoPool] and those of reading.
func BuildHistories(ctx context.Context, s *odb.Store, pool odb.PoolID, pause float64) error {
	return besideRequests(ctx, s, pool, func(v *odb.View) error {
		return buildHistories(ctx, v, nil, s.NewPacer(pause))
	})
}

// buildHistories is [BuildHistories] that copies lines of the histories that known has.
func buildHistories(ctx context.Context, v, known *odb.View, pace *traffic.Pacer) error {
	build := func(l *odb.SegmentLayer) (segment.Auxiliary, error) {
		b := &historyBuilder{view: v, known: known, pace: pace}
		if lines := v.Store().Options().Lines; lines != nil {
			b.compare = lines()
		}
		return b.build(ctx, l)
	}
	return attachMissing(ctx, v, segment.KindHistory, "path histories", lacksHistories, build)
}

// lacksHistories reports whether a segment has no path histories, and commits enough for one. Those
// of a borrowed one are left to the pool that it was made for: each fork would make its own.
func lacksHistories(ctx context.Context, v *odb.View, l *odb.SegmentLayer) (bool, error) {
	if l.Rows == nil || l.Histories != nil || v.IsBorrowed(l) {
		return false, nil
	}
	least := v.Store().Options().HistorySegment
	g, err := l.Acquire(ctx) // it is open, more often than the graph file
	if err != nil {
		return false, err
	}
	objects := g.Count
	l.Release(g)
	if objects < least {
		return false, nil
	}
	rows, err := l.Rows.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer l.Rows.Release()
	return rows.Count >= least, nil
}

// historyBuilder makes the path histories of a segment.
type historyBuilder struct {
	view    *odb.View
	known   *odb.View // nil: none
	compare odb.LineDiff
	pace    *traffic.Pacer
	rows    *segment.File // of the segment's commits
	former  *former       // nil: none
	last    versionText   // what was read last: most versions are in two changes
}

// versionText is a blob with its content.
type versionText struct {
	id   object.ID
	data []byte
}

// build writes the history file of a segment.
func (b *historyBuilder) build(ctx context.Context, l *odb.SegmentLayer) (done segment.Auxiliary, err error) {
	if b.rows, err = l.Rows.Acquire(ctx); err != nil {
		return done, err
	}
	defer l.Rows.Release()
	if b.former, err = b.findFormer(ctx); err != nil {
		return done, err
	}
	defer b.former.close()
	files := b.view.Store().Env().Files
	changes := extsort.New(files, pathChangeSize)
	defer func() { err = errors.Join(err, changes.Close()) }()
	if err := b.collect(ctx, changes); errors.Is(err, errManyChanges) {
		return segment.WriteAuxiliary(ctx, files, segment.KindHistory, func(sections *segment.SectionWriter) (int, error) {
			return segment.NewHistoryWriter(sections).Finish(), nil
		})
	} else if err != nil {
		return done, err
	}
	least, err := b.least(ctx, changes)
	if err != nil {
		return done, err
	}
	return segment.WriteAuxiliary(ctx, files, segment.KindHistory, func(sections *segment.SectionWriter) (int, error) {
		w := segment.NewHistoryWriter(sections)
		for group, err := range groups(ctx, changes) {
			if err != nil {
				return 0, err
			}
			if group.commits < least || !b.former.knows(group.path) {
				continue
			}
			if err := b.add(ctx, w, group); err != nil {
				return 0, err
			}
		}
		return w.Finish(), nil
	})
}

// collect adds the changes of all commits.
func (b *historyBuilder) collect(ctx context.Context, changes *extsort.Sorter) error {
	order, err := newestFirst(ctx, b.rows)
	if err != nil {
		return err
	}
	places := make([]uint32, len(order)) // by ordinal
	left := b.view.Store().Options().HistoryChanges + changesPerCommit*len(order)
	for place, index := range order {
		places[index] = uint32(place)
		if err := b.pace.Rest(ctx); err != nil {
			return err
		}
		if b.former != nil {
			id, err := b.rows.ID(ctx, index)
			if err != nil {
				return err
			}
			_, ok, err := b.former.rows.Lookup(ctx, id)
			if err != nil {
				return err
			}
			if ok {
				continue
			}
		}
		row, err := b.rows.GraphRowAt(ctx, index)
		if err != nil {
			return err
		}
		c := commitChanges{sorter: changes, left: &left, place: uint32(place), ordinal: index}
		if err := c.collect(ctx, b.view, &row); err != nil {
			return err
		}
	}
	return b.former.collect(ctx, changes, &left, b.rows, places)
}

// least returns the number of commits from which a path has a history: the paths that changed most
// often have at most historyRows rows.
func (b *historyBuilder) least(ctx context.Context, changes *extsort.Sorter) (int, error) {
	rows := make(map[int]int) // of all paths that so many commits have changed
	for group, err := range groups(ctx, changes) {
		if err != nil {
			return 0, err
		}
		if group.commits >= b.view.Store().Options().HistoryCommits && b.former.knows(group.path) {
			rows[group.commits] += len(group.rows)
		}
	}
	least, total := historyRows+1, 0
	for _, commits := range slices.Backward(slices.Sorted(maps.Keys(rows))) {
		if total += rows[commits]; total > historyRows {
			break
		}
		least = commits
	}
	return least, nil
}

// add writes the history of a path.
func (b *historyBuilder) add(ctx context.Context, w *segment.HistoryWriter, group *pathGroup) error {
	known := &odb.PathHistories{}
	if b.known != nil {
		var err error
		if known, err = b.known.OpenHistories(ctx, group.path); err != nil {
			return err
		}
	}
	defer known.Close()
	changes := make([]segment.PathChange, len(group.rows))
	for i, row := range group.rows {
		commit, err := b.rows.ID(ctx, row.ordinal)
		if err != nil {
			return err
		}
		changes[i] = segment.PathChange{Commit: commit, Parent: int(row.parent), Old: row.old, New: row.new}
		lines, err := known.Lines(ctx, commit, int(row.parent))
		if err == nil && lines == nil {
			lines, err = b.lines(ctx, row)
		}
		if err != nil {
			return err
		}
		if len(lines) > 0 {
			changes[i].Lines = w.AddLines(lines)
		}
	}
	slices.SortFunc(changes, func(x, y segment.PathChange) int { return x.Compare(&y) })
	w.Add(group.path, changes)
	return nil
}

// lines compares the versions of a change, none where they are not two files of moderate size.
func (b *historyBuilder) lines(ctx context.Context, row groupRow) ([]byte, error) {
	isBlob := func(m object.Mode) bool { return m != 0 && !m.IsGitlink() }
	if b.compare == nil || !isBlob(row.old.Mode) || !isBlob(row.new.Mode) || row.old.ID == row.new.ID {
		return nil, nil
	}
	if err := b.pace.Rest(ctx); err != nil {
		return nil, err
	}
	after, err := b.text(ctx, row.new.ID)
	if err != nil || after == nil {
		return nil, err
	}
	before, err := b.text(ctx, row.old.ID)
	if err != nil || before == nil {
		return nil, err
	}
	return b.compare(ctx, before, after)
}

// text returns the content of a file, nil if it is too large.
func (b *historyBuilder) text(ctx context.Context, id object.ID) ([]byte, error) {
	if b.last.id == id {
		return b.last.data, nil
	}
	info, err := b.view.Stat(ctx, id)
	if err != nil || info.Size > historyBytes || info.Type != object.TypeBlob {
		return nil, err
	}
	_, data, err := b.view.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	if data == nil {
		data = []byte{}
	}
	b.last = versionText{id, data}
	return data, nil
}
