package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"packhorse/engine/cluster"
	"packhorse/engine/identity"
	"packhorse/odb/kv"
)

// marks are the rows of both stores as this run has written them.
type marks struct {
	from, to identity.Row
	resumed  bool             // the target holds what an earlier run copied
	servers  []cluster.Server // of the source, which are silent
}

// begin checks both stores and marks them: steps 1 and 2 of the package comment.
func (m *migration) begin(ctx context.Context) error {
	source, err := m.checkSource(ctx)
	if err != nil {
		return err
	}
	target, err := m.checkTarget(ctx, source)
	if err != nil {
		return err
	}
	if _, err := claim(ctx, m.from, source.ID, false); err != nil {
		return err
	}
	place, err := claim(ctx, m.to, source.ID, true)
	if err != nil {
		return err
	}
	m.marks.resumed = target != (identity.Row{})
	mark := identity.Mark{
		State: identity.Arriving, Migration: target.Mark.Migration, Run: rand.Text(), Place: m.from.Place,
	}
	if !m.marks.resumed {
		mark.Migration = rand.Text()
	}
	m.marks.to = identity.Row{ID: source.ID, Mark: mark}
	b := kv.NewBatch()
	identity.Replace(b, target, m.marks.to)
	if place != "" {
		identity.PutFilesPlace(b, place)
	}
	if err := m.apply(ctx, m.to, b); err != nil {
		return fmt.Errorf("mark the target: %w", err)
	}
	m.marks.from = source
	if source.Mark.State == identity.Left {
		return nil // the end of this migration is missing
	}
	if err := m.markSource(ctx, identity.Leaving); err != nil {
		return err
	}
	if err := m.refuseNew(ctx); err != nil {
		return err
	}
	if fencer, ok := m.from.Keys.(kv.Fencer); ok { // a server may be suspended, and wake when all is copied
		return fencer.FenceOff(ctx)
	}
	return nil
}

// claim makes sure that the files of one end belong to the store, and returns the name of their
// place, if it has one. Only those of a target may be in a place that the store does not know yet.
func claim(ctx context.Context, stores Stores, id string, isTarget bool) (string, error) {
	if stores.Claim == nil {
		return "", nil
	}
	place, err := identity.FilesPlace(ctx, stores.Keys)
	if err == nil && place == "" && !isTarget {
		err = fmt.Errorf("%s has no files: no server was ever started on it", stores.Place)
	}
	if err != nil {
		return "", err
	}
	return stores.Claim(ctx, id, place)
}

// apply applies a batch that requires a mark, durably.
func (m *migration) apply(ctx context.Context, to Stores, b *kv.Batch) error {
	commit, err := to.Keys.Apply(ctx, b)
	if errors.Is(err, kv.ErrConflict) {
		return fmt.Errorf("%s was opened meanwhile, or another migration runs: stop it, and run this one again", m.from.Place)
	}
	if err != nil {
		return err
	}
	return commit.Wait(ctx)
}

// checkSource returns the row of the source, from which there is something to copy.
func (m *migration) checkSource(ctx context.Context) (identity.Row, error) {
	source, err := identity.Read(ctx, m.from.Keys)
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return identity.Row{}, fmt.Errorf("%s holds no store", m.from.Place)
	case err != nil:
		return identity.Row{}, fmt.Errorf("%s: %w", m.from.Place, err)
	case source.Mark.State == identity.Arriving:
		return identity.Row{}, fmt.Errorf("%s: %w", m.from.Place, source.Usable())
	}
	live, silent, err := cluster.Watch(ctx, m.from.Keys, m.options.Watch)
	if err != nil {
		return identity.Row{}, err
	}
	m.marks.servers = silent
	return source, m.refuseLive(live)
}

