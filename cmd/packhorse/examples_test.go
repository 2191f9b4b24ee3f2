package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// examples are the fenced blocks of a page that readers copy, in order.
type examples struct {
	path   string
	blocks []exampleBlock
}

// exampleBlock is a fenced block of a page.
type exampleBlock struct {
	line int    // of the page, at which its text begins
	part string // the heading of the second level that it stands under
	// section is the heading of any level but the first that it stands under, "" for none.
	section string
	kind    string // the word behind the fence, such as sh
	file    string // the name under which the sentence before it has the reader save it
	text    string
	// answer is the block right behind one of the kind sh, which shows what the commands print.
	answer, answerKind string
}

var savedAs = regexp.MustCompile("(?i)save(?:d| this) as `([^`]+)`:$")

// readExamples returns the blocks of a page. The answers of commands are no blocks of their own.
func readExamples(t *testing.T, path string) *examples {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := &examples{path: path}
	var block *exampleBlock
	part, section, file, closed := "", "", "", 0 // closed is the line at which the last block ended
	for i, line := range strings.Split(string(text), "\n") {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && block == nil:
			block = &exampleBlock{line: i + 2, part: part, section: section, kind: kind, file: file}
			file = ""
		case fence:
			last := len(page.blocks) - 1
			answers := closed > 0 && block.line == closed+2 && page.blocks[last].kind == "sh"
			if answers {
				page.blocks[last].answer, page.blocks[last].answerKind = block.text, block.kind
			} else {
				page.blocks = append(page.blocks, *block)
			}
			block, closed = nil, i+1
		case block != nil:
			block.text += line + "\n"
		case strings.TrimSpace(line) != "":
			file = ""
			if level, heading, ok := strings.Cut(line, " "); ok && len(level) > 1 && strings.Trim(level, "#") == "" {
				section = heading
				if len(level) == 2 {
					part = heading
				}
			}
			if found := savedAs.FindStringSubmatch(line); found != nil {
				file = found[1]
			}
		}
	}
	return page
}

// run saves the files of a page and runs its commands in a shell, in order, and compares what they
// print with the page. A command may fail only where the page shows an error of git or of ours.
func (e *examples) run(t *testing.T, sh *pageShell) {
	t.Helper()
	said := &sayings{ids: make(map[string]string)}
	ran := 0
	for _, block := range e.blocks {
		switch {
		case block.file != "":
			if err := os.WriteFile(filepath.Join(sh.dir, block.file), []byte(block.text), 0o600); err != nil {
				t.Fatal(err)
			}
		case block.kind == "sh":
			ran++
			e.runBlock(t, sh, said, block)
		}
	}
	if ran == 0 {
		t.Errorf("%s has no command: the test looks at the wrong place", e.path)
	}
}

// typed returns the commands of a block of the kind console, each as a block of the kind sh with
// what the page shows behind it as its answer. A line that begins with "$ " is a command, and goes
// on behind a backslash.
func (b exampleBlock) typed() []exampleBlock {
	var commands []exampleBlock
	goesOn := false
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		command, begins := strings.CutPrefix(line, "$ ")
		if begins && !goesOn {
			one := b
			one.line, one.kind, one.text = b.line+i, "sh", ""
			commands = append(commands, one)
		}
		if len(commands) == 0 {
			continue // it is shown, and not typed
		}
		last := &commands[len(commands)-1]
		if begins || goesOn {
			last.text += command + "\n"
			goesOn = strings.HasSuffix(line, "\\")
			continue
		}
		last.answer += line + "\n"
		last.answerKind = "text"
		if strings.HasPrefix(last.answer, "{") && !strings.Contains(last.answer, "…") {
			last.answerKind = "json"
		}
	}
	return commands
}

// showsFailure reports whether an answer is that of a command that fails.
func showsFailure(answer string) bool {
	return strings.Contains(answer, "error: ") || strings.Contains(answer, "fatal: ") || strings.HasPrefix(answer, "packhorse: ")
}

// saidWaiting is what a command says of a server that takes its time.
var saidWaiting = regexp.MustCompile(`(?m)^packhorse: waiting for .* at most\n`)

func (e *examples) runBlock(t *testing.T, sh *pageShell, said *sayings, block exampleBlock) {
	t.Helper()
	got, failed := sh.try(t, said.translated(block.text))
	got = saidWaiting.ReplaceAllString(got, "")
	if failed != "" && !showsFailure(block.answer) {
		t.Fatalf("%s:%d: failed: %s\n%s", e.path, block.line, failed, got)
	}
	var differs error
	switch block.answerKind {
	case "json":
		differs = said.stream(block.answer, got)
	case "text":
		differs = said.text(block.answer, got)
	}
	if differs != nil {
		t.Errorf("%s:%d: the page has another answer to\n%s%v\nit is\n%s", e.path, block.line, block.text, differs, got)
	}
}

// pageShell is a shell that notes which command fails, with what it complains about among its
// output.
type pageShell struct {
	*commandShell
	dir string
}

// failure separates the output of a block from the command in it that failed.
const failure = "=== failed: "

// startPageShell starts a shell in a folder, which lasts as long as the test.
func startPageShell(t *testing.T, dir string) *pageShell {
	t.Helper()
	sh := &pageShell{startShell(t, dir), dir}
	sh.prepare(t)
	return sh
}

// prepare sets the shell up.
func (s *pageShell) prepare(t *testing.T) {
	t.Helper()
	s.run(t, "exec 2>&1; set -o pipefail; FAILED=; trap 'FAILED=$BASH_COMMAND' ERR; unset ${!GIT_AUTHOR_*} ${!GIT_COMMITTER_*}")
}

// try runs commands and returns what they print, and the last one of them that failed.
func (s *pageShell) try(t *testing.T, commands string) (printed, failed string) {
	t.Helper()
	out := s.run(t, commands+"\nprintf '%s%s' '"+failure+"' \"$FAILED\"; FAILED=")
	printed, failed, _ = strings.Cut(out, failure)
	return printed, strings.TrimSpace(failed)
}

// must runs commands that succeed.
func (s *pageShell) must(t *testing.T, commands ...string) {
	t.Helper()
	if out, failed := s.try(t, strings.Join(commands, "\n")); failed != "" {
		t.Fatalf("%s: %s", failed, bytes.TrimSpace([]byte(out)))
	}
}
