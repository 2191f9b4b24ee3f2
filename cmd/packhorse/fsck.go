package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"packhorse/engine"
)

// fsckCommand checks a data folder.
type fsckCommand struct {
	Data string `help:"Folder of the repositories." placeholder:"DIR" required:"" type:"existingdir"`

	logFlags
	storeFlags
}

// fsckLine is what is told about one repository, and at the end about all.
type fsckLine struct {
	Repository string   `json:"repository,omitempty"` // "<org>/<name>"
	Problems   []string `json:"problems,omitempty"`

	Done         bool   `json:"done,omitempty"` // the fields below are set in the last line
	Repositories int64  `json:"repositories,omitempty"`
	Objects      int64  `json:"objects,omitempty"`
	Damaged      int64  `json:"damaged,omitempty"` // repositories
	Failed       string `json:"failed,omitempty"`  // why the check could not be finished
}

// Run checks through the server that has the folder open, or opens it itself. Damage makes it fail.
func (c fsckCommand) Run(ctx context.Context, to streams) error {
	found := func(line fsckLine) error {
		for _, problem := range line.Problems {
			if err := to.printf("%s: %s\n", line.Repository, problem); err != nil {
				return err
			}
		}
		return nil
	}
	outcome, err := askAdmin(ctx, filepath.Join(c.Data, adminSocket), found)
	if errors.Is(err, errNoServer) {
		outcome, err = c.checkOffline(ctx, c.logger(to.errOut), found)
	}
	if err != nil {
		return fmt.Errorf("the check could not be finished: %w", err)
	}
	if err := to.printf("%d repositories, %d objects, %d repositories damaged\n", outcome.Repositories, outcome.Objects, outcome.Damaged); err != nil {
		return err
	}
	if outcome.Damaged > 0 {
		return errDamaged
	}
	return nil
}

var errDamaged = errors.New("damage was found")

func (c fsckCommand) checkOffline(ctx context.Context, logger *slog.Logger, found func(fsckLine) error) (_ fsckLine, err error) {
	if _, err := os.Stat(filepath.Join(c.Data, keysFolder)); err != nil { // opening would make a store
		return fsckLine{}, fmt.Errorf("no store is in %s: %w", c.Data, err)
	}
	s, err := openStore(ctx, c.Data, c.storeFlags, logger)
	if err != nil {
		return fsckLine{}, err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	return runFsck(ctx, s.host, found)
}

// runFsck checks every repository, tells of the damaged ones, and returns what there is to say at the end.
func runFsck(ctx context.Context, host *engine.Host, found func(fsckLine) error) (fsckLine, error) {
	var outcome fsckLine
	for checked, err := range host.Fsck(ctx) {
		if err != nil {
			return outcome, err
		}
		outcome.Repositories++
		outcome.Objects += checked.Objects.ObjectCount
		if !checked.Damaged() {
			continue
		}
		outcome.Damaged++
		if err := found(lineOf(&checked)); err != nil {
			return outcome, err
		}
	}
	return outcome, nil
}

func lineOf(checked *engine.Checked) fsckLine {
	line := fsckLine{Repository: checked.Org + "/" + checked.Name}
	if checked.Name == "" {
		line.Repository = checked.Repository.String()
	}
	if checked.Problem != nil {
		line.Problems = append(line.Problems, checked.Problem.Error())
	}
	for _, problem := range checked.Objects.Problems {
		line.Problems = append(line.Problems, problem.String())
	}
	if more := checked.Objects.ProblemCount - int64(len(checked.Objects.Problems)); more > 0 {
		line.Problems = append(line.Problems, fmt.Sprintf("%d more problems", more))
	}
	return line
}
