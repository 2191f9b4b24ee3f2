package refs_test

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"packhorse/refs"
)

// formats are names with git's verdict, of two levels or more and of any.
var formats = map[string]struct{ levels, oneLevel bool }{
	"":                              {},
	"/":                             {},
	"@":                             {},
	"a":                             {oneLevel: true},
	"HEAD":                          {oneLevel: true},
	"@/a":                           {true, true},
	"a/@":                           {true, true},
	"a@":                            {oneLevel: true},
	"a/b@":                          {true, true},
	"a/@b":                          {true, true},
	"a/b@{":                         {},
	"a/@{b}":                        {},
	"a/{b}":                         {true, true},
	"a/b":                           {true, true},
	"a//b":                          {},
	"/a/b":                          {},
	"a/b/":                          {},
	"a/.b":                          {},
	"./a":                           {},
	".a/b":                          {},
	"a./b":                          {true, true},
	"a/b.":                          {},
	"a/b./c":                        {true, true},
	"a/..b":                         {},
	"a/b..c":                        {},
	"a/b.c":                         {true, true},
	"a/b...":                        {},
	"a/b.lock":                      {},
	"a.lock/b":                      {},
	"a/.lock":                       {},
	"a/lock":                        {true, true},
	"a/b.lock.c":                    {true, true},
	"a/b.LOCK":                      {true, true},
	"a/b c":                         {},
	"a/b~1":                         {},
	"a/b^":                          {},
	"a/b:c":                         {},
	"a/b?":                          {},
	"a/b*":                          {},
	"*/b":                           {},
	"a/b[":                          {},
	"a/b]":                          {true, true},
	"a/b\\c":                        {},
	"a/b\x7f":                       {},
	"a/b\x1f":                       {},
	"a/b\t":                         {},
	"a/b\n":                         {},
	"a/-b":                          {true, true},
	"-a/b":                          {true, true},
	"a/\xff\xfe":                    {true, true},
	"a/ünï":                         {true, true},
	"a/b'\"$!#%&()+,;<=>`|":         {true, true},
	"refs/heads/main":               {true, true},
	"a/" + strings.Repeat("x/", 99): {},
	strings.Repeat("x/", 99) + "x":  {true, true},
}

func TestCheckFormat(t *testing.T) {
	t.Parallel()
	for name, want := range formats {
		for oneLevel, want := range map[bool]bool{false: want.levels, true: want.oneLevel} {
			err := refs.CheckFormat(name, oneLevel)
			if (err == nil) != want || err != nil && !errors.Is(err, refs.ErrInvalidName) {
				t.Errorf("%q, one level %v: %v", name, oneLevel, err)
			}
		}
	}
}

