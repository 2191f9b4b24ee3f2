// Package invariants is the switch of self-checks that are too costly for a release, which the
// build tag "invariants" turns on. A check stands behind the constant, so that a build without the
// tag has nothing of it:
//
//	if invariants.Enabled {
//		invariants.Check(n.used >= 0, "fair: %q holds %d", n.key, n.used)
//	}
//
// Checks hold what the code promises itself, such as what docs/invariants.md lists. They say
// nothing of foreign bytes or of what a disk gives back: those may be wrong at any time, which is
// an error.
package invariants

import (
	"fmt"
	"runtime/debug"
)

// Check ends the process unless ok holds. What would recover from a panic, as package rescue does,
// does not hide it.
func Check(ok bool, format string, args ...any) {
	if ok {
		return
	}
	text := fmt.Sprintf("invariant does not hold: "+format+"\n%s", append(args, debug.Stack())...)
	go panic(text)
	select {}
}
