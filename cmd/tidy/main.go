// Command tidy checks the order of the project where the compiler cannot: that imports follow the
// floors drawn in ARCHITECTURE.md, that dependencies are imported only in the folders listed for
// them, that every package has a comment, that shared code has a noun for a name, that the targets
// of citations in comments and pages exist, that lines are not too long, and that no file contains
// paths of a developer's machine.
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
