package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"packhorse/api/auth"
	"packhorse/engine"
	"packhorse/engine/identity"
	"packhorse/engine/organization"
	"packhorse/odb/kv"
)

// rowsFlags name the database whose rows are organizations.
type rowsFlags struct {
	Keys string `help:"PostgreSQL database of servers that share it: postgres://USER@HOST/DATABASE." placeholder:"URL" env:"PACKHORSE_KEYS" is:"database"`

	logFlags
}

// database is what opens it.
func (f rowsFlags) database() sharedFlags { return sharedFlags{Keys: f.Keys} }

// open calls f with the database. use says that it is about to be used, rather than looked at.
func (f rowsFlags) open(ctx context.Context, to streams, use bool, do func(keys kv.Store) error) (err error) {
	if f.Keys == "" {
		return &usageError{"--keys names the database that has the organizations; without it they are files of a folder"}
	}
	keys, err := f.database().openKeys(ctx, f.logger(to.errOut), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keys.Close()) }()
	if use {
		_, err = engine.StoreID(ctx, keys)
	} else {
		err = usable(ctx, keys)
	}
	if err != nil {
		return nameStore("", f.database(), err)
	}
	return do(keys)
}

// usable returns why a store must not be used, or nil. Unlike [engine.StoreID] it changes nothing.
func usable(ctx context.Context, keys kv.Reader) error {
	row, err := identity.Read(ctx, keys)
	if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	return errors.Join(err, row.Usable())
}

// update changes organizations.
func (f rowsFlags) update(
	ctx context.Context, to streams, edit func(now organization.State) (map[string]organization.Files, error),
) error {
	return f.open(ctx, to, true, func(keys kv.Store) error { return organization.Update(ctx, keys, edit) })
}

// view calls do with the organizations.
func (f rowsFlags) view(ctx context.Context, to streams, do func(now organization.State) error) error {
	return f.open(ctx, to, false, func(keys kv.Store) error {
		now, err := organization.Load(ctx, keys, organization.State{})
		if err != nil {
			return err
		}
		return do(now)
	})
}

// orgApplyCommand makes rows equal to a folder.
type orgApplyCommand struct {
	Dir    string `arg:"" help:"Folder of organizations, or that of one organization, which is named like it." type:"path" is:"folder"`
	Prune  bool   `help:"Remove the organizations that the folder does not have."`
	DryRun bool   `help:"Print what would change, and change nothing."`

	rowsFlags
}

// Run applies the folder and prints what changes.
func (c orgApplyCommand) Run(ctx context.Context, to streams) error {
	wanted, isOne, err := readOrgs(c.Dir)
	if err != nil {
		return err
	}
	if isOne && c.Prune {
		return &usageError{fmt.Sprintf("--prune wants a folder of organizations, and %s is that of one", c.Dir)}
	}
	if c.DryRun {
		return c.view(ctx, to, func(now organization.State) error {
			lines, count := changes(now, c.next(now, wanted))
			return to.printf("%swould change: %d of %s\n", lines, count, quantity(len(wanted), "organization"))
		})
	}
	return c.open(ctx, to, true, func(keys kv.Store) error {
		return applyOrgs(ctx, keys, to, func(now organization.State) map[string]organization.Files {
			return c.next(now, wanted)
		})
	})
}

// next returns what is to change.
func (c orgApplyCommand) next(
	now organization.State, wanted map[string]organization.Files,
) map[string]organization.Files {
	next := maps.Clone(wanted)
	for org := range now.Orgs {
		if _, stays := wanted[org]; c.Prune && !stays {
			next[org] = nil
		}
	}
	return next
}

// applyOrgs stores organizations and prints what has changed.
func applyOrgs(
	ctx context.Context, keys kv.Store, to streams, next func(now organization.State) map[string]organization.Files,
) error {
	var lines string
	var changed, all int
	err := organization.Update(ctx, keys, func(now organization.State) (map[string]organization.Files, error) {
		wanted := next(now)
		all = len(wanted)
		lines, changed = changes(now, wanted)
		return wanted, nil
	})
	if err != nil {
		return err
	}
	return to.printf("%schanged: %d of %s\n", lines, changed, quantity(all, "organization"))
}

