package refs

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of a repository's name: docs/api.md, "Repositories".
const (
	repoNameBytesMax    = 200
	repoNameSegmentsMax = 8
)

// RepositoryNames describes the names of repositories.
const RepositoryNames = `a name is 1 to 8 segments of A-Z, a-z, 0-9, '.', '_' and '-', joined by '/', of 200 bytes at most, ` +
	`and no segment is '.' or '..', or ends in .git or .lock`

// CheckRepositoryName returns why name cannot be a repository's, or nil.
func CheckRepositoryName(name string) error {
	segments := strings.Split(name, "/")
	switch {
	case name == "org":
		return errors.New(`repository name "org" is reserved`)
	case len(name) > repoNameBytesMax:
		return fmt.Errorf("repository name is longer than %d bytes", repoNameBytesMax)
	case len(segments) > repoNameSegmentsMax:
		return fmt.Errorf("repository name has more than %d segments", repoNameSegmentsMax)
	}
	for _, segment := range segments {
		switch {
		case segment == "":
			return errors.New("repository name has an empty segment")
		case strings.Trim(segment, repoNameAlphabet) != "":
			return fmt.Errorf("repository name segment %q has characters other than A-Z, a-z, 0-9, '.', '_' and '-'", segment)
		case segment == "." || segment == "..", strings.HasSuffix(segment, ".git"), strings.HasSuffix(segment, ".lock"):
			return fmt.Errorf("repository name segment %q is not allowed", segment)
		}
	}
	return nil
}

const repoNameAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
