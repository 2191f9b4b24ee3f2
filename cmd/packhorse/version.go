package main

import (
	"fmt"
	"runtime"
)

// version is set by the linker; see the Makefile.
var version = "unknown"

// versionCommand prints the version.
type versionCommand struct{}

// Run prints one line.
func (versionCommand) Run(to streams) error {
	_, err := fmt.Fprintf(to.out, "packhorse %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