// readOrgs reads a folder of organizations, or of one organization. Each error names a file.
func readOrgs(dir string) (orgs map[string]organization.Files, isOne bool, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, false, err
	}
	isOne, err = auth.IsOrganization(os.DirFS(dir))
	if err != nil {
		return nil, false, err
	}
	above := dir
	if isOne {
		above = filepath.Dir(dir)
		name := filepath.Base(dir)
		var files organization.Files
		files, err = auth.ReadOrganization(os.DirFS(dir), name)
		orgs = map[string]organization.Files{name: files}
	} else {
		orgs, err = auth.ReadFolder(os.DirFS(dir))
	}
	if bad, ok := errors.AsType[*auth.FolderError](err); ok {
		return nil, isOne, &usageError{filepath.Join(above, bad.Path) + ": " + bad.Reason}
	}
	if err != nil {
		return nil, isOne, fmt.Errorf("%s: %w", dir, err)
	}
	return orgs, isOne, nil
}

// changes says in a line each what is going to change, and of how many organizations.
func changes(now organization.State, next map[string]organization.Files) (lines string, count int) {
	var text strings.Builder
	for _, org := range slices.Sorted(maps.Keys(next)) {
		stored, is := now.Orgs[org]
		files := next[org]
		if is && files != nil && maps.EqualFunc(stored.Files, files, bytes.Equal) {
			continue
		}
		count++
		differences := auth.Differences(auth.Describe(stored.Files), auth.Describe(files))
		switch {
		case !is:
			differences = append([]string{"added"}, differences...)
		case files == nil:
			differences = append([]string{"removed"}, differences...)
		case len(differences) == 0:
			differences = []string{"files changed, and nothing that they say"}
		}
		for _, difference := range differences {
			fmt.Fprintf(&text, "%s: %s\n", org, difference)
		}
	}
	return text.String(), count
}

// orgExportCommand writes organizations to a folder.
type orgExportCommand struct {
	Dir string `arg:"" help:"Folder to write; it is made, or empty." type:"path" is:"empty folder"`

	rowsFlags
}

// Run writes the folder. It also reads a database whose repositories were moved elsewhere.
func (c orgExportCommand) Run(ctx context.Context, to streams) error {
	if err := checkExport(c.Dir); err != nil {
		return err
	}
	if c.Keys == "" {
		return c.open(ctx, to, false, nil) // which complains
	}
	keys, err := c.database().openKeys(ctx, c.logger(to.errOut), nil)
	if err != nil {
		return err
	}
	return errors.Join(exportOrgs(ctx, keys, c.Dir, to), keys.Close())
}

// checkExport returns an error unless a folder is empty or there is none.
func checkExport(dir string) error {
	entries, err := os.ReadDir(dir)
	if len(entries) > 0 {
		return &usageError{dir + " is not empty: choose another folder for the organizations"}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// exportOrgs writes the organizations to an empty folder. Only their owner may read the files: an
// org.yaml has secrets.
func exportOrgs(ctx context.Context, keys kv.Store, dir string, to streams) error {
	now, err := organization.Load(ctx, keys, organization.State{})
	if err != nil {
		return err
	}
	for _, org := range slices.Sorted(maps.Keys(now.Orgs)) {
		if !auth.ValidName(org) {
			return fmt.Errorf("organization %q: %w", org, kv.ErrCorrupt)
		}
		folder := filepath.Join(dir, org)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		files := now.Orgs[org].Files
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if filepath.Base(name) != name || !filepath.IsLocal(name) {
				return fmt.Errorf("file %q of organization %q: %w", name, org, kv.ErrCorrupt)
			}
			if err := writeWhole(filepath.Join(folder, name), files[name], 0o600); err != nil {
				return err
			}
		}
	}
	return to.printf("%s written to %s\n", quantity(len(now.Orgs), "organization"), dir)
}
