package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"packhorse/api/auth"
)

// tokenCommand groups the subcommands for tokens.
type tokenCommand struct {
	Sign    tokenSignCommand    `cmd:"" default:"withargs" help:"Sign a token with an organization's private key."`
	Inspect tokenInspectCommand `cmd:"" help:"Decode a token, and verify it if --orgs or --key is given."`
}

// tokenSignCommand signs a token.
type tokenSignCommand struct {
	Org   string        `help:"Organization that signs the token." placeholder:"NAME" required:"" is:"name"`
	Key   string        `help:"Private key of the organization, PKCS #8 PEM." placeholder:"PRIVATE.pem" required:"" type:"path" is:"file"`
	Repo  string        `help:"Repository of the token." placeholder:"REPO" is:"token's"`
	Scope []string      `help:"Scopes: git:read, git:write, repo:write, org:read. Repeatable." enum:"git:read,git:write,repo:write,org:read" default:"git:read,git:write"`
	TTL   time.Duration `help:"Validity of the token." default:"1h" min:"1s"`

	claimFlags
}

// claimFlags are the flags about tokens that all commands share that sign them.
type claimFlags struct {
	Kid        string   `help:"Key ID; if omitted, any key of the organization may verify the token." placeholder:"ID" is:"name"`
	Subject    string   `help:"Actor to record in the journal." placeholder:"TEXT" is:"text"`
	RefPolicy  []string `help:"Operations refused on matching refs, as PATTERN=OP,OP; the first match wins. Repeatable; semicolons separate several." placeholder:"PATTERN=OP" sep:";" is:"ref policy"`
	PathPolicy []string `help:"Operations refused on matching paths, as PATTERN=no-write, or PATTERN= for an exception; the first match wins. Repeatable; semicolons separate several." placeholder:"PATTERN=OP" sep:";" is:"path policy"`
	Op         []string `help:"Operations refused on refs without a matching policy: no-push, no-force-push, verify-sig. Repeatable." placeholder:"OP" is:"op"`
}

// Run prints the token.
func (c tokenSignCommand) Run(to streams) error {
	now := time.Now()
	token, err := c.mint(c.Key, auth.Claims{
		Org: c.Org, Repo: c.Repo, Scopes: c.Scope, IssuedAt: now, Expires: now.Add(c.TTL),
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to.out, token)
	return err
}

// mint signs a token with the private key in a file. It adds the claims of the flags.
func (f claimFlags) mint(keyFile string, claims auth.Claims) (string, error) {
	rules, err := parseRules[auth.RefRule]("--ref-policy", f.RefPolicy)
	if err != nil {
		return "", err
	}
	paths, err := parseRules[auth.PathRule]("--path-policy", f.PathPolicy)
	if err != nil {
		return "", err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return "", err
	}
	claims.Subject, claims.KeyID, claims.Refs, claims.Paths, claims.Ops = f.Subject, f.Kid, rules, paths, f.Op
	token, err := auth.Mint(key, claims)
	if err != nil {
		return "", keyError(keyFile, privateKeyExpected, err)
	}
	return token, nil
}

// parseRules reads policies written as PATTERN=OP,OP. No ops after "=" allows everything.
func parseRules[R auth.RefRule | auth.PathRule](flag string, policies []string) ([]R, error) {
	rules := make([]R, 0, len(policies))
	for _, policy := range policies {
		split := strings.LastIndexByte(policy, '=') // a name may hold one too
		if split < 1 {
			return nil, &usageError{fmt.Sprintf("%s %q is not PATTERN=OP,OP", flag, policy)}
		}
		rule := auth.RefRule{Pattern: policy[:split]}
		if ops := policy[split+1:]; ops != "" {
			rule.Ops = strings.Split(ops, ",")
		}
		rules = append(rules, R(rule))
	}
	return rules, nil
}
