package odbtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// Repository is a repository of the installed git that is asked in object IDs.
type Repository struct {
	*oracle.Repository
	tb testing.TB
}

// NewRepository returns an empty repository that lasts as long as the test.
func NewRepository(tb testing.TB) *Repository {
	tb.Helper()
	return RepositoryOf(tb, oracle.New(tb))
}

// RepositoryOf returns git as a Repository.
func RepositoryOf(tb testing.TB, git *oracle.Repository) *Repository {
	tb.Helper()
	return &Repository{git, tb}
}

// IDs runs a git command with an input and returns the object IDs at the beginning of the lines
// that it prints.
func (g *Repository) IDs(stdin string, args ...string) []object.ID {
	g.tb.Helper()
	var ids []object.ID
	for line := range strings.Lines(string(g.Input([]byte(stdin), args...))) {
		id, err := object.ParseID(line[:object.HexSize])
		Must(g.tb, err)
		ids = append(ids, id)
	}
	return ids
}

// Commits returns all commits that refs reach, the newest first.
func (g *Repository) Commits() []object.ID {
	g.tb.Helper()
	return g.IDs("", "rev-list", "--all")
}

// Tips returns the objects that the refs below some prefixes name; those of all refs without a
// prefix.
func (g *Repository) Tips(prefixes ...string) []object.ID {
	g.tb.Helper()
	return g.IDs("", append([]string{"for-each-ref", "--format=%(objectname)"}, prefixes...)...)
}

// All returns all objects that refs reach, each behind the objects that it names.
func (g *Repository) All() []object.ID {
	g.tb.Helper()
	return g.IDs("", "rev-list", "--all", "--objects", "--topo-order", "--reverse")
}

// read calls visit with each object in the order of ids. visit keeps data.
func (g *Repository) read(ids []object.ID, visit func(id object.ID, kind object.Type, data []byte)) {
	g.tb.Helper()
	rest := g.Input([]byte(Lines("", ids)), "cat-file", "--batch")
	for _, id := range ids {
		line, after, _ := bytes.Cut(rest, []byte{'\n'})
		var name, kind string
		var size int
		_, err := fmt.Sscan(string(line), &name, &kind, &size)
		Must(g.tb, err)
		t, err := object.ParseType(kind)
		Must(g.tb, err)
		visit(id, t, after[:size:size])
		rest = after[size+1:]
	}
}

// PackAll returns a pack of everything that the refs of a repository reach. args are more options
// of git pack-objects.
func PackAll(git *oracle.Repository, args ...string) []byte {
	return git.Input(nil, append([]string{"pack-objects", "--revs", "--all", "--stdout", "-q"}, args...)...)
}

// Pick draws count of ids, some of them twice.
func Pick(random *rand.Rand, ids []object.ID, count int) []object.ID {
	var picked []object.ID
	for range count {
		picked = append(picked, ids[random.IntN(len(ids))])
	}
	return picked
}

// Lines returns ids as git reads them: a line each, with a prefix.
func Lines(prefix string, ids []object.ID) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%s%s\n", prefix, id)
	}
	return b.String()
}

// Must ends the test if err is not nil.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
