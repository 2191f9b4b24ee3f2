package refs_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// rowsOf returns the rows of a table of one repository.
func rowsOf(t *testing.T, keys kv.Store, table byte, repo refs.RepoID) []kv.Pair {
	t.Helper()
	prefix := append([]byte{table}, repo[:]...)
	var pairs []kv.Pair
	for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
	}
	return pairs
}

func apply(t *testing.T, keys kv.Store, change func(b *kv.Batch)) {
	t.Helper()
	b := kv.NewBatch()
	change(b)
	if _, err := keys.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// TestFsckFindsDamage changes one row of each table after the other, in each of the ways in which a
// row can be wrong.
func TestFsckFindsDamage(t *testing.T) {
	t.Parallel()
	const last = -1
	first := id(1)
	anyID := first[:16] // what all ids begin with, and no time does
	tests := map[string]struct {
		table byte
		row   int // from the end when negative
		edit  func(value []byte) []byte
		want  string // of one of the problems
	}{
		"head counts too few":     {'h', 0, func(v []byte) []byte { v[15]--; return v }, "the head counts"},
		"head counts other names": {'h', 0, func(v []byte) []byte { v[23]++; return v }, "the head counts"},
		"head of another history": {'h', 0, func(v []byte) []byte { v[31]++; return v }, "the journal leads to another token"},
		"head behind the journal": {'h', 0, func(v []byte) []byte { v[7]--; return v }, "the head is at"},
		"head before the journal": {'h', 0, func(v []byte) []byte { v[7]++; return v }, "the head is at"},
		"head cut off":            {'h', 0, func(v []byte) []byte { return v[:20] }, "head of 20 bytes"},
		"ref elsewhere": {
			'r', 0, func(v []byte) []byte { v[5] ^= 1; return v }, "the journal left it elsewhere",
		},
		"ref cut off":   {'r', 0, func(v []byte) []byte { return v[:9] }, "ends early"},
		"ref gone":      {'r', last, nil, "is missing"},
		"creation gone": {'c', 0, nil, "is not listed by its creation"},
		"creation of another": {
			'c', 0, func([]byte) []byte { return []byte("refs/heads/d") }, "is that of no branch",
		},
		"journal entry gone":      {'j', 2, nil, "has a gap"},
		"last journal entry gone": {'j', last, nil, "the journal ends with"},
		"journal entry cut off":   {'j', 2, func(v []byte) []byte { return v[:len(v)-3] }, "ends early"},
		"change from somewhere else": {
			'j', last, func(v []byte) []byte { v[bytes.Index(v, anyID)] ^= 1; return v }, "from what it was not",
		},
		"change to somewhere else": {
			'j', last, func(v []byte) []byte { v[bytes.LastIndex(v, anyID)] ^= 1; return v }, "the journal left it elsewhere",
		},
		"format of another version":  {'r', 0, func(v []byte) []byte { v[0] = 9; return v }, "row of version 9"},
		"journal of another version": {'j', 1, func(v []byte) []byte { v[0] = 9; return v }, "row of version 9"},
		"former state gone":          {'t', 0, nil, "before entry 3.0 is missing"},
		"former state cut off":       {'t', 1, func(v []byte) []byte { return v[:9] }, "ends early"},
		"another former state":       {'t', last, func(v []byte) []byte { v[5] ^= 1; return v }, "before entry 6.0 is another one"},
		"journal of another age":     {'j', 4, func(v []byte) []byte { v[18]++; return v }, "does not build on the head"},
		"bytes behind a ref":         {'r', 0, func(v []byte) []byte { return append(v, 0) }, "after the end"},
		"creation key of another age": {
			'r', 0, func(v []byte) []byte { v[len(v)-8]++; return v }, "is not listed by its creation",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := openKV(t)
			store := refs.Open(keys, refs.Options{})
			createRepo(t, keys, store)
			repo := createRepo(t, keys, store)
			set(t, store, repo, "refs/heads/a", 1, "refs/heads/b", 2, "refs/tags/v", 3)
			set(t, store, repo, "refs/heads/b", 4)
			set(t, store, repo, "refs/heads/c/"+strings.Repeat("long", 250), 5)
			set(t, store, repo, "refs/heads/b", 0)
			set(t, store, repo, "refs/tags/v", 6)
			report, err := store.Fsck(t.Context(), repo)
			if err != nil || report.ProblemCount != 0 || report.RefCount != 3 || report.EntryCount != 8 {
				t.Fatalf("undamaged: %+v, %v", report, err)
			}
			rows := rowsOf(t, keys, test.table, repo)
			row := rows[(test.row+len(rows))%len(rows)]
			apply(t, keys, func(b *kv.Batch) {
				if test.edit == nil {
					b.Delete(row.Key)
				} else {
					b.Put(row.Key, test.edit(row.Value))
				}
			})
			report, err = store.Fsck(t.Context(), repo)
			if err != nil || !slices.ContainsFunc(report.Problems, func(err error) bool {
				return errors.Is(err, refs.ErrCorrupt) && strings.Contains(err.Error(), test.want)
			}) {
				t.Errorf("%+v, %v; want a problem that says %q", report, err, test.want)
			}
		})
	}
}

// A trimmed journal knows less, and is no damage.
func TestFsckOfTrimmedJournal(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	for i := range 5 {
		set(t, store, repo, fmt.Sprint("refs/heads/b", i), 1+i)
	}
	page, err := store.Events(t.Context(), repo, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []int{0, 1} {
		if _, err := store.TrimJournal(t.Context(), repo, page.Entries[0].Time.AddDate(before, 0, 0)); err != nil {
			t.Fatal(err)
		}
		if report, err := store.Fsck(t.Context(), repo); err != nil || report.ProblemCount != 0 || report.RefCount != 5 {
			t.Errorf("%+v, %v", report, err)
		}
	}
}