// refuseLive returns an error that names the servers.
func (m *migration) refuseLive(live []cluster.Server) error {
	if len(live) == 0 {
		return nil
	}
	var names []string
	for _, server := range live {
		names = append(names, strings.TrimSpace(server.ID+" "+server.URL))
	}
	return fmt.Errorf("%s is in use by a server: stop %s first", m.from.Place, strings.Join(names, ", "))
}

// refuseNew returns an error that names the servers whose rows have changed since the source was
// watched.
func (m *migration) refuseNew(ctx context.Context) error {
	now, err := cluster.List(ctx, m.from.Keys)
	if err != nil {
		return err
	}
	return m.refuseLive(cluster.Renewed(m.marks.servers, now))
}

// checkTarget returns the row of the target, of the zero value if the target is empty.
func (m *migration) checkTarget(ctx context.Context, source identity.Row) (identity.Row, error) {
	target, err := identity.Read(ctx, m.to.Keys)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return identity.Row{}, fmt.Errorf("%s: %w", m.to.Place, err)
	}
	goesOn := target.Mark.State == identity.Arriving && target.ID == source.ID
	if source.Mark.State == identity.Left && (!goesOn || target.Mark.Migration != source.Mark.Migration) {
		return identity.Row{}, fmt.Errorf("%s: %w", m.from.Place, source.Usable())
	}
	switch {
	case err != nil: // there is no row
		return identity.Row{}, m.refuseFull(ctx)
	case goesOn:
		return target, nil
	case target.Mark.State == identity.Arriving:
		return identity.Row{}, fmt.Errorf("%s holds an unfinished migration of another store, %s from %s, and this is store %s",
			m.to.Place, target.ID, target.Mark.Place, source.ID)
	default:
		return identity.Row{}, fmt.Errorf("%s is not empty: it holds store %s", m.to.Place, target.ID)
	}
}

// refuseFull returns an error if the target has rows or files.
func (m *migration) refuseFull(ctx context.Context) error {
	for pair, err := range m.to.Keys.Scan(ctx, kv.ScanOptions{Limit: 1}) {
		if err != nil {
			return err
		}
		return fmt.Errorf("%s is not empty: it holds a row of table %q", m.to.Place, pair.Key[:1])
	}
	for info, err := range m.to.Files.List(ctx) {
		if err != nil {
			return err
		}
		return fmt.Errorf("%s is not empty: it holds file %s", m.to.Place, info.Name)
	}
	return nil
}

// markSource puts a mark of this run in the place of the last one.
func (m *migration) markSource(ctx context.Context, state identity.State) error {
	next := identity.Row{ID: m.marks.from.ID, Mark: m.marks.to.Mark}
	next.Mark.State, next.Mark.Place = state, m.to.Place
	b := kv.NewBatch()
	identity.Replace(b, m.marks.from, next)
	if err := m.apply(ctx, m.from, b); err != nil {
		return fmt.Errorf("mark the source: %w", err)
	}
	m.marks.from = next
	return nil
}

// end moves the right to be opened: steps 4 and 5 of the package comment.
func (m *migration) end(ctx context.Context) error {
	if m.marks.from.Mark.State != identity.Left {
		if err := m.refuseNew(ctx); err != nil {
			return err
		}
		if err := m.markSource(ctx, identity.Left); err != nil {
			return err
		}
	}
	b := kv.NewBatch()
	identity.Replace(b, m.marks.to, identity.Row{ID: m.marks.to.ID})
	if err := m.apply(ctx, m.to, b); err != nil {
		return fmt.Errorf("complete the target: %w", err)
	}
	return nil
}

// still returns an error when the stores are no longer this run's.
func (m *migration) still(ctx context.Context) error {
	for _, end := range []struct {
		stores Stores
		want   identity.Row
	}{{m.from, m.marks.from}, {m.to, m.marks.to}} {
		row, err := identity.Read(ctx, end.stores.Keys)
		if err == nil && row != end.want {
			err = fmt.Errorf("%s was opened meanwhile, or another migration runs", end.stores.Place)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
