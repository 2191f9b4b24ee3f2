package object_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

func moduleURL(url, fault string) [2]string {
	return [2]string{"[submodule \"a\"]\n\tpath = a\n\turl = " + url + "\n", fault}
}

func moduleName(name, fault string) [2]string {
	return [2]string{"[submodule \"" + name + "\"]\n\tpath = a\n\turl = https://example.com/a\n", fault}
}

// gitmodulesCases holds the content of a .gitmodules and the fault that git finds in it.
var gitmodulesCases = map[string][2]string{
	"empty":         {"", ""},
	"plain":         moduleURL("https://example.com/a.git", ""),
	"no header":     {"url = -u\n", ""},
	"other section": {"[core \"a\"]\nurl = -u\n", ""},
	"no subsection": {"[submodule]\nurl = -u\n", ""},
	"dotted header": {"[submodule.x]\nurl = -u\n", "gitmodulesUrl"},
	"dotted key":    {"[submodule.x.y]\nurl = -u\n", "gitmodulesUrl"},
	"upper case":    {"[SUBMODULE \"x\"]\nURL = -u\n", "gitmodulesUrl"},
	"one line":      {"[submodule \"x\"] url = -u\n", "gitmodulesUrl"},
	"no newline":    {"[submodule \"x\"]\nurl = -u", "gitmodulesUrl"},
	"CR LF":         {"[submodule \"x\"]\r\nurl = -u\r\n", "gitmodulesUrl"},
	"comments": {
		"# a\n; b [submodule \"x\"]\n[submodule \"x\"] # c\nurl = x # -u\npath = -p ; d\n", "gitmodulesPath",
	},
	"quoted value":          {"[submodule \"x\"]\nurl = \"-u\"\n", "gitmodulesUrl"},
	"quoted part":           {"[submodule \"x\"]\nurl = \"\"-\"u ; x\"\n", "gitmodulesUrl"},
	"continued value":       {"[submodule \"x\"]\nurl = \\\n  -u\n", "gitmodulesUrl"},
	"escaped newline":       {"[submodule \"x\"]\nurl = ./a\\nb\n", "gitmodulesUrl"},
	"escaped tab first":     {"[submodule \"x\"]\nurl = \\t-u\n", ""},
	"bad escape":            {"[submodule \"x\"]\nurl = \\x\npath = -p\n", ""},
	"open quote":            {"[submodule \"x\"]\nurl = \"-u\npath = -p\n", ""},
	"error after fault":     {"[submodule \"x\"]\nurl = -u\n[broken\n", "gitmodulesUrl"},
	"error before fault":    {"[broken\n[submodule \"x\"]\nurl = -u\n", ""},
	"key without value":     {"[submodule \"x\"]\nurl\npath = -p\n", "gitmodulesPath"},
	"key, comment":          {"[submodule \"x\"]\nurl # x\npath = -p\n", ""},
	"key begins in digit":   {"[submodule \"x\"]\n1 = 1\npath = -p\n", ""},
	"junk after header":     {"[submodule \"x\" ]\npath = -p\n", ""},
	"open subsection":       {"[submodule \"x\n\"]\npath = -p\n", ""},
	"NUL in value":          {"[submodule \"x\"]\nurl = a\x00\npath = -p\n", "gitmodulesPath"},
	"name empty":            moduleName("", "gitmodulesName"),
	"name dots":             moduleName("..", "gitmodulesName"),
	"name leaves":           moduleName("../x", "gitmodulesName"),
	"name leaves inside":    moduleName("x/../y", "gitmodulesName"),
	"name leaves backslash": moduleName(`x\\..\\y`, "gitmodulesName"),
	"name ends in dots":     moduleName("x/..", "gitmodulesName"),
	"name three dots":       moduleName("x/.../y..z", ""),
	"name escaped quote":    moduleName(`x\"..`, ""),
	"name one slash":        moduleName("/", ""),
	"option":                moduleURL("-u", "gitmodulesUrl"),
	"file":                  moduleURL("/srv/a", ""),
	"ssh":                   moduleURL("user@host:path", ""),
	"ssh with newline":      moduleURL("ssh://host/%0aa", ""),
	"relative":              moduleURL("../a", ""),
	"relative newline":      moduleURL("./%0a", "gitmodulesUrl"),
	"relative upper":        moduleURL("../%0Aa", "gitmodulesUrl"),
	"relative to scheme":    moduleURL("../../:x", "gitmodulesUrl"),
	"relative to host":      moduleURL("..//x", "gitmodulesUrl"),
	"relative, dot only":    moduleURL(".//x", ""),
	"relative backslash":    moduleURL(`..\\:x`, "gitmodulesUrl"),
	"relative end":          moduleURL("../", ""),
	"two dots":              moduleURL("..", ""),
	"git newline":           moduleURL("git://host/%0a", "gitmodulesUrl"),
	"git":                   moduleURL("git://host/a", ""),
	"http newline in host":  moduleURL("http://ho%0ast/a", "gitmodulesUrl"),
	"http newline in path":  moduleURL("https://host/%0a", "gitmodulesUrl"),
	"http newline in user":  moduleURL("https://u%0a@host/", "gitmodulesUrl"),
	"no host":               moduleURL("https:///a", "gitmodulesUrl"),
	"no host but user":      moduleURL("https://user@/a", "gitmodulesUrl"),
	"host with query":       moduleURL("https://host?x", ""),
	"query only":            moduleURL("https://?x", "gitmodulesUrl"),
	"helper":                moduleURL("http::https://host/a", ""),
	"helper without scheme": moduleURL("https::host/a", "gitmodulesUrl"),
	"helper without host":   moduleURL("ftps::http:///a", "gitmodulesUrl"),
	"other helper":          moduleURL("ext::sh", ""),
	"percent 00":            moduleURL("./%00%", ""),
	"percent at end":        moduleURL("./%0", ""),
	"path option":           {"[submodule \"x\"]\npath = --p\n", "gitmodulesPath"},
	"update command":        {"[submodule \"x\"]\nupdate = !rm\n", "gitmodulesUpdate"},
	"update mode":           {"[submodule \"x\"]\nupdate = rebase\n", ""},
}