// The installed git gives the same answers, on the table and on random names of characters that
// matter.
func TestCheckFormatGit(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	names := make([]string, 0, 600)
	for name := range formats {
		names = append(names, name)
	}
	random := rand.New(rand.NewPCG(31, 32))
	pieces := []string{
		"a", "b", "refs", "heads", "/", "/", "/", "/", ".", ".", "..", ".lock", "lock", "@", "{", "@{", "}", "-", "*", "~",
		"^", ":", "?",
		"[", "]", "\\", " ", "\x01", "\x7f", "\x80", "\xff", "ü", "\t", "\n", "\"", "'",
	}
	count := 200
	if testing.Short() {
		count = 50
	}
	for range count {
		var name strings.Builder
		for range 1 + random.IntN(7) {
			// Half of the pieces are plain, or hardly any name would be good.
			name.WriteString(pieces[random.IntN(len(pieces)/(1+random.IntN(3)))])
		}
		names = append(names, name.String())
	}
	good := 0
	for _, name := range names {
		if strings.HasPrefix(name, "-") {
			continue // an option to git
		}
		for oneLevel, option := range map[bool]string{false: "--no-allow-onelevel", true: "--allow-onelevel"} {
			err := exec.Command(git, "check-ref-format", option, name).Run()
			if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
				t.Fatalf("git check-ref-format %s %q: %v", option, name, err)
			}
			if ours := refs.CheckFormat(name, oneLevel); (ours == nil) != (err == nil) {
				t.Errorf("%q, %s: git says %v, we say %v", name, option, err, ours)
			}
			if err == nil {
				good++
			}
		}
	}
	if good < len(names)/10 {
		t.Errorf("only %d names of %d are good: the test does not test much", good, len(names))
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	hex := "0123456789abcdef0123456789abcdef01234567"
	tests := map[string]bool{
		"refs/heads/main":                         true,
		"refs/heads/a/b/c":                        true,
		"refs/heads/-x":                           true,
		"refs/heads/HEAD":                         true,
		"refs/heads/refs/heads/x":                 true,
		"refs/notes/commits":                      true,
		"refs/pull/1/head":                        true,
		"refs/replacement/x":                      true,
		"refs/heads/" + hex[:39]:                  true,
		"refs/heads/" + hex + "0":                 true,
		"refs/heads/x/" + hex:                     true,
		"refs/heads/" + hex[:39] + "g":            true,
		"refs/pull/" + hex:                        true,
		"refs/heads/" + strings.Repeat("x", 1013): true,
		"refs/heads/" + strings.Repeat("x", 1014): false,
		"refs/heads/" + hex:                       false,
		"refs/tags/" + hex:                        false,
		"refs/tags/" + strings.ToUpper(hex):       false,
		"HEAD":                                    false,
		"refs":                                    false,
		"refs/":                                   false,
		"refs/heads":                              false,
		"refs/stash":                              false,
		"refs/heads/":                             false,
		"heads/main":                              false,
		"Refs/heads/main":                         false,
		"refs/heads/a..b":                         false,
		"refs/replace/" + hex:                     false,
		"refs/replace/a/b":                        false,
		"refs/namespaces/x/refs/heads/main":       false,
		"refs/namespaces/ephemeral/refs/heads/x":  false,
		"refs/namespaces/x":                       false,
		"":                                        false,
	}
	for name, want := range tests {
		if err := refs.CheckName(name); (err == nil) != want || err != nil && !errors.Is(err, refs.ErrInvalidName) {
			t.Errorf("%.80q: %v", name, err)
		}
	}
}

func TestShortNames(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"main": true, "feature/x": true, "refs": true, "head": true, "a-b": true,
		"": false, "-x": false, "HEAD": false, "refs/heads/main": false, "a b": false, "@{-1}": false, "a/": false,
		"/a": false,
		"0123456789abcdef0123456789abcdef01234567": false, "x.lock": false,
	}
	for short, want := range tests {
		for full, make := range map[string]func(string) (string, error){
			"refs/heads/":                           refs.Main.Branch,
			"refs/tags/":                            refs.Main.Tag,
			"refs/namespaces/ephemeral/refs/heads/": refs.Ephemeral.Branch,
			"refs/namespaces/ephemeral/refs/tags/":  refs.Ephemeral.Tag,
		} {
			got, err := make(short)
			if want && (err != nil || got != full+short) || !want && !errors.Is(err, refs.ErrInvalidName) {
				t.Errorf("%s, %q: %q, %v", full, short, got, err)
			}
		}
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	for _, ns := range []refs.Namespace{refs.Main, refs.Ephemeral} {
		full := ns.Full("refs/heads/x")
		if got, name := refs.SplitNamespace(full); got != ns || name != "refs/heads/x" || ns.Short(full) != name {
			t.Errorf("%s: %v, %s, %s", full, got, name, ns.Short(full))
		}
		if ns.BranchPrefix() != ns.Full("refs/heads/") || ns.TagPrefix() != ns.Full("refs/tags/") {
			t.Errorf("%s, %s", ns.BranchPrefix(), ns.TagPrefix())
		}
	}
	if got := refs.Ephemeral.Full("refs/heads/x"); got != "refs/namespaces/ephemeral/refs/heads/x" {
		t.Error(got)
	}
}
