package engine_test

import (
	"errors"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// TestPurge lets the window pass, and purges at once: no row and no object stay.
func TestPurge(t *testing.T) {
	t.Parallel()
	for name, purge := range map[string]func(g *graveyard, id refs.RepoID){
		"the window passes": func(g *graveyard, _ refs.RepoID) {
			g.remove("r")
			g.pass(14*day - time.Hour)
			maintainAll(g.t, g.host)
			if len(g.deleted()) != 1 {
				g.t.Error("it is purged within the window")
			}
			g.pass(2 * time.Hour)
			maintainAll(g.t, g.host)
		},
		"a deleted one": func(g *graveyard, _ refs.RepoID) {
			g.remove("r")
			_, err := g.host.PurgeRepository(g.t.Context(), acme, "r", refs.RepoID{})
			must(g.t, err)
		},
		"a deleted one by its id": func(g *graveyard, id refs.RepoID) {
			g.remove("r")
			enginetest.Create(g.t, g.host, "r")
			_, err := g.host.PurgeRepository(g.t.Context(), acme, "r", id)
			must(g.t, err)
			g.open("r")
			g.remove("r")
			g.pass(15 * day)
		},
		"one that is there": func(g *graveyard, _ refs.RepoID) {
			_, err := g.host.PurgeRepository(g.t.Context(), acme, "r", refs.RepoID{})
			must(g.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGraveyard(t, engine.Config{})
			empty := allRows(t, g.keys)
			id := g.filled("r").Item().ID
			purge(g, id)
			if items := g.deleted(); len(items) > 1 || len(items) == 1 && items[0].ID == id {
				t.Errorf("deleted are %+v", items)
			}
			if _, err := g.undelete(engine.UndeleteRequest{Name: "r", ID: id}); err == nil {
				t.Error("it comes back")
			}
			for range 3 { // what the purge lets go of is swept when nobody reads it any more
				g.pass(91 * day)
				maintainAll(t, g.host)
			}
			if count := rowsOf(t, g.keys, id); count > 0 {
				t.Errorf("%d rows are left", count)
			}
			for row := range allRows(t, g.keys) {
				if !empty[row] && row[0] != 'N' && row[0] != 'q' && row[0] != 'e' && row[0] != 'y' {
					t.Errorf("row %q is left", row)
				}
			}
			_, err := g.undelete(engine.UndeleteRequest{Name: "r"})
			if !errors.Is(err, engine.ErrPurged) {
				t.Errorf("afterwards: %v", err)
			}
			sound(t, g.host)
		})
	}
}

// allRows are the keys in a store.
func allRows(t *testing.T, keys kv.Store) map[string]bool {
	t.Helper()
	rows := make(map[string]bool)
	for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{}) {
		must(t, err)
		rows[string(pair.Key)] = true
	}
	return rows
}
