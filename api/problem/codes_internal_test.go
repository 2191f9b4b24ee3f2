package problem

import (
	"slices"
	"testing"

	"packhorse/api/code"
)

// Every row has a code that comes with its status, and only codes that promise it come with a time
// for the next try.
func TestRowsHaveCodes(t *testing.T) {
	t.Parallel()
	for i := range table {
		row := &table[i]
		name := row.kind
		if name == nil {
			name = row.typed(nil)
		}
		entry := code.Find(row.code)
		switch {
		case entry == nil:
			t.Errorf("row %d, %v: %q is no code", i, name, row.code)
		case !slices.Contains(entry.Statuses, row.status):
			t.Errorf("row %d, %v: %s comes with %v, not with %d", i, name, row.code, entry.Statuses, row.status)
		case row.retry > 0 && entry.Retry != code.Later:
			t.Errorf("row %d, %v: %s says %q about a retry, and Retry-After comes", i, name, row.code, entry.Retry)
		case row.corrupt != (row.code == code.Corrupt):
			t.Errorf("row %d, %v: %s for stored data that is damaged: %v", i, name, row.code, row.corrupt)
		}
	}
}
