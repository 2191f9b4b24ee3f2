package backup

import (
	"context"

	"packhorse/odb/file"
)

// prune removes every backup but one, and then what that one does not name. Interrupted, it leaves files that nobody needs. Memory: about a
// hundred bytes a file.
func prune(ctx context.Context, dest file.Store, keep uint64) (removed int64, err error) {
	needed := map[string]struct{}{manifestName(keep): {}}
	for e, err := range entries(ctx, dest, keep) {
		if err != nil {
			return 0, err
		}
		needed[e.stored()] = struct{}{}
	}
	for _, manifests := range []bool{true, false} {
		for info, err := range dest.List(ctx) {
			if err != nil {
				return removed, err
			}
			_, isManifest := numberOf(info.Name)
			if _, ok := needed[info.Name]; ok || isManifest != manifests {
				continue
			}
			if err := dest.Delete(ctx, info.Name); err != nil {
				return removed, err
			}
			removed++
		}
	}
	return removed, nil
}
