package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"packhorse/api/auth"
)

// tokenCommand signs a token.
type tokenCommand struct {
	Org       string        `help:"The organization that signs." placeholder:"NAME" required:""`
	Key       string        `help:"Its private key: PEM, PKCS #8." placeholder:"PRIVATE.pem" required:"" type:"path"`
	Kid       string        `help:"The key's id; any key of the organization may verify the token when left out." placeholder:"ID"`
	Repo      string        `help:"The repository that the token is for." placeholder:"REPO"`
	Scope     []string      `help:"What it allows: git:read, git:write, repo:write, org:read. Repeats." enum:"git:read,git:write,repo:write,org:read" default:"git:read,git:write"`
	TTL       time.Duration `help:"How long it is valid." default:"1h"`
	Subject   string        `help:"Who is recorded as the actor of changes." placeholder:"TEXT"`
	RefPolicy []string      `help:"PATTERN=OP,OP: what is refused on the refs that match; the first match wins. Repeats; a semicolon separates several." placeholder:"PATTERN=OP" sep:";"`
	Op        []string      `help:"What is refused on refs that no policy matches: no-push, no-force-push, verify-sig. Repeats." placeholder:"OP"`
}

// Run prints the token.
func (c tokenCommand) Run(to streams) error {
	if c.TTL <= 0 {
		return &usageError{"--ttl must be positive"}
	}
	rules, err := parseRefRules(c.RefPolicy)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.Key)
	if err != nil {
		return err
	}
	now := time.Now()
	token, err := auth.Mint(key, auth.Claims{
		Org:      c.Org,
		Subject:  c.Subject,
		Repo:     c.Repo,
		Scopes:   c.Scope,
		IssuedAt: now,
		Expires:  now.Add(c.TTL),
		Refs:     rules,
		Ops:      c.Op,
		KeyID:    c.Kid,
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to.out, token)
	return err
}

// parseRefRules reads policies written as PATTERN=OP,OP. No ops after "=" allows everything.
func parseRefRules(policies []string) ([]auth.RefRule, error) {
	rules := make([]auth.RefRule, 0, len(policies))
	for _, policy := range policies {
		split := strings.LastIndexByte(policy, '=') // a ref name may hold one too
		if split < 1 {
			return nil, &usageError{fmt.Sprintf("--ref-policy %q is not PATTERN=OP,OP", policy)}
		}
		rule := auth.RefRule{Pattern: policy[:split]}
		if ops := policy[split+1:]; ops != "" {
			rule.Ops = strings.Split(ops, ",")
		}
		rules = append(rules, rule)
	}
	return rules, nil
}
