package refs

import (
	"strings"

	"packhorse/pack/object"
)

// formatFault applies the rules of git-check-ref-format(1) to name, with its option
// --allow-onelevel when oneLevel is set. It returns which one name breaks, "" for none.
func formatFault(name string, oneLevel bool) string {
	switch {
	case name == "":
		return "is empty"
	case name == "@":
		return "is @"
	case strings.HasSuffix(name, "."):
		return "ends with a dot"
	case !oneLevel && !strings.Contains(name, "/"):
		return "has one level only"
	}
	for component := range strings.SplitSeq(name, "/") {
		if reason := componentFault(component); reason != "" {
			return reason
		}
	}
	return ""
}

func componentFault(component string) string {
	switch {
	case component == "":
		return "has an empty component"
	case component[0] == '.':
		return "has a component that begins with a dot"
	case strings.HasSuffix(component, ".lock"):
		return "has a component that ends with .lock"
	case strings.Contains(component, ".."):
		return "contains .."
	case strings.Contains(component, "@{"):
		return "contains @{"
	}
	for i := range len(component) {
		if forbidden[component[i]] {
			return "contains a forbidden character"
		}
	}
	return ""
}

// forbidden are the bytes that no refname contains.
var forbidden = func() (table [256]bool) {
	for c := range byte(' ') {
		table[c] = true
	}
	for _, c := range []byte(" ~^:?*[\\\x7f") {
		table[c] = true
	}
	return table
}()

// CheckName applies the rules for the name of a ref as a client of any namespace says it: git's
// format, below `refs/`, at least three levels, at most NameBytesMax bytes, no `refs/namespaces/`
// or `refs/replace/`, and no branch or tag that reads like an object ID. Errors: a [NameError].
func CheckName(name string) error {
	if reason := nameFault(name); reason != "" {
		return &NameError{Name: name, Reason: reason}
	}
	return nil
}

func nameFault(name string) string {
	rest, ok := strings.CutPrefix(name, "refs/")
	if !ok {
		return "is not below refs/"
	}
	if len(name) > NameBytesMax {
		return "is longer than 1024 bytes"
	}
	if reason := formatFault(rest, false); reason != "" {
		return reason
	}
	switch {
	case strings.HasPrefix(name, namespacesPrefix):
		return "lies in another namespace"
	case strings.HasPrefix(name, "refs/replace/"):
		return "would replace objects"
	case isHex(strings.TrimPrefix(name, branchPrefix)), isHex(strings.TrimPrefix(name, tagPrefix)):
		return "reads like an object ID"
	}
	return ""
}

func isHex(name string) bool {
	return len(name) == object.HexSize && strings.Trim(name, "0123456789abcdefABCDEF") == ""
}

// Branch returns the stored name of a namespace's branch. Errors: a [NameError] when no branch may
// be called so.
func (ns Namespace) Branch(short string) (string, error) { return ns.under(branchPrefix, short) }

// Tag returns the stored name of a namespace's tag. Errors: a [NameError] when no tag may be called
// so.
func (ns Namespace) Tag(short string) (string, error) { return ns.under(tagPrefix, short) }

// under applies git's rules for a name that is given without its prefix, and refuses a full refname
// in its place.
func (ns Namespace) under(prefix, short string) (string, error) {
	reason := ""
	switch {
	case strings.HasPrefix(short, "-"):
		reason = "begins with a dash"
	case short == "HEAD":
		reason = "is HEAD"
	case strings.HasPrefix(short, "refs/"):
		reason = "begins with refs/"
	default:
		reason = nameFault(prefix + short)
	}
	if reason != "" {
		return "", &NameError{Name: short, Reason: reason}
	}
	return ns.Full(prefix + short), nil
}

// checkStored applies [CheckName] to a stored name.
func checkStored(full string) error {
	_, name := SplitNamespace(full)
	return CheckName(name)
}
