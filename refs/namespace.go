package refs

import "strings"

// Namespace is a set of refs that a remote shows as if it were the whole repository. Namespaces
// share their objects.
type Namespace uint8

// The namespaces.
const (
	// Main is what a clone of the repository sees.
	Main Namespace = iota
	// Ephemeral holds the branches of the `+ephemeral` remote.
	Ephemeral
)

// Every namespace but Main lies under namespacesPrefix, where no ref of Main may be.
const (
	namespacesPrefix = "refs/namespaces/"
	ephemeralPrefix  = namespacesPrefix + "ephemeral/"
	branchPrefix     = "refs/heads/"
	tagPrefix        = "refs/tags/"
)

// Prefix returns what the stored names of the namespace begin with, before `refs/`.
func (ns Namespace) Prefix() string {
	if ns == Ephemeral {
		return ephemeralPrefix
	}
	return ""
}

// Full returns the stored name of the ref that a client of the namespace calls name.
func (ns Namespace) Full(name string) string { return ns.Prefix() + name }

// Short returns what a client of the namespace calls the ref of a stored name that belongs to it.
func (ns Namespace) Short(full string) string { return full[len(ns.Prefix()):] }

// BranchPrefix returns what the stored names of the namespace's branches begin with.
func (ns Namespace) BranchPrefix() string { return ns.Prefix() + branchPrefix }

// TagPrefix returns what the stored names of the namespace's tags begin with.
func (ns Namespace) TagPrefix() string { return ns.Prefix() + tagPrefix }

// SplitNamespace returns the namespace of a stored name, and the name that its clients see.
func SplitNamespace(full string) (Namespace, string) {
	if name, ok := strings.CutPrefix(full, ephemeralPrefix); ok {
		return Ephemeral, name
	}
	return Main, full
}
