package refs

import "strings"

// Namespace is a set of refs that a remote shows as if it were the whole repository. Namespaces
// share their objects.
type Namespace uint8

// The namespaces.
const (
	// Main is the namespace that clones see.
	Main Namespace = iota
	// Ephemeral holds the branches of the `+ephemeral` remote.
	Ephemeral
)

// Every namespace but Main is below namespacesPrefix, where refs of Main are not allowed.
const (
	namespacesPrefix = "refs/namespaces/"
	ephemeralPrefix  = namespacesPrefix + "ephemeral/"
	branchPrefix     = "refs/heads/"
	tagPrefix        = "refs/tags/"
)

// Prefix returns the beginning of the stored names of the namespace, before `refs/`.
func (ns Namespace) Prefix() string {
	if ns == Ephemeral {
		return ephemeralPrefix
	}
	return ""
}

// Full returns the stored name of the ref that a client of the namespace calls name.
func (ns Namespace) Full(name string) string { return ns.Prefix() + name }

// Short returns the name by which clients of the namespace know the ref of a stored name in it.
func (ns Namespace) Short(full string) string { return full[len(ns.Prefix()):] }

// BranchPrefix returns the beginning of the stored names of the namespace's branches.
func (ns Namespace) BranchPrefix() string { return ns.Prefix() + branchPrefix }

// TagPrefix returns the beginning of the stored names of the namespace's tags.
func (ns Namespace) TagPrefix() string { return ns.Prefix() + tagPrefix }

// SplitNamespace returns the namespace of a stored name, and the name that its clients see.
func SplitNamespace(full string) (Namespace, string) {
	if name, ok := strings.CutPrefix(full, ephemeralPrefix); ok {
		return Ephemeral, name
	}
	return Main, full
}
