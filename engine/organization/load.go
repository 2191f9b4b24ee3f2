package organization

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/kv"
)

// fewChanged is how many organizations are read each by itself, rather than with all others.
const fewChanged = 16

// Load returns all organizations. What has not changed since before is taken from there; the zero
// value of before knows nothing. Errors: [kv.ErrCorrupt].
func Load(ctx context.Context, keys kv.Store, before State) (_ State, err error) {
	at, err := keys.Snapshot(ctx)
	if err != nil {
		return State{}, fmt.Errorf("read organizations: %w", err)
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	now := State{Orgs: make(map[string]Organization)}
	if now.Version, err = Current(ctx, at); err != nil {
		return State{}, err
	}
	var changed []string
	for pair, err := range at.Scan(ctx, kv.ScanOptions{Start: Key(""), End: kv.PrefixEnd(Key(""))}) {
		if err != nil {
			return State{}, fmt.Errorf("read organizations: %w", err)
		}
		version, err := ParseVersion(pair.Value)
		if err != nil {
			return State{}, err
		}
		name := string(pair.Key[len(Key("")):])
		known := before.Orgs[name]
		if known.Version != version {
			known = Organization{Version: version, Files: make(Files)}
			changed = append(changed, name)
		}
		now.Orgs[name] = known
	}
	isNew := make(map[string]bool, len(changed))
	spans := make([][]byte, 0, len(changed))
	for _, name := range changed {
		isNew[name] = true
		spans = append(spans, filesOf(name))
	}
	if len(changed) > fewChanged {
		spans = [][]byte{{Table, 'f'}}
	}
	for _, prefix := range spans {
		for pair, err := range at.Scan(ctx, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
			if err != nil {
				return State{}, fmt.Errorf("read organizations: %w", err)
			}
			org, file, err := fileOf(pair.Key)
			if err != nil {
				return State{}, err
			}
			if isNew[org] {
				now.Orgs[org].Files[file] = append([]byte{}, pair.Value...)
			}
		}
	}
	return now, nil
}
