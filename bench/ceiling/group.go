package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// group is a control group with a limit of memory, of the first version or the second.
type group struct {
	dir   string
	limit int64
	usage string // the file that says how much is used
}

// newGroup makes a group below this process's own.
func newGroup(limit int64) (*group, error) {
	var problems []error
	for _, version := range []struct{ mount, limit, usage string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.current"},
	} {
		dir := filepath.Join(version.mount, fmt.Sprintf("packhorse-ceiling-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			problems = append(problems, err)
			continue
		}
		g := &group{dir: dir, limit: limit, usage: version.usage}
		err := os.WriteFile(filepath.Join(dir, version.limit), []byte(strconv.FormatInt(limit, 10)), 0o600)
		if err == nil {
			return g, nil
		}
		problems = append(problems, err, g.remove())
	}
	return nil, fmt.Errorf("make a control group: %w", errors.Join(problems...))
}

// procs is the file that takes the ids of processes that join.
func (g *group) procs() string { return filepath.Join(g.dir, "cgroup.procs") }

// used is how much memory the group holds, files in the page cache included.
func (g *group) used() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.usage))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// remove removes the group once its processes have ended.
func (g *group) remove() error {
	var err error
	for range 50 {
		if err = os.Remove(g.dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond) // the kernel lets a process go some time after it was waited for
	}
	return err
}
