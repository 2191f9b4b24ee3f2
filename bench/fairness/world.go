package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"packhorse/bench/process"
	"packhorse/cmd/packhorse/packhorsetest"
)

// world is a server with a repository for each side.
type world struct {
	server    *packhorsetest.Server
	attacker  *exec.Cmd // nil if nobody attacks
	victim    order
	aggressor order
	hooked    order        // an aggressor whose organization has hooks
	hooks     net.Listener // accepts, and never answers
}

const (
	attackingOrg = "evil"
	hookedOrg    = "hooked"
	hookCount    = 64
)

// installation is what a server is started from.
type installation struct {
	bin   string // the packhorse binary
	dir   string // holds everything of the server
	admin string // address of the admin listener; "": none
}

// openWorld starts the server and fills each repository with the history.
func openWorld(ctx context.Context, s settings, history order, mixture string, in installation) (_ *world, err error) {
	w := &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.hooks, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	flags := []string{"--upstream-allow", "127.0.0.1"}
	if in.admin != "" {
		flags = append(flags, "--admin-listen", in.admin)
	}
	err = behind(func() (err error) {
		w.server, err = packhorsetest.Start(ctx, packhorsetest.Options{Bin: in.bin, Dir: in.dir, Flags: flags})
		return err
	})
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(w.server.KeyFile())
	if err != nil {
		return nil, err
	}
	history.Address, history.Key = strings.TrimPrefix(w.server.URL, "http://"), key
	w.victim, w.aggressor, w.hooked = history, history, history
	w.victim.Org, w.victim.Repo = packhorsetest.Org, "victim"
	w.aggressor.Org, w.aggressor.Repo = packhorsetest.Org, "aggressor"
	w.hooked.Org, w.hooked.Repo = packhorsetest.Org, "hooked"
	orgs := filepath.Dir(w.server.OrgDir())
	if !s.repos {
		w.aggressor.Org, w.hooked.Org = attackingOrg, hookedOrg
		for _, org := range []string{attackingOrg, hookedOrg} {
			if err := w.server.AddOrg(ctx, org); err != nil {
				return nil, err
			}
		}
	}
	if hooks(mixture) { // the victim has them too, if it is of the same organization
		if err := w.hang(filepath.Join(orgs, w.hooked.Org, "org.yaml")); err != nil {
			return nil, err
		}
	}
	for _, o := range []*order{&w.victim, &w.aggressor, &w.hooked} {
		if err := o.fill(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) close() (err error) {
	if w.attacker != nil {
		err = w.attacker.Process.Kill()
		_ = w.attacker.Wait() // which says that it was killed
	}
	if w.server != nil {
		err = errors.Join(err, w.server.Kill())
	}
	return errors.Join(err, w.hooks.Close())
}

// freeze stops the server and its aggressor until thaw.
func (w *world) freeze() error { return w.signal(syscall.SIGSTOP) }

func (w *world) thaw() error { return w.signal(syscall.SIGCONT) }

func (w *world) signal(signal syscall.Signal) error {
	if w.attacker != nil {
		if err := w.attacker.Process.Signal(signal); err != nil {
			return fmt.Errorf("aggressor: %w", err)
		}
	}
	if err := syscall.Kill(w.server.PID(), signal); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// order is one side's with so many clients.
func (w *world) order(side order, kind string, clients int) order {
	side.Kind, side.Clients = kind, clients
	return side
}

// aggression is the order of an aggressor.
func (w *world) aggression(s settings, mixture string) order {
	switch {
	case mixture == "equal": // another tenant with the same load
		return w.order(w.aggressor, s.victim, s.clients)
	case hooks(mixture):
		return w.order(w.hooked, mixture, aggressorFactor*s.clients)
	default:
		return w.order(w.aggressor, mixture, aggressorFactor*s.clients)
	}
}

// hang gives the organization hooks that accept connections and never answer. The backlog of the
// listener is enough to do so.
func (w *world) hang(config string) error {
	var text strings.Builder
	text.WriteString("webhooks:\n")
	for i := range hookCount {
		fmt.Fprintf(&text, "- {url: \"http://%s/%d\", secret: s, events: [push]}\n", w.hooks.Addr(), i)
	}
	return os.WriteFile(config, []byte(text.String()), 0o600)
}

// fill creates the repository and pushes the history.
func (o *order) fill(ctx context.Context) error {
	o.Token = mint(o.Key, o.Org, o.Repo)
	c := client{address: o.Address}
	defer c.close()
	create := o.raw(http.MethodPost, "/api/v1/repos", "Bearer "+o.Token, "application/json",
		[]byte(`{"default_branch":"main"}`))
	// Until the server knows the organization.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		ok, err := c.do(ctx, create)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s/%s was not created", o.Org, o.Repo)
		}
	}
	const none = "0000000000000000000000000000000000000000"
	first := fmt.Sprintf("%s %s refs/heads/main\x00 report-status object-format=sha1", none, o.Commits[0])
	second := fmt.Sprintf("%s %s refs/heads/large", none, o.Large)
	body := fmt.Appendf(nil, "%04x%s%04x%s0000%s", len(first)+4, first, len(second)+4, second, o.Pack)
	if ok, err := c.do(ctx, o.git("git-receive-pack", body)); err != nil || !ok {
		return fmt.Errorf("push to %s/%s: done %t, %w", o.Org, o.Repo, ok, err)
	}
	if ok, err := c.do(ctx, o.get("diff?sha="+o.Large)); err != nil || !ok {
		return fmt.Errorf("%s/%s lacks the pushed objects: done %t, %w", o.Org, o.Repo, ok, err)
	}
	return nil
}

// Shape of the history.
const (
	commitCount = 1_000
	fileCount   = 200
	fileLines   = 60
	largeFiles  = 8
	largeLines  = 20_000
)

// generate makes a history, the same every time, and returns an order that knows it.
func generate(ctx context.Context, dir string) (order, error) {
	var o order
	if _, err := process.Output(exec.CommandContext(ctx, "git", "init", "-q", "--bare", "-b", "main", dir)); err != nil {
		return o, err
	}
	var stream bytes.Buffer
	o.Files = writeHistory(&stream)
	imports := exec.CommandContext(ctx, "git", "-C", dir, "fast-import", "--quiet")
	imports.Stdin = &stream
	if _, err := process.Output(imports); err != nil {
		return o, err
	}
	list, err := process.Output(exec.CommandContext(ctx, "git", "-C", dir, "rev-list", "main"))
	if err != nil {
		return o, err
	}
	o.Commits = strings.Fields(list)
	large, err := process.Output(exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "large"))
	if err != nil {
		return o, err
	}
	o.Large = strings.TrimSpace(large)
	objects := exec.CommandContext(ctx, "git", "-C", dir, "pack-objects", "--quiet", "--revs", "--stdout",
		"--delta-base-offset")
	objects.Stdin = strings.NewReader("main\nlarge\n")
	pack, err := process.Output(objects)
	o.Pack = []byte(pack)
	return o, err
}

