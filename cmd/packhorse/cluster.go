package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"packhorse/engine/cluster"
	"packhorse/odb/intent"
)

// clusterCommand lists the servers that share a database.
type clusterCommand struct {
	// A live server is heard of every 3 seconds.
	Watch time.Duration `help:"How long to watch the servers: one that is not heard of meanwhile is silent." default:"4s" min:"4s"`

	logFlags
	sharedFlags
}

// Run prints a line for each server, and one about all of them.
func (c clusterCommand) Run(ctx context.Context, to streams) (err error) {
	if c.Keys == "" {
		return &usageError{"--keys names the database that the servers share; a server without it is alone"}
	}
	keys, err := c.openKeys(ctx, c.logger(to.errOut), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keys.Close()) }()
	before, err := cluster.List(ctx, keys)
	if err != nil {
		return err
	}
	select {
	case <-time.After(c.Watch):
	case <-ctx.Done():
		return ctx.Err()
	}
	now, err := cluster.List(ctx, keys)
	if err != nil {
		return err
	}
	intents, err := intent.Count(ctx, keys)
	if err != nil {
		return err
	}
	live := make(map[string]bool)
	for _, server := range cluster.Renewed(before, now) {
		live[server.ID] = true
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, server := range now {
		state := "silent"
		if live[server.ID] {
			state = "live"
		}
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", server.ID, state, orDash(server.Version), orDash(server.URL),
			orDash(strings.Join(server.Duties, ","))); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var writing, left int
	known := make(map[string]bool)
	for _, server := range now {
		known[server.ID] = true
	}
	for server, count := range intents {
		if known[hex.EncodeToString(server[:])] {
			writing += count
		} else {
			left += count
		}
	}
	return to.printf("%s%s, %s of files that they store, %d of files that others have left\n", text.String(),
		quantity(len(now), "server"), quantity(writing, "note"), left)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
