package bloom_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/odb/bloom"
)

// TestFilterHasItsPaths asks filters of all sizes for each of their paths, beside the folders above
// it, and for all of them at once.
func TestFilterHasItsPaths(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		paths := make(map[string]struct{})
		for range 1 + r.IntN(8) {
			path := strings.Repeat(fmt.Sprintf("%d/", r.IntN(3)), r.IntN(3)) + fmt.Sprint(r.Uint32())
			for ; path != ""; path = path[:max(strings.LastIndexByte(path, '/'), 0)] {
				paths[path] = struct{}{}
			}
		}
		f := bloom.New(paths)
		var all []bloom.Key
		for path := range paths {
			all = append(all, bloom.NewKey(path))
			if key := bloom.NewKey(path); !f.Has(key) || !f.HasAll(bloom.Keys(path)) {
				t.Fatalf("the filter %x of %q does not have %q", f, paths, path)
			}
		}
		if !f.HasAll(all) {
			t.Fatalf("the filter %x of %q does not have them all", f, paths)
		}
	}
}

// TestSmallFilters asks filters of one file in a folder for the other files there: without the
// number of paths they are wrong about some, with it about far fewer.
func TestSmallFilters(t *testing.T) {
	t.Parallel()
	const count = 400
	has, hasAll := 0, 0
	for i := range count {
		f := bloom.New(map[string]struct{}{"src": {}, fmt.Sprintf("src/%d", i): {}})
		for other := range count {
			if keys := bloom.Keys(fmt.Sprintf("src/%d", other)); other != i {
				if !slices.ContainsFunc(keys, func(key bloom.Key) bool { return !f.Has(key) }) {
					has++
				}
				if f.HasAll(keys) {
					hasAll++
				}
			}
		}
	}
	if has < count || hasAll > has/5 {
		t.Errorf("%d filters of one path each may hold %d others, and %d with that number", count, has, hasAll)
	}
}

// TestFullFilter asks the filters that hold every path.
func TestFullFilter(t *testing.T) {
	t.Parallel()
	for _, f := range []bloom.Filter{bloom.Full, {}} {
		if !f.HasAll(bloom.Keys("a/b/c/d/e/f/g/h/i")) {
			t.Errorf("the filter %x lacks a path", f)
		}
	}
}
