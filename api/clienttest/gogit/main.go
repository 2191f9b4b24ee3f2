// Command gogit is a go-git client for the acceptance tests: it clones a repository, commits one
// file, and pushes a branch.
//
// Usage: gogit URL DIR BRANCH
//
// It is a separate module, so that the dependencies of go-git stay out of the server's go.mod.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: gogit URL DIR BRANCH")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "gogit:", err)
		os.Exit(1)
	}
}

// run clones url into dir, commits a file named after the branch, and pushes the commit to it.
func run(url, dir, branch string) error {
	repo, err := git.PlainClone(dir, false, &git.CloneOptions{URL: url})
	if err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	tree, err := repo.Worktree()
	if err != nil {
		return err
	}
	local := plumbing.NewBranchReferenceName(branch)
	if err := tree.Checkout(&git.CheckoutOptions{Branch: local, Create: true}); err != nil {
		return fmt.Errorf("checkout: %w", err)
	}
	name := branch + ".txt"
	if err := os.WriteFile(filepath.Join(dir, name), []byte("written by "+branch+"\n"), 0o644); err != nil {
		return err
	}
	if _, err := tree.Add(name); err != nil {
		return fmt.Errorf("add: %w", err)
	}
	author := &object.Signature{Name: "Go Git", Email: "go-git@example.com", When: time.Now()}
	if _, err := tree.Commit("Add "+name, &git.CommitOptions{Author: author}); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	spec := config.RefSpec(local + ":" + local)
	if err := repo.Push(&git.PushOptions{RefSpecs: []config.RefSpec{spec}}); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	if err := repo.Fetch(&git.FetchOptions{}); err != nil && err != git.NoErrAlreadyUpToDate {
		return fmt.Errorf("fetch: %w", err)
	}
	return nil
}
