// Package pathpolicy refuses changes of paths, as the claim "paths" of a token says.
//
// Start at [Parse], then [Policy.Check], which compares the trees that a ref leads to before and
// after a change and opens only folders that differ. The map, by file:
//
//	pathpolicy  the rules, and which of them governs a path
//	check       the paths that a change of a ref changes
//	fold        names that are one file on some file system
package pathpolicy

import (
	"errors"
	"fmt"

	"packhorse/engine/pathspec"
	"packhorse/pack/object"
	"packhorse/refs"
)

// ErrInvalid says that rules cannot be understood.
var ErrInvalid = errors.New("pathpolicy: invalid policy")

// NoWrite is the op that lets nothing change at a path.
const NoWrite refs.Op = "no-write"

// RuleCountMax is the number of rules in a policy.
const RuleCountMax = 1000

// Policy says which paths may not change. The zero value lets all of them change. It is immutable,
// and may be used concurrently.
type Policy struct {
	rules []rule
}

// rule governs the paths that match a pattern.
type rule struct {
	pattern string
	filter  *pathspec.Filter
	// op is the op that refuses a change, "" if none does. A rule that refuses also governs other
	// spellings of its paths, see fold; an exception does not.
	op refs.Op
}

// Parse returns the policy of a claim: ordered pairs [pattern, [op, ...]] as JSON decodes them, of
// which the first that matches a path governs it. Patterns are the globs of [pathspec]. An op that
// is not known refuses what it governs. Errors: [ErrInvalid], which names the rule.
func Parse(pairs [][]any) (Policy, error) {
	if len(pairs) > RuleCountMax {
		return Policy{}, fmt.Errorf("%w: %d rules, at most %d", ErrInvalid, len(pairs), RuleCountMax)
	}
	policy := Policy{}
	for i, pair := range pairs {
		parsed, err := parseRule(pair)
		if err != nil {
			return Policy{}, fmt.Errorf("%w: rule %d: %w", ErrInvalid, i, err)
		}
		policy.rules = append(policy.rules, parsed)
	}
	return policy, nil
}

func parseRule(pair []any) (rule, error) {
	pattern, ops, err := refs.SplitRule(pair)
	if err != nil {
		return rule{}, err
	}
	parsed := rule{pattern: pattern}
	for _, op := range ops {
		if op == "" {
			return rule{}, errors.New("an op is empty")
		}
		if parsed.op == "" || op != NoWrite { // the unknown one is told
			parsed.op = op
		}
	}
	glob := pattern
	if parsed.op != "" {
		glob = fold(pattern)
	}
	parsed.filter, err = (&pathspec.Spec{Include: []string{glob}}).Compile()
	return parsed, err
}

// Protects reports whether there are paths that may not change.
func (p Policy) Protects() bool {
	for i := range p.rules {
		if p.rules[i].op != "" {
			return true
		}
	}
	return false
}

// CheckWhole refuses an operation that may change any path, now or later. detail describes it.
// Errors: a [refs.DeniedError] that names the first rule with an op.
func (p Policy) CheckWhole(detail string) error {
	for i := range p.rules {
		if r := &p.rules[i]; r.op != "" {
			return &refs.DeniedError{Name: r.pattern, Op: r.op, Detail: detail}
		}
	}
	return nil
}

// governing returns the rule that governs a path, nil for none. What a symbolic link or a submodule
// shows lies at the paths below it, so it is governed as they are.
func (p Policy) governing(path string, modes ...object.Mode) *rule {
	link := false
	for _, mode := range modes {
		link = link || mode.IsGitlink() || mode.IsSymlink()
	}
	folded := fold(path)
	for i := range p.rules {
		r, at := &p.rules[i], path
		if r.op != "" {
			at = folded
		}
		if r.filter.Match(at) || link && (r.filter.Match(at+"/\x00") || r.op != "" && r.filter.LeadsBelow(at)) {
			return r
		}
	}
	return nil
}
