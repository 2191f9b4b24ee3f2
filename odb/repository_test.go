package odb_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// repository is one of the installed git, asked in object IDs.
type repository struct {
	*oracle.Repository
	tb testing.TB
}

func newRepository(tb testing.TB) *repository {
	tb.Helper()
	return &repository{Repository: oracle.New(tb), tb: tb}
}

func (g *repository) must(err error) {
	g.tb.Helper()
	if err != nil {
		g.tb.Fatal(err)
	}
}

// ids runs a command that prints an object ID at the start of each line.
func (g *repository) ids(stdin string, args ...string) []object.ID {
	g.tb.Helper()
	var ids []object.ID
	for line := range strings.Lines(string(g.Input([]byte(stdin), args...))) {
		id, err := object.ParseID(line[:object.HexSize])
		g.must(err)
		ids = append(ids, id)
	}
	return ids
}

// commits returns every commit, and tips what the refs under some prefixes name.
func (g *repository) commits() []object.ID { return g.ids("", "rev-list", "--all") }

func (g *repository) tips(prefixes ...string) []object.ID {
	return g.ids("", append([]string{"for-each-ref", "--format=%(objectname)"}, prefixes...)...)
}

// all returns every object that is reached, what is named before what names it.
func (g *repository) all() []object.ID {
	return g.ids("", "rev-list", "--all", "--objects", "--topo-order", "--reverse")
}

// describe says what objects are, for messages.
func (g *repository) describe(ids []object.ID) string {
	return string(g.Input([]byte(lines("", ids)), "cat-file", "--batch-check"))
}

// read calls visit with objects in the order of ids.
func (g *repository) read(ids []object.ID, visit func(id object.ID, kind object.Type, data []byte)) {
	g.tb.Helper()
	rest := g.Input([]byte(lines("", ids)), "cat-file", "--batch")
	for _, id := range ids {
		line, after, _ := bytes.Cut(rest, []byte{'\n'})
		var name, kind string
		var size int
		_, err := fmt.Sscan(string(line), &name, &kind, &size)
		g.must(err)
		t, err := object.ParseType(kind)
		g.must(err)
		visit(id, t, after[:size:size])
		rest = after[size+1:]
	}
}

// write puts objects of a repository into the pool, one by one and in order.
func (h *ingestHost) write(g *repository, ids []object.ID) {
	h.tb.Helper()
	q := h.view().NewQuarantine(h.tb.Context())
	last := map[object.Type]object.ID{}
	g.read(ids, func(id object.ID, kind object.Type, data []byte) {
		written, err := q.Write(h.tb.Context(), kind, data, last[kind])
		if err != nil || written != id {
			h.tb.Fatalf("write %s %s: %s, %v", kind, id, written, err)
		}
		last[kind] = id
	})
	batch := kv.NewBatch()
	h.must(q.Stage(h.tb.Context(), batch))
	_, err := h.keys.Apply(h.tb.Context(), batch)
	h.must(err)
	q.Settled(h.tb.Context())
	h.must(q.Close())
}

// viewOf returns a view of a pool that holds every object of a repository.
func viewOf(tb testing.TB, g *repository) *odb.View {
	tb.Helper()
	h := newIngestHost(tb, odb.Options{})
	_, err := h.push(packAll(g.Repository), ingest.Options{})
	h.must(err)
	return h.view()
}

// pick returns n of ids, drawn.
func pick(r *rand.Rand, ids []object.ID, n int) []object.ID {
	var picked []object.ID
	for range n {
		picked = append(picked, ids[r.IntN(len(ids))])
	}
	return picked
}

// lines writes ids as git reads them, each with a prefix.
func lines(prefix string, ids []object.ID) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%s%s\n", prefix, id)
	}
	return b.String()
}
