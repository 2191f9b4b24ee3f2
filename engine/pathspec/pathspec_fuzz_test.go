package pathspec_test

import (
	"errors"
	"testing"

	"packhorse/engine/pathspec"
)

// FuzzGlob: a glob divides paths into those that it includes and those that it excludes, and it
// selects a folder together with its content.
func FuzzGlob(f *testing.F) {
	f.Add("lib/**/*.{go,ts}", "lib/a/b.go")
	f.Add("[!a-z]*/", "A/b")
	f.Add(`\[{a,{b,c}}\]/**`, "[b]/x")
	f.Add("\xc4/*", "\xf1/b.go")
	f.Add("\ufffd/*", "\xf1/b.go")
	f.Fuzz(func(t *testing.T, glob, path string) {
		if len(glob) > 200 || len(path) > 500 {
			return
		}
		include, err := (&pathspec.Spec{Include: []string{glob}}).Compile()
		if err != nil {
			if !errors.Is(err, pathspec.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		exclude, err := (&pathspec.Spec{Exclude: []string{glob}}).Compile()
		if err != nil {
			t.Fatal(err)
		}
		if include.Match(path) == exclude.Match(path) {
			t.Errorf("%q and %q: %t both ways", glob, path, include.Match(path))
		}
		if include.Match(path) && !include.Match(path+"/below") {
			t.Errorf("%q names %q but not what is in it", glob, path)
		}
	})
}
