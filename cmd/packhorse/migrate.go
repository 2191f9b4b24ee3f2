package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"packhorse/engine/identity"
	"packhorse/engine/migrate"
	"packhorse/engine/organization"
	"packhorse/odb/file"
	"packhorse/odb/file/s3"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
)

// migrateCommand moves repositories between a data folder and stores that several servers share.
type migrateCommand struct {
	Data  string `help:"Data folder to copy from; with --back the one to copy into, which is made if it does not exist." placeholder:"DIR" required:"" type:"path" is:"new folder"`
	Keys  string `help:"PostgreSQL database of keys and small objects: postgres://USER@HOST/DATABASE." placeholder:"URL" required:"" env:"PACKHORSE_KEYS" is:"database"`
	Files string `help:"Bucket of the files: s3://BUCKET/PREFIX?endpoint=URL&region=NAME&path-style=true." placeholder:"URL" required:"" env:"PACKHORSE_FILES" is:"bucket"`
	Back  bool   `help:"Copy from the database and the bucket into the data folder."`
	Orgs  string `help:"Folder of organizations, to store in the database, too; with --back an empty one, to write them to." placeholder:"DIR" type:"path" is:"any folder"`

	logFlags
}

// migrateMemory is the memory of the key-value store in the folder.
const migrateMemory = 128 * mib

// Run copies, or goes on with an earlier run.
func (c migrateCommand) Run(ctx context.Context, to streams) (err error) {
	logger := c.logger(to.errOut)
	var opened closers
	defer func() { err = errors.Join(err, opened.close()) }()
	orgs, err := c.readOrgs()
	if err != nil {
		return err
	}
	if err := c.checkFolder(); err != nil {
		return err
	}
	shared, err := c.openShared(ctx, &opened, logger)
	if err != nil {
		return err
	}
	folder, err := c.openFolder(&opened, logger)
	if err != nil {
		return err
	}
	source, target := folder, shared
	if c.Back {
		source, target = shared, folder
	}
	printer := &taskPrinter{to: to, terminal: isTerminal(to.errOut)}
	defer printer.clear()
	shown := newProgress(&lineWriter{line: printer.print})
	report, err := migrate.Run(ctx, source, target, migrate.Options{Progress: func(r migrate.Report) {
		shown.tell(migrationStep(&r))
	}})
	if err != nil {
		return err
	}
	if err := printer.print(fmt.Sprintf(
		"moved to %s: %s, %s (%s, %s copied now); %s, %s, equal in both by SHA-256 %x",
		target.Place, quantity(report.FileCount, "file"), quantity(report.FileBytes, "byte"),
		quantity(report.CopiedCount, "file"), quantity(report.CopiedBytes, "byte"), quantity(report.RowCount, "row"),
		quantity(report.RowBytes, "byte"), report.Sum)); err != nil {
		return err
	}
	return c.moveOrgs(ctx, shared.Keys, orgs, to)
}

// migrationStep is how far a phase of a migration has come.
func migrationStep(r *migrate.Report) step {
	switch r.Phase {
	case "files":
		return step{
			phase: r.Phase, text: fmt.Sprintf("%s, %s, copied", quantity(r.FileCount, "file"), bytesOf(r.FileBytes)),
			done: r.CopiedBytes, unit: bytesOf,
		}
	case "rows":
		return step{phase: r.Phase, text: quantity(r.RowCount, "row") + " copied", done: r.RowBytes, unit: bytesOf}
	default:
		return step{phase: r.Phase, text: "rows verified", done: r.VerifiedCount, total: r.RowCount}
	}
}

// readOrgs reads the organizations that are to be stored, none without --orgs, and makes sure that
// others can be written there.
func (c migrateCommand) readOrgs() (map[string]organization.Files, error) {
	check := checkFolder
	switch {
	case c.Orgs == "":
		return nil, nil
	case c.Back:
		if err := checkExport(c.Orgs); err != nil {
			return nil, err
		}
		check = checkNewFolder
	}
	if err := check(c.Orgs); err != nil || c.Back {
		return nil, orgsError(err)
	}
	orgs, isOne, err := readOrgs(c.Orgs)
	if err == nil && isOne {
		err = &usageError{fmt.Sprintf("--orgs: want a folder of organizations, and %s is that of one", c.Orgs)}
	}
	return orgs, err
}

// orgsError names the flag of a folder of organizations that cannot be used; nil stays nil.
func orgsError(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{fmt.Sprintf("--orgs: %v", err)}
}

