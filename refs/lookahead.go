package refs

import (
	"context"
	"fmt"
	"slices"

	"packhorse/odb/kv"
)

// lookahead is rows of refs that a transaction or a snapshot has read together, before it asks for
// them one by one.
type lookahead struct {
	names  []string // those of Change.Names
	values [][]byte // their rows; nil for "absent"
	// rows are those of the names and of more, by name. It is nil while only few names are known.
	rows map[string][]byte
	// clear holds names below which there is no ref. It is nil until a ref of names is about to be
	// created.
	clear map[string]bool
}

// newLookahead returns what was read for names.
func newLookahead(names []string, values [][]byte) lookahead {
	a := lookahead{names: names, values: values}
	if len(names) > prefetchFew {
		a.index()
	}
	return a
}

func (a *lookahead) index() {
	if a.rows == nil {
		a.rows = make(map[string][]byte, len(a.names))
		a.add(a.names, a.values)
	}
}

func (a *lookahead) add(names []string, values [][]byte) {
	for i, name := range names {
		a.rows[name] = values[i]
	}
}

// row returns what was read for a name, and false if that was not read.
func (a *lookahead) row(name string) ([]byte, bool) {
	if a.rows != nil {
		row, known := a.rows[name]
		return row, known
	}
	if at := slices.Index(a.names, name); at >= 0 {
		return a.values[at], true
	}
	return nil, false
}

// ref returns a ref that was read ahead. Errors: [ErrNotFound], errNotPrefetched.
func (a *lookahead) ref(repo RepoID, name string) (Ref, error) {
	row, known := a.row(name)
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
	_, known := a.row(name)
	return known && a.clear == nil
}

// survey reads, for all names that do not exist, what they could conflict with. The first creation
// of one of them calls it: a transaction that only moves refs has no use for it.
func (a *lookahead) survey(ctx context.Context, reader kv.Reader, repo RepoID) error {
	a.index()
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