// writeHistory writes a stream for git fast-import and returns the paths of the main branch.
func writeHistory(w io.Writer) (paths []string) {
	out := bufio.NewWriter(w)
	random := rand.New(rand.NewPCG(1, 2))
	line := func() string {
		return fmt.Sprintf("word%d word%d word%d word%d", random.IntN(4000), random.IntN(4000), random.IntN(4000),
			random.IntN(4000))
	}
	put := func(path string, lines []string) {
		text := strings.Join(lines, "\n") + "\n"
		fmt.Fprintf(out, "M 100644 inline %s\ndata %d\n%s\n", path, len(text), text)
	}
	commit := func(branch string, at int) {
		fmt.Fprintf(out, "commit refs/heads/%s\ncommitter Bench <bench@example.com> %d +0000\ndata 5\nwork\n", branch,
			1_700_000_000+at*60)
	}
	files := make([][]string, fileCount)
	for i := range files {
		for range fileLines {
			files[i] = append(files[i], line())
		}
		paths = append(paths, fmt.Sprintf("dir%02d/file%03d.txt", i%20, i))
	}
	for c := range commitCount {
		commit("main", c)
		if c == 0 {
			for i := range files {
				put(paths[i], files[i])
			}
		}
		for range 2 {
			i := random.IntN(fileCount)
			files[i][random.IntN(fileLines)] = line()
			put(paths[i], files[i])
		}
	}
	// Lines of few kinds in another order: much is alike, and nowhere for long.
	for c := range 2 {
		commit("large", commitCount+c)
		if c == 0 {
			fmt.Fprintf(out, "from refs/heads/main\n")
		}
		for i := range largeFiles {
			lines := make([]string, largeLines)
			for k := range lines {
				lines[k] = fmt.Sprintf("line %d", random.IntN(400))
			}
			put(fmt.Sprintf("large/%d.txt", i), lines)
		}
	}
	fmt.Fprint(out, "done\n")
	_ = out.Flush() // into memory
	return paths
}
