package enginetest

import (
	"fmt"
	"strings"

	"packhorse/pack/object"
)

// Disguises are names that some file system takes for those of git's own files, and some that only
// look so.
var Disguises = []string{
	".gitmodules", ".GITMODULES", ".GitModules", ".gitmodules .", ".gitmodules...", ".gitmodules ", ".gitmodules:x",
	".gitmodules::$DATA",
	"gitmod~1", "GITMOD~4", "gitmod~5", "gi7eba~1", "GI7EBA~1", "GI7EBA~9", "gi7eb~10", "gi7e~123", "~1000000", "gi7eba~0",
	"gi7d29~1",
	".git\u200cmodules", ".\u200egitmodules", "\ufeff.gitmodules", ".gitmodules\u206f", ".gitmodules\u00a0",
	".gitm\u00f6dules", "gitmodules",
	`a\.gitmodules`, `a\b\gitmod~1`, ".gitmodules.txt", ".gitattributes", ".GITATTRIBUTES", "gitatt~1", "GI7D29~1",
	".git\u200dattributes",
	".gitattributes. .", "gitatt~9", ".gitignore", ".mailmap", ".git", ".GIT", "git~1", ".git ", ".g\u200bit",
	".g\u200cit", `x\.git`, "git~2", "...",
}

// DisguisedContents are contents of files of these names, of which some are dangerous.
var DisguisedContents = []string{
	"[submodule \"a\"]\n\tpath = a\n\turl = https://example.com/a\n",
	"[submodule \"../x\"]\n\tpath = x\n\turl = https://example.com/x\n",
	"[submodule \"a\"]\n\tpath = a\n\turl = -u./payload\n",
	"[submodule \"a\"]\n\tpath = -x\n\turl = https://example.com/a\n",
	"# " + strings.Repeat("long ", 420) + "\n",
}

// File is a file of a commit. The content of a gitlink is the ID of a commit.
type File struct {
	Path, Content string
	Mode          object.Mode
}

// Patch is a patch that adds the file.
func (f *File) Patch() string {
	count, lines := f.lines("+")
	return fmt.Sprintf("diff --git %s %s\nnew file mode %s\n--- /dev/null\n+++ %s\n@@ -0,0 +1,%d @@\n%s",
		quoted("a/"+f.Path), quoted("b/"+f.Path), f.Mode, quoted("b/"+f.Path), count, lines)
}

// PatchTo is a patch that gives the file another content.
func (f *File) PatchTo(content string) string {
	to := File{Path: f.Path, Content: content, Mode: f.Mode}
	fromCount, from := f.lines("-")
	toCount, added := to.lines("+")
	return fmt.Sprintf("diff --git %s %s\n--- %[1]s\n+++ %[2]s\n@@ -1,%d +1,%d @@\n%s%s",
		quoted("a/"+f.Path), quoted("b/"+f.Path), fromCount, toCount, from, added)
}

// PatchMoved is a patch that moves the file, or copies it.
func (f *File) PatchMoved(to string, isCopy bool) string {
	verb := "rename"
	if isCopy {
		verb = "copy"
	}
	return fmt.Sprintf("diff --git %s %s\nsimilarity index 100%%\n%s from %s\n%[3]s to %[5]s\n",
		quoted("a/"+f.Path), quoted("b/"+to), verb, quoted(f.Path), quoted(to))
}

// lines returns the lines of the content as a hunk has them, and their number.
func (f *File) lines(sign string) (int, string) {
	content := f.Content
	if f.Mode.IsGitlink() {
		content = "Subproject commit " + content + "\n"
	}
	lines := strings.SplitAfter(strings.TrimSuffix(content, "\n"), "\n")
	return len(lines), sign + strings.Join(lines, sign) + "\n"
}

// quoted is a path as git quotes it in a patch.
func quoted(path string) string {
	var b strings.Builder
	for _, ch := range []byte(path) {
		if ch < ' ' || ch >= 0x7f || ch == '"' || ch == '\\' {
			fmt.Fprintf(&b, "\\%03o", ch)
		} else {
			b.WriteByte(ch)
		}
	}
	return `"` + b.String() + `"`
}
