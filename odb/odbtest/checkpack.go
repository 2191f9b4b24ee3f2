package odbtest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// Pack returns the pack that a view answers a request with.
func Pack(tb testing.TB, v *odb.View, request packgen.Request) []byte {
	tb.Helper()
	plan, err := packgen.Plan(tb.Context(), v, request, nil)
	Must(tb, err)
	defer plan.Close()
	var out bytes.Buffer
	n, err := plan.WriteTo(tb.Context(), &out, nil)
	Must(tb, err)
	if n != int64(out.Len()) || int(binary.BigEndian.Uint32(out.Bytes()[8:])) != plan.Count() {
		tb.Errorf("pack of %d bytes for %d objects says %d bytes", out.Len(), plan.Count(), n)
	}
	return out.Bytes()
}

// PackOf returns a pack of objects and all that they reach.
func PackOf(tb testing.TB, v *odb.View, ids []object.ID) []byte {
	tb.Helper()
	return Pack(tb, v, packgen.Request{Wants: ids, OFSDelta: true})
}

// packObjects returns the pack of git pack-objects for a request, without a search for deltas.
func (g *Repository) packObjects(request packgen.Request) []byte {
	g.tb.Helper()
	args, input := g.PackObjectsCommand(request)
	return g.Input([]byte(input), append(args, "--window=0")...)
}

// PackObjectsCommand returns the arguments and the input that upload-pack gives to pack-objects.
func (g *Repository) PackObjectsCommand(request packgen.Request) (args []string, input string) {
	args = []string{"pack-objects", "--revs", "--stdout", "-q"}
	if request.Thin {
		args = append(args, "--thin")
	}
	if request.OFSDelta {
		args = append(args, "--delta-base-offset")
	}
	if len(request.Tags) > 0 {
		args = append(args, "--include-tag")
	}
	if !request.Filter.IsZero() {
		args = append(args, "--filter="+request.Filter.String())
	}
	shallow := append(slices.Clone(request.ClientShallow), request.Shallow...)
	if len(shallow) > 0 {
		args = append([]string{"--shallow-file", ""}, append(args, "--shallow")...)
	}
	input = Lines("--shallow ", shallow) + Lines("", request.Wants)
	for _, id := range request.Unshallow {
		input += Lines("", g.IDs("", "rev-parse", id.String()+"^@"))
	}
	return args, input + "--not\n" + Lines("", request.Haves) + Lines("", request.Unshallow) + "\n"
}

// objectsOf returns the objects of a pack in their order. git index-pack completes and accepts the
// pack first; the repository does not change.
func (g *Repository) objectsOf(packed []byte) ([]object.ID, error) {
	g.tb.Helper()
	base := filepath.Join(g.tb.TempDir(), "p")
	if _, err := g.Try(packed, "index-pack", "--stdin", "--fix-thin", base+".pack"); err != nil {
		return nil, err
	}
	index, err := os.ReadFile(base + ".idx")
	Must(g.tb, err)
	return idsInOrder(index)[:binary.BigEndian.Uint32(packed[8:])], nil // thin-pack bases come last
}

// idsInOrder returns the IDs of a pack index of git, version 2, in the order of their entries in
// the pack.
func idsInOrder(index []byte) []object.ID {
	const fanoutEnd = 8 + 256*4
	count := int(binary.BigEndian.Uint32(index[fanoutEnd-4:]))
	offsets := index[fanoutEnd+count*(object.IDSize+4):]
	ids := make([]object.ID, count)
	order := make([]int, count)
	for i := range ids {
		ids[i] = object.ID(index[fanoutEnd+i*object.IDSize:])
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(binary.BigEndian.Uint32(offsets[4*a:]), binary.BigEndian.Uint32(offsets[4*b:]))
	})
	sorted := make([]object.ID, count)
	for i, at := range order {
		sorted[i] = ids[at]
	}
	return sorted
}

// client returns a repository with the objects that haves reach, down to a shallow boundary.
func (g *Repository) client(haves, shallow []object.ID) *Repository {
	g.tb.Helper()
	c := NewRepository(g.tb)
	if len(haves) > 0 {
		c.Input(g.packObjects(packgen.Request{Wants: haves, ClientShallow: shallow}), "index-pack", "--stdin")
	}
	c.setShallow(shallow)
	return c
}

func (g *Repository) setShallow(boundary []object.ID) {
	g.tb.Helper()
	if len(boundary) > 0 {
		Must(g.tb, os.WriteFile(filepath.Join(g.Dir, "shallow"), []byte(Lines("", boundary)), 0o600))
	} else if err := os.Remove(filepath.Join(g.Dir, "shallow")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.tb.Fatal(err)
	}
}

func sortedDifference(a, b []object.ID) []object.ID {
	var only []object.ID
	for _, id := range a {
		if _, ok := slices.BinarySearchFunc(b, id, object.ID.Compare); !ok {
			only = append(only, id)
		}
	}
	return only
}

// CheckPack plans a pack, and compares its objects with those of git for the same request. git must
// accept the pack in a repository that has what the client has, and find the result connected.
//
// Some differences are allowed. git may leave out an object that was asked for by its ID if it met
// the object inside a tree before. It leaves out a few more objects of the client when files have
// moved, since it marks the uninteresting ones first; and fewer for a shallow client that takes no
// thin pack.
func CheckPack(tb testing.TB, g *Repository, v *odb.View, request packgen.Request) {
	tb.Helper()
	wants := request.Wants
	request.Wants = nil
	name := fmt.Sprintf("request %+v", request)
	request.Wants = wants
	client := g.client(request.Haves, request.ClientShallow)
	data := Pack(tb, v, request)
	got, err := client.objectsOf(data)
	if err != nil {
		tb.Errorf("%s: git refuses the pack: %v", name, err)
		return
	}
	want, err := g.objectsOf(g.packObjects(request))
	Must(tb, err)
	slices.SortFunc(got, object.ID.Compare)
	slices.SortFunc(want, object.ID.Compare)
	right := slices.Concat(wants, client.IDs("", "cat-file", "--batch-all-objects", "--batch-check"))
	for _, id := range wants {
		right = append(right, g.IDs("", "rev-parse", id.String()+"^{}")...)
	}
	slices.SortFunc(right, object.ID.Compare)
	missing := sortedDifference(sortedDifference(want, got), right)
	extra := sortedDifference(sortedDifference(got, want), right)
	if len(missing)+len(extra) > 0 {
		tb.Errorf("%s: %d objects, want %d\nmissing:\n%stoo many:\n%s", name, len(got), len(want), g.describe(missing),
			g.describe(extra))
	}
	if request.Filter.IsZero() {
		client.Input(data, "index-pack", "--stdin", "--fix-thin")
		client.setShallow(slices.DeleteFunc(slices.Concat(request.ClientShallow, request.Shallow), func(id object.ID) bool {
			return slices.Contains(request.Unshallow, id)
		}))
		if _, err := client.Try([]byte(Lines("", wants)), "rev-list", "--objects", "--quiet", "--stdin"); err != nil {
			tb.Errorf("%s: the client lacks something: %v", name, err)
		}
	}
}

// describe says what objects are, for messages.
func (g *Repository) describe(ids []object.ID) string {
	return string(g.Input([]byte(Lines("", ids)), "cat-file", "--batch-check"))
}
