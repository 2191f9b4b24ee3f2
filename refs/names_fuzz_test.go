package refs_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"packhorse/refs"
)

// badName is git-check-ref-format(1), rule by rule, in the order of the page.
var badName = regexp.MustCompile(`(?s)(^|/)\.|\.lock(/|$)` + // 1
	`|\.\.` + // 3
	`|[\x00-\x1f\x7f ~^:]` + // 4
	`|[?*\[]` + // 5
	`|^/|/$|//` + // 6
	`|\.$` + // 7
	`|@\{` + // 8
	`|^@$` + // 9
	`|\\` + // 10
	`|^$`)

// FuzzRefname holds that names are judged as git's manual does, that a name is good in one
// namespace when it is in the other, and that namespaces never mix.
func FuzzRefname(f *testing.F) {
	for _, name := range []string{
		"refs/heads/main", "refs/heads/a..b", "refs/tags/v1.lock/x", "refs/heads/@{u}", "HEAD",
		"refs/namespaces/a/refs/heads/b", "a\x7f", "\xff/\xfe",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		// Bytes that are no UTF-8 are good; the expression wants runes.
		bad := badName.MatchString(strings.ToValidUTF8(name, "x"))
		for oneLevel, want := range map[bool]bool{true: !bad, false: !bad && strings.Contains(name, "/")} {
			if err := refs.CheckFormat(name, oneLevel); (err == nil) != want ||
				err != nil && !errors.Is(err, refs.ErrInvalidName) {
				t.Errorf("%q, one level %v: %v, want good: %v", name, oneLevel, err, want)
			}
		}
		if refs.CheckName(name) != nil {
			return
		}
		if bad || !strings.HasPrefix(name, "refs/") || len(name) > refs.NameBytesMax {
			t.Errorf("%q is taken", name)
		}
		for _, ns := range []refs.Namespace{refs.Main, refs.Ephemeral} {
			if got, short := refs.SplitNamespace(ns.Full(name)); got != ns || short != name {
				t.Errorf("%q of namespace %d is %q of %d", name, ns, short, got)
			}
		}
	})
}
