package packgen

import (
	"fmt"
	"math/bits"
	"strings"

	"packhorse/pack/object"
)

// Filter is a partial clone filter: it says which of the reached objects are left out of a pack.
// The zero Filter leaves out nothing.
//
// Filters combine by intersection, so one value holds any number of them. An object that the client
// asked for by its own ID is sent whatever the filter says.
type Filter struct {
	spec string
	// without has bit t set when objects of type t are left out.
	without uint8
	// blobLimit leaves out blobs of that many bytes or more. treeDepth leaves out trees and blobs that
	// lie that many levels or more below a commit. Each counts only if its flag is set.
	blobLimited, treeLimited bool
	blobLimit, treeDepth     uint64
}

// FilterError says why a filter was refused. Text is git's wording.
type FilterError struct{ Text string }

func (e *FilterError) Error() string { return e.Text }

// ParseFilter parses a filter as gitprotocol-v2(5) and git-rev-list(1) write it: blob:none,
// blob:limit=<n>[kmg], tree:<depth>, object:type=<type>, and combine:<filter>+<filter>... with each
// part percent-encoded.
//
// Errors: [FilterError], also for sparse:oid: a server should not read blobs that a client chooses
// as filters.
func ParseFilter(spec string) (Filter, error) {
	f := Filter{spec: spec}
	if err := f.add(spec); err != nil {
		return Filter{}, err
	}
	return f, nil
}

// String returns the text that f was parsed from, empty for the zero Filter.
func (f Filter) String() string { return f.spec }

// IsZero reports whether f is the zero Filter.
func (f Filter) IsZero() bool { return f.spec == "" }

// add intersects f with one filter.
func (f *Filter) add(spec string) error {
	if spec == "blob:none" {
		f.leaveOut(object.TypeBlob)
		return nil
	}
	if value, ok := strings.CutPrefix(spec, "blob:limit="); ok {
		if limit, ok := parseUnit(value); ok {
			if !f.blobLimited || limit < f.blobLimit {
				f.blobLimited, f.blobLimit = true, limit
			}
			return nil
		}
	}
	if value, ok := strings.CutPrefix(spec, "tree:"); ok {
		depth, ok := parseUnit(value)
		if !ok {
			return &FilterError{"expected 'tree:<depth>'"}
		}
		if !f.treeLimited || depth < f.treeDepth {
			f.treeLimited, f.treeDepth = true, depth
		}
		return nil
	}
	if strings.HasPrefix(spec, "sparse:oid=") {
		return &FilterError{"filter 'sparse:oid' not supported"}
	}
	if strings.HasPrefix(spec, "sparse:path=") {
		return &FilterError{"sparse:path filters support has been dropped"}
	}
	if value, ok := strings.CutPrefix(spec, "object:type="); ok {
		only, err := object.ParseType(value)
		if err != nil {
			return &FilterError{fmt.Sprintf("'%s' for 'object:type=<type>' is not a valid object type", value)}
		}
		for t := object.TypeCommit; t <= object.TypeTag; t++ {
			if t != only {
				f.leaveOut(t)
			}
		}
		return nil
	}
	if parts, ok := strings.CutPrefix(spec, "combine:"); ok {
		return f.addAll(parts)
	}
	return &FilterError{fmt.Sprintf("invalid filter-spec '%s'", spec)}
}

// addAll intersects f with the parts of a combine filter.
func (f *Filter) addAll(parts string) error {
	if parts == "" {
		return &FilterError{"expected something after combine:"}
	}
	for parts != "" {
		part, rest, _ := strings.Cut(parts, "+")
		if rest == "" {
			part = parts // as in git, a trailing + belongs to the last part
		}
		for _, c := range []byte(part) {
			if c <= ' ' || strings.IndexByte("~`!@#$^&*()[]{}\\;'\",<>?", c) >= 0 {
				return &FilterError{fmt.Sprintf("must escape char in sub-filter-spec: '%c'", c)}
			}
		}
		if err := f.add(unescapePercent(part)); err != nil {
			return err
		}
		parts = rest
	}
	return nil
}

func (f *Filter) leaveOut(t object.Type) { f.without |= 1 << t }

// keepsType reports whether any object of type t passes.
func (f *Filter) keepsType(t object.Type) bool {
	if f.without&(1<<t) != 0 {
		return false
	}
	inTree := t == object.TypeTree || t == object.TypeBlob
	return !inTree || !f.treeLimited || f.treeDepth > 0
}

// keeps reports whether an object of type t and a size in bytes passes, ignoring its depth.
func (f *Filter) keeps(t object.Type, size int64) bool {
	return f.keepsType(t) && (t != object.TypeBlob || f.keepsSize(size))
}

// keepsSize reports whether a blob of size bytes passes.
func (f *Filter) keepsSize(size int64) bool { return !f.blobLimited || uint64(size) < f.blobLimit }

// byPlace reports whether the filter depends on the depth of an object.
func (f *Filter) byPlace() bool { return f.treeLimited && f.treeDepth > 0 }

// keepsDepth reports whether a tree or blob depth levels below a commit passes; the commit's own
// tree has depth 0.
func (f *Filter) keepsDepth(depth int) bool { return !f.treeLimited || uint64(depth) < f.treeDepth }

// parseUnit parses a number as git's configuration writes it: decimal, octal or hexadecimal, with a
// unit of k, m or g.
func parseUnit(s string) (value uint64, ok bool) {
	s = strings.TrimPrefix(strings.TrimLeft(s, " \t\n\v\f\r"), "+")
	base := uint64(10)
	digits := s
	switch {
	case len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x' && digitValue(s[2]) < 16:
		base, digits = 16, s[2:]
	case len(s) > 1 && s[0] == '0':
		base = 8
	}
	length := 0
	for ; length < len(digits) && digitValue(digits[length]) < base; length++ {
		high, low := bits.Mul64(value, base)
		sum, carry := bits.Add64(low, digitValue(digits[length]), 0)
		if high != 0 || carry != 0 {
			return 0, false
		}
		value = sum
	}
	if length == 0 {
		return 0, false
	}
	factor := uint64(1)
	switch strings.ToLower(digits[length:]) {
	case "":
	case "k":
		factor = 1 << 10
	case "m":
		factor = 1 << 20
	case "g":
		factor = 1 << 30
	default:
		return 0, false
	}
	high, low := bits.Mul64(value, factor)
	return low, high == 0
}

// digitValue returns the value of a digit, and a value above any base for another byte.
func digitValue(c byte) uint64 {
	switch {
	case c >= '0' && c <= '9':
		return uint64(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return uint64(c|0x20-'a') + 10
	default:
		return 99
	}
}

// unescapePercent decodes %xx. As in git, %00 and invalid sequences stay unchanged.
func unescapePercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			high, low := digitValue(s[i+1]), digitValue(s[i+2])
			if c := high<<4 | low; high < 16 && low < 16 && c != 0 {
				out = append(out, byte(c))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
