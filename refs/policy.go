package refs

import (
	"fmt"
	"slices"
	"strings"
)

// Op is an operation of a policy.
type Op string

// The ops that are known. A change of a ref that another op governs is refused.
const (
	NoPush      Op = "no-push"       // no update at all
	NoForcePush Op = "no-force-push" // fast-forward only, and no deletion
	VerifySig   Op = "verify-sig"    // every commit that is new to the ref is signed by a registered key
)

// Ops are the ops that govern a ref.
type Ops []Op

// Has reports whether op is among ops.
func (ops Ops) Has(op Op) bool { return slices.Contains(ops, op) }

// unknown returns the first op that is not known.
func (ops Ops) unknown() (Op, bool) {
	for _, op := range ops {
		switch op {
		case NoPush, NoForcePush, VerifySig:
		default:
			return op, true
		}
	}
	return "", false
}

// Policy says which ops govern which ref. The zero value allows everything. It is immutable.
type Policy struct {
	rules []rule
}

// rule governs the names that equal pattern, or begin with it when it is a glob.
type rule struct {
	pattern string
	glob    bool
	ops     Ops
}

// ParsePolicy returns the policy of a token's claims: refs holds ordered pairs [pattern, [op, ...]]
// as JSON decodes them, the first match wins, and ops are added to the rule for `*`, which is made
// the last one when refs has none.
//
// A pattern is a full refname, a prefix that ends in `*`, `*` alone, or the same for a branch
// without `refs/heads/`. An op that is not known is kept, and refuses the writes that it governs.
// Errors: a [PolicyError].
func ParsePolicy(refs [][]any, ops []string) (Policy, error) {
	var policy Policy
	for i, pair := range refs {
		rule, err := parseRule(pair)
		if err != nil {
			return Policy{}, &PolicyError{Index: i, Reason: err.Error()}
		}
		policy.rules = append(policy.rules, rule)
	}
	if len(ops) == 0 {
		return policy, nil
	}
	last := slices.IndexFunc(policy.rules, func(r rule) bool { return r.glob && r.pattern == "" })
	if last < 0 {
		last = len(policy.rules)
		policy.rules = append(policy.rules, rule{glob: true})
	}
	for _, op := range ops {
		policy.rules[last].ops = append(policy.rules[last].ops, Op(op))
	}
	return policy, nil
}

func parseRule(pair []any) (rule, error) {
	pattern, ops, err := SplitRule(pair)
	if err != nil {
		return rule{}, err
	}
	parsed, err := parsePattern(pattern)
	parsed.ops = ops
	return parsed, err
}

// SplitRule reads a rule of a claim as JSON decodes it, [pattern, [op, ...]]. An error says what it
// is instead.
func SplitRule(pair []any) (pattern string, ops Ops, err error) {
	if len(pair) != 2 {
		return "", nil, fmt.Errorf("has %d elements, not a pattern and its ops", len(pair))
	}
	pattern, ok := pair[0].(string)
	if !ok {
		return "", nil, fmt.Errorf("the pattern is a %T, not a string", pair[0])
	}
	list, ok := pair[1].([]any)
	if !ok {
		return "", nil, fmt.Errorf("the ops are a %T, not an array", pair[1])
	}
	for _, element := range list {
		op, ok := element.(string)
		if !ok {
			return "", nil, fmt.Errorf("an op is a %T, not a string", element)
		}
		ops = append(ops, Op(op))
	}
	return pattern, ops, nil
}

func parsePattern(pattern string) (rule, error) {
	prefix, glob := strings.CutSuffix(pattern, "*")
	switch {
	case pattern == "":
		return rule{}, fmt.Errorf("the pattern is empty")
	case strings.Contains(prefix, "*"):
		return rule{}, fmt.Errorf("pattern %.100q has a * before its end", pattern)
	case prefix != "" && !strings.HasPrefix(prefix, "refs/"):
		prefix = branchPrefix + prefix
	}
	return rule{pattern: prefix, glob: glob}, nil
}

// Ops returns the ops that govern the ref of a full name: those of the first rule that matches. It
// is read only.
func (p Policy) Ops(name string) Ops {
	for _, rule := range p.rules {
		if rule.matches(name) {
			return rule.ops
		}
	}
	return nil
}

func (r *rule) matches(name string) bool {
	return name == r.pattern || r.glob && strings.HasPrefix(name, r.pattern)
}

// CheckWhole checks an operation that affects all refs below the prefixes (all refs without one) at
// once, or later, and so cannot be checked ref by ref. It refuses the operation when a rule that
// may govern such a ref has one of the refused ops, or an unknown one. detail describes the
// operation. Errors: a [DeniedError] that names the rule.
func (p Policy) CheckWhole(detail string, refused Ops, prefixes ...string) error {
	for i := range p.rules {
		rule := &p.rules[i]
		if !rule.meets(prefixes) {
			continue
		}
		if op, ok := rule.ops.unknown(); ok {
			return &DeniedError{Name: rule.String(), Op: op, Detail: "the op is not known"}
		}
		for _, op := range rule.ops {
			if refused.Has(op) {
				return &DeniedError{Name: rule.String(), Op: op, Detail: detail}
			}
		}
	}
	return nil
}

// meets reports whether the rule can match a name below one of the prefixes; without prefixes it
// can.
func (r *rule) meets(prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool {
		return strings.HasPrefix(r.pattern, prefix) || r.glob && strings.HasPrefix(prefix, r.pattern)
	})
}

// String returns the pattern.
func (r *rule) String() string {
	if r.glob {
		return r.pattern + "*"
	}
	return r.pattern
}
