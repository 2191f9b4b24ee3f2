package refs

import (
	"context"
	"fmt"

	"packhorse/odb/kv"
)

// lookahead is rows of refs that a transaction or a snapshot has read together, before it asks for
// them one by one.
type lookahead struct {
	names []string          // those of Change.Names
	rows  map[string][]byte // by name; nil for "absent"
	// clear holds names below which there is no ref. It is nil until a ref of names is about to be
	// created.
	clear map[string]bool
}

// add takes what readKeys has returned for names.
func (a *lookahead) add(names []string, values [][]byte) {
	if len(names) == 0 {
		return
	}
	if a.rows == nil {
		a.names, a.rows = names, make(map[string][]byte, len(names))
	}
	for i, name := range names {
		a.rows[name] = values[i]
	}
}

// ref returns a ref that was read ahead. Errors: [ErrNotFound], errNotPrefetched.
func (a *lookahead) ref(repo RepoID, name string) (Ref, error) {
	row, known := a.rows[name]
	switch {
	case !known:
		return Ref{}, errNotPrefetched
	case row == nil:
		return Ref{}, ErrNotFound
	}
	return decodeNamed(refKey(repo, name), row, name)
}

// isPending reports whether survey is to be called before a ref of that name is created.
func (a *lookahead) isPending(name string) bool {
	_, known := a.rows[name]
	return known && a.clear == nil
}

// survey reads, for all names that do not exist, what they could conflict with. The first creation
// of one of them calls it: a transaction that only moves refs has no use for it.
func (a *lookahead) survey(ctx context.Context, reader kv.Reader, repo RepoID) error {
	var above, absent []string
	asked := make(map[string]bool)
	for _, name := range a.names {
		if a.rows[name] != nil || asked[name] {
			continue
		}
		asked[name] = true
		absent = append(absent, name)
		for folder := range folders(name) {
			if _, known := a.rows[folder]; !known && !asked[folder] {
				asked[folder] = true
				above = append(above, folder)
			}
		}
	}
	free := make(map[string]bool, len(absent))
	for len(above)+len(absent) > 0 {
		folders := above[:min(len(above), kv.ReadCountMax)]
		set := kv.ReadSet{Keys: refKeys(repo, folders)}
		names := absent[:min(len(absent), kv.ReadCountMax-len(folders))]
		for _, name := range names {
			below := refRange(repo, name+"/", prefixEnd(name+"/"))
			below.Limit = 1
			set.Ranges = append(set.Ranges, below)
		}
		rows, err := reader.Read(ctx, set)
		if err != nil {
			return fmt.Errorf("read refs: %w", err)
		}
		a.add(folders, rows.Values)
		for i, name := range names {
			free[name] = len(rows.Pages[i].Pairs) == 0
		}
		above, absent = above[len(folders):], absent[len(names):]
	}
	a.clear = free
	return nil
}
