package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"packhorse/cmd/packhorse/gitdir"
	"packhorse/cmd/packhorse/transfer"
	"packhorse/engine/upstream/remote"
	"packhorse/pack/object"
)

// exportCommand writes a repository of a running server as a bare one.
type exportCommand struct {
	apiFlags

	Repo string `arg:"" help:"Repository." is:"repository"`
	Dir  string `arg:"" help:"Folder to make." type:"path" is:"absent folder"`
}

// exportLimits are those of a server that an operator names.
var exportLimits = remote.Limits{Refs: 1_000_000, NameBytes: 128 << 20, PackBytes: 1 << 50}

// wantsMax is how many objects one fetch asks for.
const wantsMax = 50_000

// Run writes the folder, whole or not at all.
func (c exportCommand) Run(ctx context.Context, to streams) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	far := server.Remote(c.Repo, "", exportLimits)
	ad, err := far.Refs(ctx)
	if errors.Is(err, remote.ErrNotFound) {
		return fmt.Errorf("repository %q not found: packhorse repos list prints those of organization %s", c.Repo, c.Org)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", c.Repo, err)
	}
	objects, size, err := gitdir.Write(ctx, c.Dir, gitdir.Content{
		Refs: ad.Refs, Head: ad.Head,
		Packs: func(ctx context.Context, take func(io.Reader) error) error {
			for wants := range slices.Chunk(tips(ad.Refs), wantsMax) {
				pack, err := far.Fetch(ctx, ad, remote.FetchRequest{Wants: wants})
				if err != nil {
					return err
				}
				if err := errors.Join(take(pack), pack.Close()); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	return to.printf("exported %s to %s: %s, %s, %s\n", c.Repo, c.Dir, quantity(len(ad.Refs), "ref"), quantity(objects, "object"),
		transfer.SizeText(size))
}

// tips returns the objects that refs point to, each once.
func tips(refs []remote.Ref) []object.ID {
	ids := make([]object.ID, 0, len(refs))
	for _, ref := range refs {
		ids = append(ids, ref.ID)
	}
	slices.SortFunc(ids, object.ID.Compare)
	return slices.Compact(ids)
}