func TestCheckGitmodules(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	ids := map[string]string{}
	for name, test := range gitmodulesCases {
		ids[name] = r.Write("blob", []byte(test[0]))
		r.Write("tree", []byte(entry("100644", ".gitmodules", ids[name])))
	}
	faults := r.Fsck()
	for name, test := range gitmodulesCases {
		data, want := test[0], test[1]
		if git := faults[ids[name]]; want == "" && git != nil || want != "" && !slices.Contains(git, want) {
			t.Errorf("%s: git has %v, the table %q", name, git, want)
		}
		err := object.CheckGitmodules([]byte(data))
		var fault *object.CheckError
		if want == "" && err != nil || want != "" && (!errors.As(err, &fault) || fault.Name != want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestCheckGitmodulesBehindByteOrderMark: git fsck does not look there, but git reads such a file
// once it is checked out.
func TestCheckGitmodulesBehindByteOrderMark(t *testing.T) {
	t.Parallel()
	var fault *object.CheckError
	if err := object.CheckGitmodules([]byte("\ufeff[submodule \"x\"]\nurl = -u\n")); !errors.As(err, &fault) ||
		fault.Name != "gitmodulesUrl" {
		t.Errorf("error %v", err)
	}
}

func TestCheckGitattributes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2047)
	tests := map[string]struct {
		data, fault string
	}{
		"plain":           {"*.go text\n", ""},
		"longest lines":   {long + "\n" + long, ""},
		"line too long":   {"a\n" + long + "x\n", "gitattributesLineLength"},
		"last line":       {long + "x", "gitattributesLineLength"},
		"long behind NUL": {"a\x00\n" + long + long, ""},
	}
	r := oracle.New(t)
	ids := map[string]string{}
	for name, test := range tests {
		ids[name] = r.Write("blob", []byte(test.data))
		r.Write("tree", []byte(entry("100644", ".gitattributes", ids[name])))
	}
	faults := r.Fsck()
	for name, test := range tests {
		err := object.Gitattributes.Check([]byte(test.data))
		var fault *object.CheckError
		if test.fault == "" && err != nil || test.fault != "" && (!errors.As(err, &fault) || fault.Name != test.fault) {
			t.Errorf("%s: %v, want %q", name, err, test.fault)
		}
		if got := strings.Join(faults[ids[name]], " "); got != test.fault {
			t.Errorf("%s: git has %q, the table %q", name, got, test.fault)
		}
	}
}
