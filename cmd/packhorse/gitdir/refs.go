package gitdir

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"packhorse/engine/upstream/remote"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Refs returns the refs in the order of their names, the branch that HEAD points to ("" if it
// points to none), and how many refs have names that no repository of ours takes; those are left
// out.
func (r *Repository) Refs() (list []remote.Ref, head string, skipped int, err error) {
	values, err := r.packedRefs()
	if err == nil {
		err = r.looseRefs(values)
	}
	if err != nil {
		return nil, "", 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if refs.CheckName(name) != nil {
			skipped++
			continue
		}
		id, err := resolve(values, name)
		if err != nil {
			return nil, "", 0, fmt.Errorf("%s: %w", r.dir, err)
		}
		if !id.IsZero() {
			list = append(list, remote.Ref{Name: name, ID: id})
		}
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "HEAD"))
	if err != nil {
		return nil, "", 0, err
	}
	target, symbolic := strings.CutPrefix(strings.TrimSpace(string(text)), "ref: ")
	if target = strings.TrimSpace(target); symbolic && strings.HasPrefix(target, "refs/heads/") && refs.CheckName(target) == nil {
		head = target
	}
	return list, head, skipped, nil
}

// resolve follows symbolic refs. It returns the zero ID for one that leads nowhere, as a remote
// shows none then.
func resolve(values map[string]string, name string) (object.ID, error) {
	value := values[name]
	for range 5 {
		target, symbolic := strings.CutPrefix(value, "ref: ")
		if !symbolic {
			break
		}
		if value = values[strings.TrimSpace(target)]; value == "" {
			return object.ZeroID, nil
		}
	}
	id, err := object.ParseID(value)
	if err != nil {
		return object.ZeroID, fmt.Errorf("ref %s is broken: %w", name, err)
	}
	return id, nil
}

// packedRefs returns the values of refs in the file packed-refs, by name.
func (r *Repository) packedRefs() (map[string]string, error) {
	values := make(map[string]string)
	text, err := os.ReadFile(filepath.Join(r.dir, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return values, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' || line[0] == '^' {
			continue
		}
		id, name, ok := strings.Cut(line, " ")
		if !ok {
			return nil, fmt.Errorf("%s: a line of packed-refs that is no ref: %.100q", r.dir, line)
		}
		values[name] = id
	}
	return values, nil
}

// looseRefs adds the values of refs in files of their own, which come before packed ones.
func (r *Repository) looseRefs(values map[string]string) error {
	return filepath.WalkDir(filepath.Join(r.dir, "refs"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".lock") {
			return err
		}
		name, err := filepath.Rel(r.dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		values[filepath.ToSlash(name)] = strings.TrimSpace(string(text))
		return nil
	})
}
