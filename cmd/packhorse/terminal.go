package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth returns how many columns the terminal has that an output goes to, or 0 if it goes
// elsewhere.
func terminalWidth(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80
	}
	return int(size.Col)
}
