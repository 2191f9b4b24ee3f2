package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"packhorse/cmd/packhorse/transfer"
	"packhorse/engine/webhook"
)

// reposCommand works on repositories: on those of one organization through the API of a running
// server, or on all for the operator of a data folder. reposways.go has the two ways, and
// repostasks.go what the second one does in the process that has the folder open.
type reposCommand struct {
	List       reposListCommand       `cmd:"" help:"List the repositories of an organization, or of all in --data, in order of creation."`
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
	reposFlags
	formatFlags

	Deleted bool `help:"Only those that were deleted and can be brought back, in order of their deletion."`

	Match string `arg:"" optional:"" help:"Only repositories whose names contain it; case is ignored." is:"text"`
}

// tableRows is how many rows a table aligns at a time: what it holds in memory.
const tableRows = 1000

// column is a column of a listing.
type column struct {
	name string
	cell func(r *listedRepository) string
}

// columns returns those of the listing. An operator sees more, but for the IDs of what is there.
func (c reposListCommand) columns(now time.Time) []column {
	name := column{"NAME", func(r *listedRepository) string { return r.Name }}
	branch := column{"DEFAULT BRANCH", func(r *listedRepository) string { return r.DefaultBranch }}
	id := column{"ID", func(r *listedRepository) string { return r.ID }}
	at := func(name string, of func(r *listedRepository) time.Time) column {
		return column{name, func(r *listedRepository) string { return of(r).Format(time.DateTime) }}
	}
	created := at("CREATED", func(r *listedRepository) time.Time { return r.CreatedAt })
	deleted := at("DELETED", func(r *listedRepository) time.Time { return r.DeletedAt })
	org := column{"ORGANIZATION", func(r *listedRepository) string { return r.Org }}
	stored := column{"STORED", func(r *listedRepository) string { return transfer.SizeText(r.StoredBytes) }}
	switch {
	case !c.forOperator() && !c.Deleted:
		return []column{name, branch, created, id}
	case !c.forOperator():
		gone := at("GONE AT", func(r *listedRepository) time.Time { return r.PurgeAt })
		return []column{name, branch, created, id, deleted, gone}
	case c.Deleted:
		by := column{"BY", func(r *listedRepository) string { return orDash(r.DeletedBy) }}
		gone := column{"GONE AT", func(r *listedRepository) string { return moment(r.PurgeAt, now) }}
		return []column{org, name, stored, deleted, by, gone, id}
	default:
		written := at("LAST WRITE", func(r *listedRepository) time.Time { return r.LastWrite })
		syncs := column{"SYNC", func(r *listedRepository) string { return orDash(r.syncText()) }}
		hooks := column{"WEBHOOKS", func(r *listedRepository) string { return orDash(backlogText(r.Webhooks)) }}
		return []column{org, name, stored, written, branch, syncs, hooks}
	}
}

// syncText is the state of the syncs, "" without an upstream. What is damaged is told there.
func (r *listedRepository) syncText() string {
	switch {
	case r.Damage != "":
		return "damaged: " + r.Damage
	case r.Sync == nil:
		return ""
	}
	return r.Sync.State
}

// backlogText says what waits to be sent, "" for nothing.
func backlogText(b *webhook.Backlog) string {
	if b == nil || *b == (webhook.Backlog{}) {
		return ""
	}
	return fmt.Sprintf("%d parked, %d transactions behind, %d dead", b.Parked, b.Behind, b.Dead)
}

