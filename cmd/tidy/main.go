// Command tidy checks what the compiler cannot see of the project's order: that imports follow the
// floors drawn in ARCHITECTURE.md, that dependencies come in only where they are listed, that every
// package says what it is, that shared code has a noun for a name, that what comments and pages
// cite is there, and that no file tells the paths of somebody's machine.
//
// It reads sources only, whatever their build tags, and prints one finding a line; any finding
// makes it fail.
package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
)

func main() {
	dir := flag.String("C", ".", "the module's folder")
	flag.Parse()
	count, err := run(os.DirFS(*dir), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tidy:", err)
		os.Exit(2)
	}
	if count > 0 {
		os.Exit(1)
	}
}

// run prints the findings in the module in root, and returns how many there are.
func run(root fs.FS, out io.Writer) (int, error) {
	findings, err := check(root)
	if err != nil {
		return 0, err
	}
	for _, f := range findings {
		if _, err := fmt.Fprintln(out, f); err != nil {
			return 0, err
		}
	}
	return len(findings), nil
}
