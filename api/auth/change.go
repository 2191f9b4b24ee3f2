package auth

import (
	"maps"
	"reflect"
	"slices"
)

// ChangeKind says what has changed of an organization.
type ChangeKind string

// The kinds of changes.
const (
	OrganizationAdded   ChangeKind = "organizationAdded"
	OrganizationRemoved ChangeKind = "organizationRemoved"
	SettingsChanged     ChangeKind = "organizationChanged" // of its org.yaml, or the files that this names
	KeyRegistered       ChangeKind = "keyRegistered"
	KeyRemoved          ChangeKind = "keyRemoved"
)

// Change is a change of an organization, by whoever changes the folder or the rows.
type Change struct {
	Kind  ChangeKind
	Org   string
	KeyID string // of a key that was registered or removed
}

// eachChange calls tell with what has changed from a to b, in the order of the organizations and
// their keys. A key of another content is a key that was removed, and one that was registered.
func eachChange(a, b map[string]*issuer, tell func(Change)) {
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if a[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		before, after := a[name], b[name]
		switch {
		case before == after:
			continue
		case before == nil:
			tell(Change{Kind: OrganizationAdded, Org: name})
		case after != nil && !reflect.DeepEqual(before.config, after.config):
			tell(Change{Kind: SettingsChanged, Org: name})
		}
		keysOnlyIn(after, before, func(id string) { tell(Change{KeyRemoved, name, id}) })
		keysOnlyIn(before, after, func(id string) { tell(Change{KeyRegistered, name, id}) })
		if after == nil {
			tell(Change{Kind: OrganizationRemoved, Org: name})
		}
	}
}

// keysOnlyIn calls f with the ids of the keys that are in b and not in a, each of which may be nil.
func keysOnlyIn(a, b *issuer, f func(id string)) {
	if b == nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(b.keys)) {
		if a == nil || a.keys[id] != b.keys[id] {
			f(id)
		}
	}
}
