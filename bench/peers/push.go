package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"packhorse/bench/process"
	"packhorse/pack/pktline"
)

// delivery is a commit ready to be pushed: its pack is made before anything is measured.
type delivery struct {
	before, after string
	pack          []byte
}

// deliveries makes a chain of commits on top of the source's tip, each changing one file, with the
// thin pack of each.
func deliveries(ctx context.Context, src source, dir, chain string, count int) ([]delivery, error) {
	work := filepath.Join(dir, "chain-"+chain+".git")
	if err := run(exec.CommandContext(ctx, "git", "clone", "-q", "--bare", "--shared", src.dir, work)); err != nil {
		return nil, err
	}
	var stream strings.Builder
	for i := range count {
		text := fmt.Sprintf("%s %d\n", chain, i)
		fmt.Fprintf(&stream, "commit refs/heads/chain\ncommitter Bench <bench@example.com> %d +0000\ndata %d\n%s",
			1_800_000_000+i, len(text), text)
		if i == 0 {
			fmt.Fprintf(&stream, "from %s\n", src.tip)
		}
		fmt.Fprintf(&stream, "M 100644 inline bench/%s.txt\ndata %d\n%s\n", chain, len(text), text)
	}
	imports := exec.CommandContext(ctx, "git", "-C", work, "fast-import", "--quiet")
	imports.Stdin = strings.NewReader(stream.String())
	if err := run(imports); err != nil {
		return nil, err
	}
	list, err := process.Output(exec.CommandContext(ctx, "git", "-C", work, "rev-list", "--reverse",
		src.tip+"..refs/heads/chain"))
	if err != nil {
		return nil, err
	}
	made := make([]delivery, 0, count)
	before := src.tip
	for after := range strings.FieldsSeq(list) {
		objects := exec.CommandContext(ctx, "git", "-C", work, "pack-objects", "--quiet", "--revs", "--thin", "--stdout",
			"--delta-base-offset")
		objects.Stdin = strings.NewReader(after + "\n^" + before + "\n")
		pack, err := process.Output(objects)
		if err != nil {
			return nil, err
		}
		made = append(made, delivery{before: before, after: after, pack: []byte(pack)})
		before = after
	}
	return made, nil
}

// push sends one commit, as git does: the advertisement first, then the command and its pack.
func (c *client) push(ctx context.Context, ref string, d delivery) error {
	if err := c.discover(ctx, "git-receive-pack"); err != nil {
		return err
	}
	var ask bytes.Buffer
	w := pktline.NewWriter(&ask)
	command := fmt.Sprintf("%s %s %s\x00 report-status object-format=sha1", d.before, d.after, ref)
	if err := errors.Join(w.String(command), w.Flush()); err != nil {
		return err
	}
	ask.Write(d.pack)
	body, err := c.post(ctx, "git-receive-pack", ask.Bytes())
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // read to its end
	accepted := false
	lines := pktline.NewReader(body)
	for {
		kind, line, err := lines.Read()
		switch {
		case err != nil:
			return err
		case kind == pktline.Flush && accepted:
			return nil
		case kind == pktline.Flush:
			return errors.New("push: the ref was not reported")
		case strings.HasPrefix(string(line), "ng ") ||
			strings.HasPrefix(string(line), "unpack ") && string(line) != "unpack ok\n":
			return fmt.Errorf("push: %s", line)
		}
		accepted = accepted || string(line) == "ok "+ref+"\n"
	}
}
