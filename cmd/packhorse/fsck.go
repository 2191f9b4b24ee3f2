package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"packhorse/engine"
)

// fsckCommand checks a data folder.
type fsckCommand struct{ taskFlags }

// fsckArgs are the arguments of the task; there are none.
type fsckArgs struct{}

// Run checks through the server that has the folder open, or opens it itself. Damage makes it fail.
func (c fsckCommand) Run(ctx context.Context, to streams) error {
	return c.run(ctx, "fsck", fsckArgs{}, to)
}

var errDamaged = errors.New("damage was found")

// runFsck checks every repository, and prints the faults and the numbers of checked items.
func runFsck(ctx context.Context, host *engine.Host, _ fsckArgs, out io.Writer) error {
	shown := newProgress(out)
	count, _, _, err := host.CountRepositories(ctx)
	if err != nil {
		return err
	}
	var repositories, objects, damaged int64
	var unregistered struct{ count, bytes int64 }
	found := false
	var list []string
	options := engine.FsckOptions{Progress: func(name string, done, _ int64) { // more objects turn up on the way
		shown.tell(step{
			phase: "check", text: fmt.Sprintf("repository %d of %d, %s", repositories+1, count, name), done: objects + done,
			unit: func(n int64) string { return quantity(n, "object") },
		})
	}}
	for checked, err := range host.Fsck(ctx, options) {
		if err != nil {
			return fmt.Errorf("failed to finish the check: %w", err)
		}
		if !checked.IsStore() {
			repositories++
		}
		objects += checked.Objects.ObjectCount
		unregistered.count += checked.Objects.UnregisteredCount
		unregistered.bytes += checked.Objects.UnregisteredBytes
		if err := printWarnings(out, &checked); err != nil {
			return err
		}
		if !checked.Damaged() {
			continue
		}
		found = true
		if !checked.IsStore() {
			damaged++
		}
		if err := printDamage(out, &checked); err != nil {
			return err
		}
		if len(list) < listMax {
			list = append(list, fmt.Sprintf("damaged: %s: %s; %s\n", nameOf(&checked),
				quantity(checked.ProblemCount(), "problem"), checked.Heal()))
		}
	}
	if _, err := fmt.Fprintf(
		out, "%s, %s, %s damaged\n", quantity(repositories, "repository"), quantity(objects, "object"),
		quantity(damaged, "repository"),
	); err != nil {
		return err
	}
	if unregistered.count > 0 {
		if _, err := fmt.Fprintf(out, "%s of %s in the bucket that nothing names; gc --remove-unregistered removes them\n",
			quantity(unregistered.count, "file"), quantity(unregistered.bytes, "byte")); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(out, strings.Join(list, "")); err != nil {
		return err
	}
	if found {
		return errDamaged
	}
	return nil
}

// listMax bounds the list of damaged repositories behind everything else.
const listMax = 10_000

// nameOf returns the printed name of a repository, "store" for damage outside repositories.
func nameOf(checked *engine.Checked) string {
	switch {
	case checked.IsStore():
		return "store"
	case checked.Name == "":
		return checked.Repository.String()
	default:
		return checked.Org + "/" + checked.Name
	}
}

// printDamage prints one line for each problem.
func printDamage(out io.Writer, checked *engine.Checked) error {
	name := nameOf(checked)
	for _, line := range checked.Problems() {
		if _, err := fmt.Fprintf(out, "%s: %s\n", name, line); err != nil {
			return err
		}
	}
	return nil
}

// printWarnings prints a line for each stored object with a fault in git's eyes. That is no damage.
func printWarnings(out io.Writer, checked *engine.Checked) error {
	for _, line := range checked.Warnings() {
		if _, err := fmt.Fprintf(out, "%s/%s: warning: %s\n", checked.Org, checked.Name, line); err != nil {
			return err
		}
	}
	return nil
}
