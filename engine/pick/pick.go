// Package pick makes the messages of commits that repeat others or take them back, as git
// cherry-pick and git revert of git 2.39 make them.
//
// Start at [Message] and [RevertMessage]. The package is pure; its functions may be called
// concurrently.
package pick

import (
	"fmt"
	"strings"

	"packhorse/pack/object"
)

// Message returns the message of a commit that repeats the one with the given message: the same
// without blank lines at its beginning.
func Message(message string) string {
	message, _, _ = strings.Cut(message, "\x00") // git reads no further
	for message != "" {
		line, rest, found := strings.Cut(message, "\n")
		if !isBlank(line) {
			break
		}
		if message = rest; !found {
			return ""
		}
	}
	return message
}

// WithOrigin is Message with the line that git cherry-pick -x adds, which names the repeated
// commit. Other than without the line, white space at the ends of lines and of the message is
// removed.
func WithOrigin(message string, id object.ID) string {
	message = Message(message)
	if message != "" && !strings.HasSuffix(message, "\n") {
		message += "\n"
	}
	if !endsInTrailers(message) {
		message += "\n"
	}
	return stripSpace(message + originPrefix + id.String() + ")\n")
}

const originPrefix = "(cherry picked from commit "

// Subject returns the first line of a message that is not blank.
func Subject(message string) string {
	line, _, _ := strings.Cut(Message(message), "\n")
	return line
}

// Label is how git calls a commit in conflict markers and in the names of files that had to make
// room.
func Label(id object.ID, message string) string {
	return fmt.Sprintf("%s (%s)", id.String()[:abbreviated], Subject(message))
}

// abbreviated is the length of an ID in labels. git takes more digits in large repositories.
const abbreviated = 7

// RevertMessage returns the message of a commit that takes back the one with the given ID and
// message. parent is the one that a merge is compared with, and zero for another commit.
func RevertMessage(id object.ID, message string, parent object.ID) string {
	reversing := ""
	if !parent.IsZero() {
		reversing = ", reversing\nchanges made to " + parent.String()
	}
	return fmt.Sprintf("Revert \"%s\"\n\nThis reverts commit %s%s.\n", Subject(message), id, reversing)
}

// stripSpace removes white space at the ends of lines, blank lines at both ends of a text, and all
// but one of those in a row.
func stripSpace(text string) string {
	var out strings.Builder
	blank := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, space)
		if line == "" {
			blank = true
			continue
		}
		if blank && out.Len() > 0 {
			out.WriteByte('\n')
		}
		blank = false
		out.WriteString(line + "\n")
	}
	return out.String()
}

// space is what git takes for white space.
const space = " \t\n\r"

func isBlank(line string) bool { return strings.Trim(line, space) == "" }
