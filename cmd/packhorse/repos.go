package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"packhorse/cmd/packhorse/apiclient"
	"packhorse/cmd/packhorse/transfer"
)

// reposCommand works on repositories of a running server.
type reposCommand struct {
	List       reposListCommand       `cmd:"" help:"List the repositories of the organization, in order of creation."`
	Show       reposShowCommand       `cmd:"" help:"Describe a repository, and what it stores."`
	Rename     reposRenameCommand     `cmd:"" help:"Give a repository another name."`
	SetDefault reposSetDefaultCommand `cmd:"" help:"Make another branch the default one, which clones check out."`
	Delete     reposDeleteCommand     `cmd:"" help:"Delete a repository."`
	Undelete   reposUndeleteCommand   `cmd:"" help:"Bring a deleted repository back."`
}

// formatFlags choose between a table and JSON.
type formatFlags struct {
	JSON bool `help:"Print one JSON object a line, also on a terminal." name:"json"`
}

// table reports whether a table is printed.
func (f formatFlags) table(to streams) bool { return !f.JSON && terminalWidth(to.out) > 0 }

// printJSON prints a value as a line.
func (to streams) printJSON(value any) error { return json.NewEncoder(to.out).Encode(value) }

type reposListCommand struct {
	apiFlags
	formatFlags

	Deleted bool `help:"Only those that were deleted and can be brought back, in order of their deletion."`

	Match string `arg:"" optional:"" help:"Only repositories whose names contain it; case is ignored." is:"text"`
}

// tableRows is how many rows a table aligns at a time: what it holds in memory.
const tableRows = 1000

// Run prints the repositories as they come.
func (c reposListCommand) Run(ctx context.Context, to streams) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	if !c.table(to) {
		return server.List(ctx, c.Match, c.Deleted, func(r apiclient.Repository) error { return to.printJSON(r) })
	}
	table, rows := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0), 0
	last := ""
	if c.Deleted {
		last = "\tDELETED\tGONE AT"
	}
	if _, err := fmt.Fprintln(table, "NAME\tDEFAULT BRANCH\tCREATED\tID"+last); err != nil {
		return err
	}
	err = server.List(ctx, c.Match, c.Deleted, func(r apiclient.Repository) error {
		last := ""
		if c.Deleted {
			last = "\t" + r.DeletedAt.Format(time.DateTime) + "\t" + r.PurgeAt.Format(time.DateTime)
		}
		_, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s%s\n", r.Name, r.DefaultBranch, r.CreatedAt.Format(time.DateTime), r.ID, last)
		if err != nil {
			return err
		}
		if rows++; rows%tableRows == 0 {
			return table.Flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return table.Flush()
}

type reposShowCommand struct {
	apiFlags
	formatFlags

	Repo string `arg:"" help:"Repository." is:"repository"`
}

// Run prints the repository.
func (c reposShowCommand) Run(ctx context.Context, to streams) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	found, err := server.Show(ctx, c.Repo)
	if err != nil {
		return err
	}
	usage, err := server.Usage(ctx, c.Repo)
	if err != nil {
		return err
	}
	if !c.table(to) {
		return to.printJSON(struct {
			apiclient.Repository
			apiclient.Usage
		}{found, usage})
	}
	table := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(table, name+"\t"+format+"\n", values...) // Flush tells of errors
	}
	row("name", "%s", found.Name)
	row("id", "%s", found.ID)
	row("default branch", "%s", found.DefaultBranch)
	row("created", "%s", found.CreatedAt.Format(time.DateTime))
	row("last write", "%s", usage.LastWrite.Format(time.DateTime))
	row("refs", "%d", usage.Refs)
	row("objects", "%d", usage.Objects)
	row("stored", "%s", transfer.SizeText(usage.StoredBytes))
	row("shared with forks", "%s", transfer.SizeText(usage.SharedBytes))
	row("borrowed from the base", "%s", transfer.SizeText(usage.BorrowedBytes))
	if found.Base != nil {
		row("upstream", "%s %s/%s", found.Base.Provider, found.Base.Owner, found.Base.Name)
	}
	if found.Sync != nil {
		row("sync", "%s %s", found.Sync.State, found.Sync.LastError)
	}
	return table.Flush()
}

type reposRenameCommand struct {
	apiFlags

	Repo string `arg:"" help:"Repository." is:"repository"`
	Name string `arg:"" help:"New name." is:"repository"`
}

// Run renames the repository.
func (c reposRenameCommand) Run(ctx context.Context, to streams) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	if err := server.Rename(ctx, c.Repo, c.Name); err != nil {
		return err
	}
	return to.printf("renamed %s to %s\n", c.Repo, c.Name)
}

type reposSetDefaultCommand struct {
	apiFlags

	Repo   string `arg:"" help:"Repository." is:"repository"`
	Branch string `arg:"" help:"Branch, which must exist unless the repository has none." is:"text"`
}

// Run moves the default branch.
func (c reposSetDefaultCommand) Run(ctx context.Context, to streams) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	if err := server.SetDefaultBranch(ctx, c.Repo, c.Branch); err != nil {
		return err
	}
	return to.printf("the default branch of %s is %s\n", c.Repo, c.Branch)
}

type reposDeleteCommand struct {
	apiFlags

	Repo string `arg:"" help:"Repository." is:"repository"`
}

// Run deletes the repository.
func (c reposDeleteCommand) Run(ctx context.Context, to streams) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	deleted, err := server.Delete(ctx, c.Repo)
	if err != nil {
		return err
	}
	until := ""
	if !deleted.PurgeAt.IsZero() {
		until = "; undelete brings it back until " + deleted.PurgeAt.Format(time.DateTime)
	}
	return to.printf("deleted %s, which was %s%s\n", c.Repo, deleted.ID, until)
}

type reposUndeleteCommand struct {
	apiFlags

	ID   string `help:"Which one, of several that had the name." placeholder:"ID" name:"id" is:"repository id"`
	Name string `help:"New name, if the former one was taken again." placeholder:"NAME" name:"as" is:"repository"`
	Repo string `arg:"" help:"Name that the repository had." is:"repository"`
}

// Run brings the repository back.
func (c reposUndeleteCommand) Run(ctx context.Context, to streams) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	back, err := server.Undelete(ctx, c.Repo, c.ID, c.Name)
	if err != nil {
		return err
	}
	return to.printf("%s is back, as %s\n", back.ID, back.Name)
}
