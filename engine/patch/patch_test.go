package patch_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"packhorse/engine/patch"
)

// Parts of patches. history_test.go compares their effect on trees with git.
const (
	edited  = "diff --git a/f b/f\nindex 1111111..2222222 100644\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"
	plain   = "--- a/f.orig\t2001-02-03 04:05:06 +0100\n+++ b/f\t2001-02-03 04:05:06 +0100\n@@ -1 +1 @@\n-1\n+2\n"
	created = "diff --git a/n b/n\nnew file mode 100644\nindex 0000000..1111111\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+1\n"
	renamed = "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n"
	chmod   = "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"
	// binary makes a file of the three bytes NUL, 1 and 2.
	binary = "diff --git a/b b/b\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..8352675d67aed6625ece79af41c27fdb4ee2e867\n" +
		"GIT binary patch\nliteral 3\nKcmZQzWC8#H2LJ>B\n\nliteral 0\nHcmV?d00001\n\n"
)

func parse(text string, limits patch.Limits) (*patch.Patch, error) {
	return patch.Parse(context.Background(), strings.NewReader(text), int64(len(text)), limits)
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text  string
		count int   // of files
		line  int64 // of a SyntaxError, 0 for none
		err   error
	}{
		"git's header":          {edited, 1, 0, nil},
		"plain header":          {plain, 1, 0, nil},
		"names without folders": {strings.NewReplacer("a/", "", "b/", "").Replace(plain), 1, 0, nil},
		"all kinds":             {edited + plain + created + renamed + chmod + binary, 6, 0, nil},
		"a mail around it": {
			"From: a\nSubject: [PATCH] x\n\n---\n f | 2 +-\n\n" + edited + "-- \n2.39\n", 1, 0, nil,
		},
		"without its last line end": {strings.TrimSuffix(edited, "\n"), 0, 5, patch.ErrMalformed},
		"no newline at the end":     {edited + "\\ No newline at end of file\n", 1, 0, nil},
		"nothing":                   {"", 0, 0, patch.ErrEmpty},
		"blank":                     {"\n\n", 0, 0, patch.ErrEmpty},
		"no patch":                  {"hello\nworld\n", 0, 0, patch.ErrEmpty},
		"a hunk without a header":   {"@@ -1 +1 @@\n-1\n+2\n", 0, 1, patch.ErrMalformed},
		"a hunk that is cut off":    {strings.TrimSuffix(edited, "+3\n"), 0, 5, patch.ErrMalformed},
		"a hunk that is too short":  {strings.Replace(edited, "-1,2", "-1,3", 1), 0, 5, patch.ErrMalformed},
		"a line of another kind":    {strings.Replace(edited, "\n 1\n", "\n*1\n", 1), 0, 5, patch.ErrMalformed},
		"the second part is wrong":  {edited + strings.Replace(created, "@@\n+1", "@@\n-1", 1), 0, 14, patch.ErrMalformed},
		"a header alone": {
			"diff --git a/f b/f\nindex 1111111..2222222 100644\nhello, world\n", 0, 3, patch.ErrMalformed,
		},
		"a new file with old lines": {
			strings.Replace(created, "@@ -0,0 +1 @@\n+1\n", "@@ -1 +1 @@\n-0\n+1\n", 1), 0, 6, patch.ErrMalformed,
		},
		"corrupt base 85": {strings.Replace(binary, "KcmZQ", "Kcm Q", 1), 0, 6, patch.ErrMalformed},
		"another size":    {strings.Replace(binary, "literal 3", "literal 4", 1), 0, 7, patch.ErrMalformed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := parse(test.text, patch.Limits{})
			if !errors.Is(err, test.err) {
				t.Fatalf("Parse: %v, want %v", err, test.err)
			}
			if err == nil && p.FileCount() != test.count {
				t.Errorf("%d files, want %d", p.FileCount(), test.count)
			}
			if syntax, ok := errors.AsType[*patch.SyntaxError](err); ok && syntax.Line != test.line {
				t.Errorf("%v, want it in line %d", err, test.line)
			}
		})
	}
}

// TestParseLimits has patches at each limit and behind it.
func TestParseLimits(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text   string
		limits patch.Limits
		err    error
	}{
		"files":              {edited + created, patch.Limits{FileCountMax: 2}, nil},
		"too many files":     {edited + created + chmod, patch.Limits{FileCountMax: 2}, patch.ErrTooLarge},
		"hunks":              {edited + "@@ -9 +9 @@\n-1\n+2\n", patch.Limits{HunkCountMax: 2}, nil},
		"too many hunks":     {edited + "@@ -9 +9 @@\n-1\n+2\n", patch.Limits{HunkCountMax: 1}, patch.ErrTooLarge},
		"binary":             {binary, patch.Limits{BlobBytesMax: 3}, nil},
		"too large a binary": {binary, patch.Limits{BlobBytesMax: 2}, patch.ErrTooLarge},
		"binaries":           {binary + binary, patch.Limits{InflatedBytesMax: 6}, nil},
		"too large in all":   {binary + binary, patch.Limits{InflatedBytesMax: 5}, patch.ErrTooLarge},
		"a number past int64": {
			strings.Replace(binary, "literal 3", "literal 99999999999999999999", 1), patch.Limits{}, patch.ErrTooLarge,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := parse(test.text, test.limits); !errors.Is(err, test.err) {
				t.Errorf("Parse: %v, want %v", err, test.err)
			}
		})
	}
}
