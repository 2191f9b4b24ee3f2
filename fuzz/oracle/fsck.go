package oracle

import (
	"errors"
	"strings"
)

// Fsck runs git fsck --strict over all objects and returns, by object ID, the faults that count as
// errors, such as "treeNotSorted". An object that git cannot even parse has the fault "unreadable".
// Missing links and the faults to ignore are none.
func (r *Repository) Fsck(ignore ...string) map[string][]string {
	r.tb.Helper()
	var args []string
	for _, name := range ignore {
		args = append(args, "-c", "fsck."+name+"=ignore")
	}
	args = append(args, "fsck", "--strict", "--full", "--no-dangling", "--no-reflogs", "--no-progress")
	_, err := r.Try(nil, args...)
	var exit *ExitError
	if !errors.As(err, &exit) {
		return nil
	}
	faults := map[string][]string{}
	for line := range strings.Lines(exit.Stderr) {
		line = strings.TrimSuffix(line, "\n")
		// "error in tree <ID>: treeNotSorted: not properly sorted"
		if rest, ok := strings.CutPrefix(line, "error in "); ok {
			_, rest, _ = strings.Cut(rest, " ")
			id, rest, _ := strings.Cut(rest, ": ")
			name, _, _ := strings.Cut(rest, ":")
			if name != "broken links" {
				faults[id] = append(faults[id], name)
			}
			continue
		}
		// "error: <ID>: object corrupt or missing: <path>" and "error: <ID>: object could not be parsed:
		// <path>"
		if rest, ok := strings.CutPrefix(line, "error: "); ok {
			if id, rest, ok := strings.Cut(rest, ": object "); ok &&
				(strings.HasPrefix(rest, "corrupt") || strings.HasPrefix(rest, "could not be")) {
				faults[id] = append(faults[id], "unreadable")
			}
		}
	}
	return faults
}
