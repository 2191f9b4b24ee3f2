package oracle

import (
	"os/exec"
	"strings"
	"testing"
)

// WriteScript writes a program that git or a test is to run, with its #! line, to a path in a
// folder that exists.
//
// A shell writes it: a file that this process has open for writing while another goroutine forks
// cannot be executed as long as the child has it open, too.
func WriteScript(tb testing.TB, path, text string) {
	tb.Helper()
	write := exec.Command("sh", "-c", `cat >"$1" && chmod +x "$1"`, "sh", path)
	write.Stdin = strings.NewReader(text)
	if out, err := write.CombinedOutput(); err != nil {
		tb.Fatalf("write %s: %v\n%s", path, err, out)
	}
}
