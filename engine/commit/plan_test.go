package commit_test

import (
	"errors"
	"strings"
	"testing"

	"packhorse/engine/commit"
	"packhorse/pack/object"
)

func TestNewPlanRefuses(t *testing.T) {
	t.Parallel()
	write := func(path string) commit.Operation { return commit.Operation{Path: path} }
	remove := func(path string) commit.Operation { return commit.Operation{Path: path, Delete: true} }
	tests := map[string]struct {
		operations []commit.Operation
		path       string // of the operation that is refused, "" when all are taken
	}{
		"one file":                         {[]commit.Operation{write("a")}, ""},
		"leading slashes":                  {[]commit.Operation{write("//a/b")}, ""},
		"files beside each other":          {[]commit.Operation{write("a/b"), write("a/c"), write("a.b")}, ""},
		"delete a folder, write below it":  {[]commit.Operation{remove("a"), write("a/b")}, ""},
		"write below, then delete":         {[]commit.Operation{write("a/b"), remove("a")}, ""},
		"delete a folder and a file in it": {[]commit.Operation{remove("a"), remove("a/b")}, ""},
		"empty":                            {[]commit.Operation{write("")}, "<empty>"},
		"only slashes":                     {[]commit.Operation{write("//")}, "//"},
		"twice":                            {[]commit.Operation{write("a/b"), write("a/b")}, "a/b"},
		"twice, with a slash":              {[]commit.Operation{write("a"), write("/a")}, "/a"},
		"deleted twice":                    {[]commit.Operation{remove("a"), remove("a")}, "a"},
		"written and deleted":              {[]commit.Operation{write("a"), remove("a")}, "a"},
		"deleted and written":              {[]commit.Operation{remove("a"), write("a")}, "a"},
		"below a file":                     {[]commit.Operation{write("a"), write("a/b")}, "a/b"},
		"far below a file":                 {[]commit.Operation{write("a"), write("a/b/c")}, "a/b/c"},
		"onto a folder":                    {[]commit.Operation{write("a/b/c"), write("a")}, "a"},
		"parent folder":                    {[]commit.Operation{write("a/../b")}, "a/../b"},
		"this folder":                      {[]commit.Operation{write("./a")}, "./a"},
		"empty component":                  {[]commit.Operation{write("a//b")}, "a//b"},
		"trailing slash":                   {[]commit.Operation{write("a/")}, "a/"},
		"git folder":                       {[]commit.Operation{write(".git/config")}, ".git/config"},
		"git folder below":                 {[]commit.Operation{write("a/.GIT/config")}, "a/.GIT/config"},
		"git folder on NTFS":               {[]commit.Operation{write("git~1/config")}, "git~1/config"},
		"git folder on HFS":                {[]commit.Operation{write(".g\u200cit/config")}, ".g\u200cit/config"},
		"git folder deleted":               {[]commit.Operation{remove(".git")}, ".git"},
		"NUL":                              {[]commit.Operation{write("a\x00b")}, "a\x00b"},
		"long component":                   {[]commit.Operation{write(strings.Repeat("a", 256))}, strings.Repeat("a", 256)},
		"longest component":                {[]commit.Operation{write(strings.Repeat("a", 255))}, ""},
		"long path": {
			[]commit.Operation{write(strings.Repeat("a/", 2048) + "b")}, strings.Repeat("a/", 2048) + "b",
		},
		"link as .gitmodules":   {[]commit.Operation{{Path: ".gitmodules", Mode: object.ModeSymlink}}, ".gitmodules"},
		"file as .gitmodules":   {[]commit.Operation{{Path: ".gitmodules", Mode: object.ModeBlob}}, ""},
		"names that only begin": {[]commit.Operation{write(".gitignore"), write(".github/x"), write("a.git")}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := commit.NewPlan(test.operations)
			if test.path == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			var invalid *commit.InvalidError
			if !errors.As(err, &invalid) || !errors.Is(err, commit.ErrInvalid) {
				t.Fatalf("got error %v, want an InvalidError", err)
			}
			if want := strings.TrimPrefix(test.path, "<empty>"); invalid.Path != want {
				t.Errorf("refused %q, want %q", invalid.Path, want)
			}
		})
	}
}

func TestPersonCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		person commit.Person
		ok     bool
	}{
		"both":             {commit.Person{Name: "A U Thor", Email: "a@example.com"}, true},
		"no name":          {commit.Person{Email: "a@example.com"}, false},
		"blank name":       {commit.Person{Name: "  ", Email: "a@example.com"}, false},
		"no email":         {commit.Person{Name: "A"}, false},
		"bracket in name":  {commit.Person{Name: "A <b", Email: "a@example.com"}, false},
		"bracket in email": {commit.Person{Name: "A", Email: "a>b"}, false},
		"line end":         {commit.Person{Name: "A\nparent 0", Email: "a"}, false},
		"NUL":              {commit.Person{Name: "A", Email: "a\x00"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if reason := test.person.Check(); (reason == "") != test.ok {
				t.Errorf("Check() = %q, want ok = %v", reason, test.ok)
			}
		})
	}
}
