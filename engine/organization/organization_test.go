package organization_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/organization"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

func openKeys(t *testing.T) kv.Store {
	t.Helper()
	keys := odbtest.OpenKeys(t, vfs.NewMem())
	t.Cleanup(func() {
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
	})
	return keys
}

func files(pairs ...string) organization.Files {
	made := make(organization.Files)
	for i := 0; i < len(pairs); i += 2 {
		made[pairs[i]] = []byte(pairs[i+1])
	}
	return made
}

func update(t *testing.T, keys kv.Store, next map[string]organization.Files) {
	t.Helper()
	err := organization.Update(t.Context(), keys, func(organization.State) (map[string]organization.Files, error) {
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, keys kv.Store, before organization.State) organization.State {
	t.Helper()
	now, err := organization.Load(t.Context(), keys, before)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// TestUpdate changes organizations step by step. After each, whoever knew the state before knows
// the one that a newcomer reads, and versions have changed of what has changed, and of nothing
// else.
func TestUpdate(t *testing.T) {
	t.Parallel()
	keys := openKeys(t)
	model := make(map[string]organization.Files)
	known := load(t, keys, organization.State{})
	if known.Version != (organization.Version{}) {
		t.Fatalf("version %x of nothing", known.Version)
	}
	many := make(map[string]organization.Files) // more than are read one by one
	for i := range 40 {
		many[fmt.Sprintf("many%d", i)] = files("k.pem", fmt.Sprint(i))
	}
	none := make(map[string]organization.Files)
	for org := range many {
		none[org] = nil
	}
	for name, step := range []map[string]organization.Files{
		{"acme": files("k.pem", "1", "org.yaml", "")},
		{"acme2": files("k.pem", "2"), "acme": files("k.pem", "1", "org.yaml", "")},
		{"acme": files("l.pem", "1")},
		many,
		{"acme": nil, "unknown": nil},
		{"acme": files()},
		none,
		{},
	} {
		changed := make(map[string]bool)
		for org, next := range step {
			before, is := model[org]
			changed[org] = is != (next != nil) || !reflect.DeepEqual(before, next)
			if next == nil {
				delete(model, org)
			} else {
				model[org] = next
			}
		}
		update(t, keys, step)
		now, fresh := load(t, keys, known), load(t, keys, organization.State{})
		if !reflect.DeepEqual(now, fresh) {
			t.Errorf("step %d: followed %v, read anew %v", name, now, fresh)
		}
		got := make(map[string]organization.Files)
		for org, stored := range now.Orgs {
			got[org] = stored.Files
			if same := stored.Version == known.Orgs[org].Version; same == changed[org] {
				t.Errorf("step %d: %s has changed: %t, and the same version: %t", name, org, changed[org], same)
			}
			row, err := keys.Get(t.Context(), organization.Key(org))
			if version, parseErr := organization.ParseVersion(row); version != stored.Version || err != nil || parseErr != nil {
				t.Errorf("step %d: the row of %s has version %x, %v, %v", name, org, version, err, parseErr)
			}
		}
		if !reflect.DeepEqual(got, model) {
			t.Errorf("step %d: stored %v, want %v", name, got, model)
		}
		anything := slices.Contains(slices.Collect(maps.Values(changed)), true)
		if current, err := organization.Current(t.Context(), keys); err != nil || current != now.Version ||
			(current != known.Version) != anything {
			t.Errorf("step %d: version %x after %x, %v", name, current, known.Version, err)
		}
		known = now
	}
}

// TestConcurrentUpdates has several add a key each to one organization at the same time.
func TestConcurrentUpdates(t *testing.T) {
	t.Parallel()
	const count = 6
	keys := openKeys(t)
	var adding sync.WaitGroup
	for i := range count {
		adding.Go(func() {
			err := organization.Update(t.Context(), keys, func(now organization.State) (map[string]organization.Files, error) {
				next := maps.Clone(now.Orgs["acme"].Files)
				if next == nil {
					next = make(organization.Files)
				}
				next[fmt.Sprintf("%d.pem", i)] = nil
				return map[string]organization.Files{"acme": next}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	adding.Wait()
	if stored := load(t, keys, organization.State{}).Orgs["acme"].Files; len(stored) != count {
		t.Errorf("%d files of %d are left: %v", len(stored), count, stored)
	}
}

// TestUpdateInSteps stores more than a batch holds.
func TestUpdateInSteps(t *testing.T) {
	t.Parallel()
	keys := openKeys(t)
	next := make(map[string]organization.Files)
	large := strings.Repeat("x", organization.FileBytesMax)
	for i := range 4 {
		org := make(organization.Files)
		for j := range 15 {
			org[fmt.Sprintf("%d.asc", j)] = []byte(large)
		}
		next[fmt.Sprintf("org%d", i)] = org
	}
	update(t, keys, next)
	for org, stored := range load(t, keys, organization.State{}).Orgs {
		if !reflect.DeepEqual(stored.Files, next[org]) {
			t.Errorf("%s has %d files", org, len(stored.Files))
		}
		delete(next, org)
	}
	if len(next) > 0 {
		t.Errorf("%d organizations are missing", len(next))
	}
}

// TestRefusedUpdates checks that what is refused changes nothing.
func TestRefusedUpdates(t *testing.T) {
	t.Parallel()
	own := errors.New("no")
	tooMany := make(organization.Files)
	for i := range organization.FileCountMax + 1 {
		tooMany[fmt.Sprint(i)] = nil
	}
	big := make([]byte, organization.FileBytesMax+1)
	tests := map[string]struct {
		org  organization.Files
		err  error
		want error
	}{
		"an error of edit": {err: own, want: own},
		"a large file":     {org: organization.Files{"a": big}, want: organization.ErrTooLarge},
		"many files":       {org: tooMany, want: organization.ErrTooLarge},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := openKeys(t)
			err := organization.Update(t.Context(), keys, func(organization.State) (map[string]organization.Files, error) {
				return map[string]organization.Files{"aa": files("k.pem", "1"), "acme": test.org}, test.err
			})
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if now := load(t, keys, organization.State{}); len(now.Orgs) > 0 || now.Version != (organization.Version{}) {
				t.Errorf("stored %v", now)
			}
		})
	}
}

// TestDamagedRows finds rows that nobody has written.
func TestDamagedRows(t *testing.T) {
	t.Parallel()
	for name, row := range map[string][2]string{
		"a short version":     {string(organization.VersionKey()), "1"},
		"one of a name":       {string(organization.Key("acme")), "1"},
		"a file of no folder": {"Afacme", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := openKeys(t)
			more := make(map[string]organization.Files) // so that all files are read
			for i := range 20 {
				more[fmt.Sprint(i)] = files("k.pem", "1")
			}
			update(t, keys, more)
			b := kv.NewBatch()
			b.Put([]byte(row[0]), []byte(row[1]))
			if _, err := keys.Apply(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			if _, err := organization.Load(t.Context(), keys, organization.State{}); !errors.Is(err, kv.ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}