// moveOrgs stores the organizations in the database, or writes those that are there to the folder.
// Without --orgs it says how that is done later.
func (c migrateCommand) moveOrgs(
	ctx context.Context, keys kv.Store, orgs map[string]organization.Files, to streams,
) error {
	switch {
	case c.Orgs == "" && c.Back:
		return to.printf("organizations stay where they are: packhorse org export DIR --keys ... writes them to a folder\n")
	case c.Orgs == "":
		return to.printf("organizations stay where they are: packhorse org apply DIR --keys ... stores them in the database\n")
	case c.Back:
		return exportOrgs(ctx, keys, c.Orgs, to)
	}
	err := applyOrgs(ctx, keys, to, func(organization.State) map[string]organization.Files { return orgs })
	if err != nil {
		return fmt.Errorf("the repositories were moved, and not the organizations, for which there is packhorse org apply: %w",
			err)
	}
	return nil
}

// closers are closed in the order opposite to that of their opening.
type closers []func() error

func (c *closers) add(closing func() error) { *c = append(*c, closing) }

func (c *closers) close() error {
	var errs []error
	for _, closing := range slices.Backward(*c) {
		errs = append(errs, closing())
	}
	return errors.Join(errs...)
}

// checkFolder returns an error if the data folder cannot be that of the migration.
func (c migrateCommand) checkFolder() error {
	_, err := os.Stat(filepath.Join(c.Data, keysFolder))
	if !c.Back && err != nil { // opening would make a store
		return fmt.Errorf("%s contains no store: %w", c.Data, err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(checkRestored(c.Data), sharedFlags{}.check(c.Data), keepPrivate(c.Data, keysFolder, filesFolder))
}

// openFolder opens the stores in the data folder.
func (c migrateCommand) openFolder(opened *closers, logger *slog.Logger) (migrate.Stores, error) {
	keys, err := kv.OpenPebble(filepath.Join(c.Data, keysFolder),
		kv.PebbleOptions{MemoryBytes: int64(migrateMemory), Logger: logger})
	if errors.Is(err, kv.ErrLocked) {
		return migrate.Stores{}, c.inUse()
	}
	if err != nil {
		return migrate.Stores{}, err
	}
	opened.add(keys.Close)
	files, err := file.OpenDir(filepath.Join(c.Data, filesFolder), file.DirOptions{})
	if err != nil {
		return migrate.Stores{}, err
	}
	opened.add(files.Close)
	return migrate.Stores{Keys: keys, Files: files, Place: "folder " + c.Data}, nil
}

// openShared opens the database and the bucket. The spool of the latter lies in the data folder.
func (c migrateCommand) openShared(ctx context.Context, opened *closers, logger *slog.Logger) (migrate.Stores, error) {
	location, err := s3.ParseLocation(c.Files)
	if err != nil {
		return migrate.Stores{}, &usageError{"--files: " + err.Error()}
	}
	keys, err := postgres.Open(ctx, postgres.Options{URL: c.Keys, Logger: logger})
	if err != nil {
		return migrate.Stores{}, fmt.Errorf("--keys: %w", err)
	}
	opened.add(keys.Close)
	spool := filepath.Join(c.Data, spoolFolder)
	bucket, err := s3.Open(ctx, s3.Options{Location: location, Dir: spool, Log: logger})
	if errors.Is(err, file.ErrLocked) {
		return migrate.Stores{}, c.inUse()
	}
	if err != nil {
		return migrate.Stores{}, fmt.Errorf("--files: %w", err)
	}
	opened.add(func() error { return errors.Join(bucket.Close(), os.RemoveAll(spool)) })
	return migrate.Stores{
		Keys: keys, Files: bucket, Place: fmt.Sprintf("database %s and bucket %s", keys, bucket),
		Claim: func(ctx context.Context, id, place string) (string, error) {
			if !c.Back {
				if _, err := bucket.Probe(ctx, intent.ProbeName()); err != nil {
					return "", fmt.Errorf("--files: %w", err)
				}
			}
			place, err := bucket.Claim(ctx, id, place)
			if err != nil {
				err = fmt.Errorf("--files: %w", err)
			}
			return place, err
		},
	}, nil
}

func (c migrateCommand) inUse() error { return fmt.Errorf("%s %w: stop it first", c.Data, errInUse) }

// nameStore adds to an error of stores that a migration has left unusable which of them they are.
func nameStore(dir string, flags sharedFlags, err error) error {
	if !errors.Is(err, identity.ErrMoved) && !errors.Is(err, identity.ErrUnfinished) {
		return err
	}
	if flags.shared() {
		dir = "the database of --keys"
	}
	return fmt.Errorf("%s cannot be opened: %w", dir, err)
}
