package engine

import (
	"slices"
	"testing"

	"packhorse/engine/clonecache"
	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
	"packhorse/refs"
)

// TestCloneKey changes a request field by field: each is another key. The same request in another
// order is not.
func TestCloneKey(t *testing.T) {
	t.Parallel()
	filter := func(spec string) packgen.Filter {
		f, err := packgen.ParseFilter(spec)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a, b := object.ID{1}, object.ID{2}
	key := func(repo refs.RepoID, pool odb.PoolID, q packgen.Request) clonecache.Key {
		f := &Fetch{repo: &Repository{record: record{ID: repo, Pool: pool}}}
		return f.cloneKey(&q)
	}
	keys := map[string]clonecache.Key{
		"nothing":            key(refs.RepoID{}, odb.PoolID{}, packgen.Request{}),
		"another repository": key(refs.RepoID{1}, odb.PoolID{}, packgen.Request{}),
		"another pool":       key(refs.RepoID{}, odb.PoolID{1}, packgen.Request{}),
	}
	for name, q := range map[string]packgen.Request{
		"want":          {Wants: []object.ID{a}},
		"another want":  {Wants: []object.ID{b}},
		"two wants":     {Wants: []object.ID{a, b}},
		"have":          {Haves: []object.ID{a}},
		"want and have": {Wants: []object.ID{a}, Haves: []object.ID{b}},
		"have and want": {Wants: []object.ID{b}, Haves: []object.ID{a}},
		"client":        {ClientShallow: []object.ID{a}},
		"shallow":       {Shallow: []object.ID{a}},
		"unshallow":     {Unshallow: []object.ID{a}},
		"filter":        {Filter: filter("blob:none")},
		"other filter":  {Filter: filter("tree:0")},
		"thin":          {Thin: true},
		"offsets":       {OFSDelta: true},
		"tag":           {Tags: []packgen.TagTarget{{Tag: a, Peeled: b}}},
		"other tag":     {Tags: []packgen.TagTarget{{Tag: b, Peeled: b}}},
	} {
		keys[name] = key(refs.RepoID{}, odb.PoolID{}, q)
	}
	seen := map[clonecache.Key]string{}
	for name, k := range keys {
		if twin, ok := seen[k]; ok {
			t.Errorf("%q and %q have one key", name, twin)
		}
		seen[k] = name
	}
	wants := []object.ID{b, a, b}
	if key(refs.RepoID{}, odb.PoolID{}, packgen.Request{Wants: wants}) != keys["two wants"] {
		t.Error("the order of wants changes the key")
	}
	if !slices.Equal(wants, []object.ID{b, a, b}) {
		t.Error("the request was changed")
	}
}
