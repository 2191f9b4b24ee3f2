// Package invariants is the switch of self-checks that are too costly for a release. The build tag
// "invariants" turns them on. A check stands behind the constant, so that a build without the tag
// does not contain it:
//
//	if invariants.Enabled {
//		invariants.Check(n.used >= 0, "fair: %q holds %d", n.key, n.used)
//	}
//
// Checks are about the program itself, such as the invariants in docs/invariants.md. They are not
// for received bytes or bytes read from a disk: those may be wrong at any time, which is an error.
package invariants

import (
	"fmt"
	"runtime/debug"
)

// Check ends the process unless ok holds. Recovering from panics, as package rescue does, does not
// hide the failure.
func Check(ok bool, format string, args ...any) {
	if ok {
		return
	}
	text := fmt.Sprintf("invariant does not hold: "+format+"\n%s", append(args, debug.Stack())...)
	go panic(text)
	select {}
}