// Run prints the repositories as they come.
func (c reposListCommand) Run(ctx context.Context, selected *kong.Context, to streams) error {
	at, err := c.reach(selected, true, to)
	if err != nil {
		return err
	}
	if !c.table(to) {
		return at.list(ctx, c.Match, c.Deleted, func(r listedRepository) error { return to.printJSON(at.line(r)) })
	}
	table, rows := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0), 0
	columns := c.columns(time.Now())
	cells := make([]string, len(columns))
	row := func(cell func(one column) string) error {
		for i, one := range columns {
			cells[i] = cell(one)
		}
		_, err := fmt.Fprintln(table, strings.Join(cells, "\t"))
		return err
	}
	if err := row(func(one column) string { return one.name }); err != nil {
		return err
	}
	err = at.list(ctx, c.Match, c.Deleted, func(r listedRepository) error {
		if err := row(func(one column) string { return one.cell(&r) }); err != nil {
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
	reposFlags
	formatFlags

	Repo string `arg:"" help:"Repository." is:"repository"`
}

// Run prints the repository.
func (c reposShowCommand) Run(ctx context.Context, selected *kong.Context, to streams) error {
	at, err := c.reach(selected, false, to)
	if err != nil {
		return err
	}
	found, err := at.show(ctx, c.Repo)
	if err != nil {
		return err
	}
	if !c.table(to) {
		return to.printJSON(found)
	}
	table := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(table, name+"\t"+format+"\n", values...) // Flush tells of errors
	}
	if found.Org != "" {
		row("organization", "%s", found.Org)
	}
	row("name", "%s", found.Name)
	row("id", "%s", found.ID)
	row("default branch", "%s", found.DefaultBranch)
	row("created", "%s", found.CreatedAt.Format(time.DateTime))
	row("last write", "%s", found.LastWrite.Format(time.DateTime))
	row("refs", "%d", found.Refs)
	row("objects", "%d", found.Objects)
	row("stored", "%s", transfer.SizeText(found.StoredBytes))
	row("shared with forks", "%s", transfer.SizeText(found.SharedBytes))
	row("borrowed from the base", "%s", transfer.SizeText(found.BorrowedBytes))
	if found.Base != nil {
		row("upstream", "%s %s/%s", found.Base.Provider, found.Base.Owner, found.Base.Name)
	}
	if found.Sync != nil {
		row("sync", "%s %s", found.Sync.State, found.Sync.LastError)
		if found.Sync.LastSuccess != "" {
			row("last sync", "%s", found.Sync.LastSuccess)
		}
	}
	if text := backlogText(found.Webhooks); text != "" {
		row("webhooks", "%s", text)
		row("last error", "%s", orDash(found.Webhooks.LastError))
	}
	return table.Flush()
}

type reposRenameCommand struct {
	reposFlags

	Repo string `arg:"" help:"Repository." is:"repository"`
	Name string `arg:"" help:"New name." is:"repository"`
}

// Run renames the repository.
func (c reposRenameCommand) Run(ctx context.Context, selected *kong.Context, to streams) error {
	at, err := c.reach(selected, false, to)
	if err != nil {
		return err
	}
	if err := at.rename(ctx, c.Repo, c.Name); err != nil {
		return err
	}
	return to.printf("renamed %s to %s\n", c.Repo, c.Name)
}

type reposSetDefaultCommand struct {
	reposFlags

	Repo   string `arg:"" help:"Repository." is:"repository"`
	Branch string `arg:"" help:"Branch, which must exist unless the repository has none." is:"text"`
}

// Run moves the default branch.
func (c reposSetDefaultCommand) Run(ctx context.Context, selected *kong.Context, to streams) error {
	at, err := c.reach(selected, false, to)
	if err != nil {
		return err
	}
	if err := at.setDefault(ctx, c.Repo, c.Branch); err != nil {
		return err
	}
	return to.printf("the default branch of %s is %s\n", c.Repo, c.Branch)
}

type reposDeleteCommand struct {
	reposFlags

	Repo string `arg:"" help:"Repository." is:"repository"`
}

// Run deletes the repository.
func (c reposDeleteCommand) Run(ctx context.Context, selected *kong.Context, to streams) error {
	at, err := c.reach(selected, false, to)
	if err != nil {
		return err
	}
	deleted, err := at.delete(ctx, c.Repo)
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
	reposFlags

	ID   string `help:"Which one, of several that had the name." placeholder:"ID" name:"id" is:"repository id"`
	Name string `help:"New name, if the former one was taken again." placeholder:"NAME" name:"as" is:"repository"`
	Repo string `arg:"" help:"Name that the repository had." is:"repository"`
}

// Run brings the repository back.
func (c reposUndeleteCommand) Run(ctx context.Context, selected *kong.Context, to streams) error {
	at, err := c.reach(selected, false, to)
	if err != nil {
		return err
	}
	back, err := at.undelete(ctx, c.Repo, c.ID, c.Name)
	if err != nil {
		return err
	}
	return to.printf("%s is back, as %s\n", back.ID, back.Name)
}
