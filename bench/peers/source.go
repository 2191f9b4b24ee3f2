package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"

	"packhorse/bench/process"
)

// source is the local repository whose branches and tags the jobs push and read.
type source struct {
	name    string // "" for a generated one
	dir     string // bare
	tip     string // of the default branch
	older   string // the tip of 100 commits ago, "" in a shorter history
	branch  string // full refname of the default branch
	objects int
}

// olderBy is how many commits of the first-parent history an incremental fetch brings.
const olderBy = 100

// openSource takes a bare repository, or makes one up below dir.
func openSource(ctx context.Context, repo, dir string) (source, error) {
	s := source{dir: repo, name: strings.TrimSuffix(filepath.Base(repo), ".git")}
	if s.name == "repo" { // the folder above says more
		s.name = filepath.Base(filepath.Dir(repo))
	}
	if repo == "" {
		s = source{dir: filepath.Join(dir, "source.git")}
		if err := generate(ctx, s.dir); err != nil {
			return s, err
		}
	}
	var err error
	if s.branch, err = s.git(ctx, "symbolic-ref", "HEAD"); err != nil {
		return s, err
	}
	if s.tip, err = s.git(ctx, "rev-parse", "--verify", s.branch); err != nil {
		return s, err
	}
	// A short history has no such commit, which is no failure.
	s.older, _ = s.git(ctx, "rev-parse", "--verify", "--quiet", fmt.Sprintf("%s~%d", s.tip, olderBy))
	objects, err := s.git(ctx, "rev-list", "--branches", "--tags", "--objects", "--count")
	if err != nil {
		return s, err
	}
	_, err = fmt.Sscan(objects, &s.objects)
	return s, err
}

// git runs git on the source and returns its output, without surrounding white space.
func (s source) git(ctx context.Context, args ...string) (string, error) {
	out, err := process.Output(exec.CommandContext(ctx, "git", append([]string{"-C", s.dir}, args...)...))
	return strings.TrimSpace(out), err
}

// Shape of a generated repository.
const (
	generatedCommits = 2_000
	generatedFiles   = 400
	generatedLines   = 80 // a file at its start
)

// generate writes the same history every time: files of words in folders, changed a few lines at a
// time, with a branch and a tag now and then.
func generate(ctx context.Context, dir string) error {
	if err := run(exec.CommandContext(ctx, "git", "init", "-q", "--bare", "-b", "main", dir)); err != nil {
		return err
	}
	imports := exec.CommandContext(ctx, "git", "-C", dir, "fast-import", "--quiet")
	stdin, err := imports.StdinPipe()
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() { written <- errors.Join(writeHistory(stdin), stdin.Close()) }()
	return errors.Join(run(imports), <-written)
}

func writeHistory(w io.Writer) error {
	out := bufio.NewWriter(w)
	random := rand.New(rand.NewPCG(1, 2))
	files := make([][]string, generatedFiles)
	line := func() string {
		words := make([]string, 4+random.IntN(8))
		for i := range words {
			words[i] = fmt.Sprintf("word%d", random.IntN(4_000))
		}
		return strings.Join(words, " ")
	}
	for c := range generatedCommits {
		fmt.Fprintf(out, "commit refs/heads/main\ncommitter Bench <bench@example.com> %d +0000\ndata 12\ncommit %05d\n",
			1_700_000_000+c*60, c)
		for range 1 + random.IntN(3) {
			i := random.IntN(generatedFiles)
			if files[i] == nil {
				for range generatedLines {
					files[i] = append(files[i], line())
				}
			}
			for range 3 {
				files[i][random.IntN(len(files[i]))] = line()
			}
			text := strings.Join(files[i], "\n") + "\n"
			fmt.Fprintf(out, "M 100644 inline dir%02d/file%03d.txt\ndata %d\n%s\n", i%20, i, len(text), text)
		}
		if c%200 == 199 {
			fmt.Fprintf(out, "reset refs/heads/branch%04d\nfrom refs/heads/main\n\n", c)
			fmt.Fprintf(out, "tag v%d\nfrom refs/heads/main\ntagger Bench <bench@example.com> %d +0000\ndata 4\ntag\n", c/200,
				1_700_000_000+c*60)
		}
	}
	fmt.Fprint(out, "done\n")
	return out.Flush()
}

// run runs a command. The error of a failed one includes its error output.
func run(cmd *exec.Cmd) error {
	_, err := process.Output(cmd)
	return err
}
