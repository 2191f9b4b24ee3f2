package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"packhorse/cmd/packhorse/apiclient"
	"packhorse/engine/upstream/remote"
	"packhorse/pack"
	"packhorse/pack/object"
)

// commandsMax is how many refs one push changes; a server takes 10,000 unless it is told otherwise.
const commandsMax = 5000

// compare returns the changes that give ours the refs of theirs. The branch of HEAD comes first,
// then other branches and tags: what most of the objects belong to.
func compare(ours, theirs []remote.Ref, head string) []remote.Command {
	have := make(map[string]object.ID, len(ours))
	for _, ref := range ours {
		have[ref.Name] = ref.ID
	}
	var changes []remote.Command
	for _, ref := range theirs {
		if have[ref.Name] != ref.ID {
			changes = append(changes, remote.Command{Name: ref.Name, Old: have[ref.Name], New: ref.ID})
		}
	}
	order := func(c remote.Command) int {
		switch {
		case c.Name == head:
			return 0
		case strings.HasPrefix(c.Name, "refs/heads/"):
			return 1
		case strings.HasPrefix(c.Name, "refs/tags/"):
			return 2
		}
		return 3
	}
	slices.SortStableFunc(changes, func(a, b remote.Command) int { return cmp.Compare(order(a), order(b)) })
	return changes
}

// branchName returns the branch of a full refname.
func branchName(name string) string { return strings.TrimPrefix(name, "refs/heads/") }

// pushing is the way of one repository.
type pushing struct {
	importer *Importer
	job      Job
	from     origin
	meter    *Meter
	head     string
	changes  []remote.Command
	ours     []remote.Ref
	exists   bool // on the server
}

// refusedMax is how many refused refs an error names.
const refusedMax = 3

// run pushes all changes. Refs that the server refuses are an error, when the others have been
// pushed.
func (p *pushing) run(ctx context.Context) error {
	if len(p.changes) == 0 {
		return p.create(ctx)
	}
	has := make(map[object.ID]bool)
	for _, ref := range p.ours {
		has[ref.ID] = true
	}
	var refused []string
	for part := range slices.Chunk(p.changes, cmp.Or(p.importer.CommandsMax, commandsMax)) {
		results, err := p.push(ctx, part, has)
		if err != nil {
			return err
		}
		for number, result := range results {
			if result.Reason != "" {
				refused = append(refused, result.Name+": "+result.Reason)
				continue
			}
			has[part[number].New] = true
		}
	}
	if count := len(refused); count > 0 {
		text := strings.Join(refused[:min(count, refusedMax)], "; ")
		if count > refusedMax {
			text += fmt.Sprintf("; and %d more", count-refusedMax)
		}
		return fmt.Errorf("the server refused %d of %d refs: %s", count, len(p.changes), text)
	}
	return nil
}

// create makes the repository unless it exists. It waits until the origin has something to send.
func (p *pushing) create(ctx context.Context) error {
	if p.exists {
		return nil
	}
	err := p.importer.Server.Create(ctx, p.job.Name, branchName(p.head))
	if err != nil && !apiclient.HasStatus(err, http.StatusConflict) { // another one may have made it meanwhile
		return err
	}
	p.exists = true
	return nil
}

// push pushes some changes. has are objects that the server has, with all that they reach.
func (p *pushing) push(
	ctx context.Context, changes []remote.Command, has map[object.ID]bool,
) (_ []remote.Result, err error) {
	var wants []object.ID
	wanted := make(map[object.ID]bool)
	for _, change := range changes {
		if !has[change.New] && !wanted[change.New] {
			wanted[change.New] = true
			wants = append(wants, change.New)
		}
	}
	out := &outgoing{write: writeEmptyPack, close: func() error { return nil }}
	if len(wants) > 0 {
		haves := make([]object.ID, 0, len(has))
		for id := range has {
			haves = append(haves, id)
		}
		slices.SortFunc(haves, object.ID.Compare)
		if out, err = p.from.pack(ctx, wants, haves); err != nil {
			return nil, fmt.Errorf("read %s: %w", p.job.From, err)
		}
		defer func() { err = errors.Join(err, out.close()) }()
	}
	if err := p.create(ctx); err != nil {
		return nil, err
	}
	sent, _ := p.meter.Sent()
	p.meter.total.Store(cmp.Or(sent+out.bytes, p.job.Bytes))
	return p.importer.Server.Remote(p.job.Name, "+import", hostLimits).Push(ctx, remote.PushRequest{
		Commands: changes,
		Pack:     func(w io.Writer) error { return out.write(io.MultiWriter(w, p.meter)) },
	})
}

// writeEmptyPack writes the pack of changes that need no objects.
func writeEmptyPack(to io.Writer) error {
	_, err := pack.NewWriter(to, 0).Close()
	return err
}
