package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"packhorse/api/auth"
	"packhorse/engine/organization"
)

// orgListCommand lists organizations.
type orgListCommand struct{ orgsFlags }

// listedOrg is an organization of a list: its files, or why they are not understood.
type listedOrg struct {
	files organization.Files
	err   error
}

// Run prints a line for each organization. It fails if it does not understand one of a folder.
func (c orgListCommand) Run(ctx context.Context, to streams) error {
	if err := oneOf(c.Orgs, c.Keys); err != nil {
		return err
	}
	if c.Orgs != "" {
		orgs, err := listFolder(c.Orgs)
		if err != nil {
			return err
		}
		return printOrgs(orgs, to)
	}
	return c.view(ctx, to, func(now organization.State) error {
		orgs := make(map[string]listedOrg)
		for name, stored := range now.Orgs {
			orgs[name] = listedOrg{files: stored.Files}
		}
		return printOrgs(orgs, to)
	})
}

// listFolder reads the organizations of a folder. A file or a name with a dot in front is none.
func listFolder(dir string) (map[string]listedOrg, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	orgs := make(map[string]listedOrg)
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(dir, name)
		info, err := os.Stat(path) // of what a link leads to
		if strings.HasPrefix(name, ".") || err == nil && !info.IsDir() {
			continue
		}
		var org listedOrg
		if org.err = err; err == nil {
			org.files, org.err = auth.ReadOrganization(os.DirFS(path), name)
		}
		orgs[name] = org
	}
	return orgs, nil
}

// printOrgs prints a line for each organization, and the number of all.
func printOrgs(orgs map[string]listedOrg, to streams) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	bad := 0
	for _, name := range slices.Sorted(maps.Keys(orgs)) {
		line := ""
		if err := orgs[name].err; err != nil {
			line = oneLine(err)
			bad++
		} else {
			facts, keys := auth.Describe(orgs[name].files), 0
			for _, fact := range facts {
				if fact.IsKey() {
					keys++
				}
			}
			line = quantity(keys, "key") + "\t" + quantity(len(facts)-keys, "setting")
		}
		if _, err := fmt.Fprintf(table, "%s\t%s\n", name, line); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := to.printf("%s%s\n", text.String(), quantity(len(orgs), "organization")); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of them cannot be understood", bad)
	}
	return nil
}

// orgShowCommand describes an organization.
type orgShowCommand struct {
	Name string `arg:"" help:"Name of the organization." is:"name"`

	orgsFlags
}

// Run prints a line for each key and each setting that is not the default.
func (c orgShowCommand) Run(ctx context.Context, to streams) error {
	if err := oneOf(c.Orgs, c.Keys); err != nil {
		return err
	}
	if c.Orgs != "" {
		path := filepath.Join(c.Orgs, c.Name)
		files, err := auth.ReadOrganization(os.DirFS(path), c.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return noOrg(c.Name)
		}
		if bad, ok := errors.AsType[*auth.FolderError](err); ok {
			return &usageError{filepath.Join(c.Orgs, bad.Path) + ": " + bad.Reason}
		}
		if err != nil {
			return err
		}
		return printFacts(files, to)
	}
	return c.view(ctx, to, func(now organization.State) error {
		stored, found := now.Orgs[c.Name]
		if !found {
			return noOrg(c.Name)
		}
		return printFacts(stored.Files, to)
	})
}

// printFacts prints what holds of an organization.
func printFacts(files organization.Files, to streams) error {
	for _, fact := range auth.Describe(files) {
		if err := to.printf("%s: %s\n", fact.Name, fact.Value); err != nil {
			return err
		}
	}
	return nil
}

func noOrg(name string) error {
	return fmt.Errorf("there is no organization %q: packhorse org list names them", name)
}

// orgRemoveCommand removes organizations.
type orgRemoveCommand struct {
	Names []string `arg:"" name:"name" help:"Names of organizations." is:"name"`

	orgsFlags
}

// Run removes all of them, or none if there is one of no such name.
func (c orgRemoveCommand) Run(ctx context.Context, to streams) error {
	if err := oneOf(c.Orgs, c.Keys); err != nil {
		return err
	}
	if c.Orgs != "" {
		return removeFolders(c.Orgs, c.Names, to)
	}
	var lines string
	err := c.update(ctx, to, func(now organization.State) (map[string]organization.Files, error) {
		next := make(map[string]organization.Files)
		for _, name := range c.Names {
			if _, found := now.Orgs[name]; !found {
				return nil, noOrg(name)
			}
			next[name] = nil
		}
		lines, _ = changes(now, next)
		return next, nil
	})
	if err != nil {
		return err
	}
	return to.printf("%s", lines)
}

// removeFolders removes organizations of a folder, also those that are not understood.
func removeFolders(dir string, names []string, to streams) error {
	now := organization.State{Orgs: make(map[string]organization.Organization)}
	next := make(map[string]organization.Files)
	if err := checkOwnFolder(dir); err != nil {
		return orgsError(err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return noOrg(name)
		}
		if err != nil {
			return err
		}
		if err := checkOwnFolder(path); err != nil {
			return orgsError(err)
		}
		files, err := auth.ReadOrganization(os.DirFS(path), name)
		if err != nil && !errors.Is(err, auth.ErrFolder) {
			return err
		}
		now.Orgs[name], next[name] = organization.Organization{Files: files}, nil
	}
	for name := range next {
		if err := removeFolder(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove organization %s: %w", name, err)
		}
	}
	lines, _ := changes(now, next)
	return to.printf("%s", lines)
}

// removeFolder removes the folder of an organization, the keys first: a server may be following it.
// Of a link only the link is removed.
func removeFolder(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if filepath.Ext(entry.Name()) != ".pem" {
				continue
			}
			if err := os.Remove(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(path)
}
