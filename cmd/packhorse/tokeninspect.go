package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"packhorse/api/auth"
)

// tokenInspectCommand looks into a token.
type tokenInspectCommand struct {
	Token string `arg:"" optional:"" help:"The token; by default, or for -, it is read from standard input, where no list of processes shows it." default:"-" is:"text"`
	Orgs  string `help:"Verify it with the organizations of this folder, as a server does." placeholder:"DIR" type:"path" is:"folder"`
	Key   string `help:"Verify it with this key, public or private, PEM." placeholder:"KEY.pem" type:"path" is:"file"`
	JSON  bool   `help:"Print a JSON object." name:"json"`

	logFlags
}

// errNotVerified says that a token is not good.
var errNotVerified = errors.New("the token is refused")

// Run prints what the token says, and never the token. Errors: [errNotVerified] if it was to be
// verified, and is not good.
func (c tokenInspectCommand) Run(to streams) error {
	token, err := readToken(c.Token, os.Stdin)
	if err != nil {
		return err
	}
	is, err := auth.Inspect(token)
	if err != nil {
		return &usageError{"<token>: " + err.Error()}
	}
	answer, err := c.verify(token, to)
	if err != nil {
		return err
	}
	if c.JSON {
		err = to.printJSON(inspectedJSON(&is, answer))
	} else {
		err = to.printf("%s", describeToken(&is, answer, time.Now()))
	}
	if err == nil && answer.refusal != nil {
		err = errNotVerified
	}
	return err
}

// readToken returns the token of an argument, or the first line of in.
func readToken(argument string, in io.Reader) (string, error) {
	if argument == "-" {
		text, err := io.ReadAll(io.LimitReader(in, 2*auth.TokenBytesMax))
		if err != nil {
			return "", fmt.Errorf("read the token from standard input: %w", err)
		}
		argument, _, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
	}
	argument = strings.TrimSpace(argument)
	if scheme, token, found := strings.Cut(argument, " "); found && strings.EqualFold(scheme, "Bearer") {
		argument = strings.TrimSpace(token) // of a header
	}
	return argument, nil
}

// verification is what came of verifying a token.
type verification struct {
	with    string // "" if it was not asked for
	grant   *auth.Grant
	refusal error
}

// verify verifies a token if there is something to do so with.
func (c tokenInspectCommand) verify(token string, to streams) (verification, error) {
	switch {
	case c.Orgs != "" && c.Key != "":
		return verification{}, &usageError{"want --orgs or --key, and not both"}
	case c.Key != "":
		data, err := os.ReadFile(c.Key)
		if err != nil {
			return verification{}, err
		}
		grant, err := auth.VerifyWith(data, token, time.Now)
		if errors.Is(err, auth.ErrKey) {
			return verification{}, keyError(c.Key, "a key of an organization, PEM", err)
		}
		return verification{with: c.Key, grant: grant, refusal: err}, nil
	case c.Orgs != "":
		orgs, err := auth.Open(auth.Options{Dir: c.Orgs, Logger: c.logger(to.errOut)})
		if err != nil {
			return verification{}, err
		}
		defer orgs.Close()
		grant, err := orgs.Verify("Bearer " + token)
		return verification{with: c.Orgs, grant: grant, refusal: err}, nil
	}
	return verification{}, nil
}

// describeToken is a line for each claim of a token, as of now.
func describeToken(is *auth.Inspected, answer verification, now time.Time) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, value string) { _, _ = fmt.Fprintf(table, "%s:\t%s\n", name, value) } // to a Builder
	optional := func(name, value string) {
		if value != "" {
			row(name, printable(value))
		}
	}
	row("organization", orDash(printable(is.Org)))
	if is.Repo == "" {
		row("repository", "- (calls about the organization)")
	} else {
		row("repository", printable(is.Repo))
	}
	row("scopes", orDash(printable(strings.Join(is.Scopes, ", "))))
	row("expires", orNever(is.Expires, now))
	if is.NotBefore.After(now) {
		row("valid from", moment(is.NotBefore, now))
	}
	if !is.IssuedAt.IsZero() {
		row("issued", moment(is.IssuedAt, now))
	}
	optional("subject", is.Subject)
	optional("key ID", is.KeyID)
	optional("algorithm", is.Algorithm)
	for _, rule := range is.Refs {
		row("refused on refs", printable(rule.Pattern+"="+strings.Join(rule.Ops, ",")))
	}
	optional("refused on other refs", strings.Join(is.Ops, ","))
	for _, rule := range is.Paths {
		row("refused on paths", printable(rule.Pattern+"="+strings.Join(rule.Ops, ",")))
	}
	if is.Fault != "" {
		row("fault", printable(is.Fault)+": every server refuses the token")
	}
	switch {
	case answer.with == "":
		row("verified", "no: not asked for; --orgs or --key does so")
	case answer.refusal != nil:
		row("verified", fmt.Sprintf("no, with %s: %v", answer.with, answer.refusal))
	default:
		row("verified", fmt.Sprintf("yes, with %s, key %s", answer.with, printable(answer.grant.KeyID)))
	}
	_ = table.Flush() // to a Builder
	return text.String()
}

// orNever is the moment of an expiry, which a token may lack.
func orNever(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return moment(at, now)
}

// tokenJSON is a token for machines.
type tokenJSON struct {
	Organization string    `json:"organization"`
	Repository   string    `json:"repository,omitempty"`
	Scopes       []string  `json:"scopes"`
	Expires      time.Time `json:"expires,omitzero"`
	NotBefore    time.Time `json:"not_before,omitzero"`
	IssuedAt     time.Time `json:"issued_at,omitzero"`
	Subject      string    `json:"subject,omitempty"`
	KeyID        string    `json:"key_id,omitempty"`
	Algorithm    string    `json:"algorithm,omitempty"`
	RefPolicy    []string  `json:"ref_policy,omitempty"`
	Ops          []string  `json:"ops,omitempty"`
	PathPolicy   []string  `json:"path_policy,omitempty"`
	Fault        string    `json:"fault,omitempty"`
	Verified     *bool     `json:"verified,omitempty"` // nil if it was not asked for
	VerifiedBy   string    `json:"verified_by,omitempty"`
	Refusal      string    `json:"refusal,omitempty"`
}

func inspectedJSON(is *auth.Inspected, answer verification) tokenJSON {
	shown := tokenJSON{
		Organization: is.Org, Repository: is.Repo, Scopes: append([]string{}, is.Scopes...),
		Expires: is.Expires.UTC(), NotBefore: is.NotBefore.UTC(), IssuedAt: is.IssuedAt.UTC(),
		Subject: is.Subject, KeyID: is.KeyID, Algorithm: is.Algorithm, Ops: is.Ops, Fault: is.Fault,
	}
	for _, rule := range is.Refs {
		shown.RefPolicy = append(shown.RefPolicy, rule.Pattern+"="+strings.Join(rule.Ops, ","))
	}
	for _, rule := range is.Paths {
		shown.PathPolicy = append(shown.PathPolicy, rule.Pattern+"="+strings.Join(rule.Ops, ","))
	}
	if answer.with == "" {
		return shown
	}
	good := answer.refusal == nil
	shown.Verified = &good
	if good {
		shown.VerifiedBy = answer.grant.KeyID
	} else {
		shown.Refusal = answer.refusal.Error()
	}
	return shown
}
