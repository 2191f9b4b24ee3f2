package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"packhorse/api/auth"
	"packhorse/cmd/packhorse/gitcredential"
)

// credentialCommand is a credential helper for git: it gives a token that lasts for one operation.
type credentialCommand struct {
	URL       []string      `help:"Base URL of a server to give tokens to; any other gets no answer. Repeatable." placeholder:"URL" name:"url" required:"" is:"url"`
	AllowHTTP bool          `help:"Give tokens to hosts other than the loopback over plain HTTP." name:"allow-http"`
	Org       string        `help:"Organization that signs the tokens." placeholder:"NAME" is:"name"`
	Key       string        `help:"Private key of the organization, PKCS #8 PEM." placeholder:"PRIVATE.pem" type:"path" is:"file"`
	Command   string        `help:"Shell command that prints a token for $PACKHORSE_REPO, in place of --key." placeholder:"COMMAND" is:"text"`
	Scope     []string      `help:"Scopes: git:read, git:write. Repeatable." enum:"git:read,git:write" default:"git:read,git:write"`
	TTL       time.Duration `help:"Validity of a token." default:"5m" min:"1s"`

	claimFlags

	Operation string `arg:"" help:"What git asks for: get; anything else has no effect." is:"text"`
}

// tokenUser is the user name that git gets with a token. The server ignores it.
const tokenUser = "t"

// isSilent reports whether git has asked for something that has no effect. Then wrong flags are not
// reported, either.
func (c credentialCommand) isSilent() bool { return c.Operation != "" && c.Operation != "get" }

// Run answers one request of git.
func (c credentialCommand) Run(ctx context.Context, to streams) error {
	request, err := gitcredential.Read(os.Stdin)
	if c.isSilent() {
		return nil // nothing is stored, and later versions of git may have other operations
	}
	if err != nil {
		return err
	}
	servers, err := c.servers()
	if err != nil {
		return err
	}
	for _, server := range servers {
		repo, ours, err := server.Repository(request)
		if errors.Is(err, gitcredential.ErrNoPath) {
			return fmt.Errorf("%w; run: git config --global credential.%s.useHttpPath true", err, server)
		}
		if err != nil {
			return err
		}
		if ours {
			return c.answer(ctx, to, request, repo)
		}
	}
	return nil // another helper may know the host
}

// servers checks the flags, and returns the servers that tokens are for.
func (c credentialCommand) servers() ([]gitcredential.Server, error) {
	switch {
	case c.Key == "" && c.Command == "":
		return nil, &usageError{"one of --key and --command is needed"}
	case c.Key != "" && c.Command != "":
		return nil, &usageError{"--key and --command do not go together"}
	case c.Key != "" && c.Org == "":
		return nil, &usageError{"--key needs --org"}
	}
	var servers []gitcredential.Server
	for _, text := range c.URL {
		server, err := gitcredential.ParseServer(text, c.AllowHTTP)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("--url: %v", err)}
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// answer gives git a token for a repository.
func (c credentialCommand) answer(
	ctx context.Context, to streams, request gitcredential.Request, repo string,
) error {
	login := gitcredential.Login{Username: tokenUser}
	if request.Username != "" { // git asks for the password of this user
		login.Username = request.Username
	}
	var err error
	if c.Command != "" {
		login.Password, err = c.ask(ctx, to, request, repo)
		login.Expires = expiry(login.Password)
	} else {
		now := time.Now()
		login.Expires = now.Add(c.TTL)
		login.Password, err = c.mint(c.Key, auth.Claims{
			Org: c.Org, Repo: repo, Scopes: c.Scope, IssuedAt: now, Expires: login.Expires,
		})
	}
	if err != nil {
		return err
	}
	return login.Write(to.out)
}

// ask runs the command and returns the first line that it prints. Its complaints go to errOut;
// errors never quote its output, nor the command itself, which may hold a secret.
func (c credentialCommand) ask(
	ctx context.Context, to streams, request gitcredential.Request, repo string,
) (string, error) {
	command := exec.CommandContext(ctx, "sh", "-c", c.Command)
	command.Env = append(os.Environ(),
		"PACKHORSE_REPO="+repo, "PACKHORSE_PROTOCOL="+request.Protocol, "PACKHORSE_HOST="+request.Host)
	out := firstBytes{max: auth.TokenBytesMax + len("\r\n")}
	command.Stdout, command.Stderr = &out, to.errOut
	command.WaitDelay = time.Second // for a child that it left behind with its output open
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("the command of --command failed: %w", err)
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	token := strings.TrimSuffix(line, "\r")
	visible := func(r rune) bool { return r > ' ' && r <= '~' }
	switch {
	case token == "":
		return "", errors.New("the command of --command printed no token")
	case len(token) > auth.TokenBytesMax, strings.TrimFunc(token, visible) != "":
		return "", fmt.Errorf("the first line that the command of --command printed is no token:"+
			" expected at most %d visible ASCII characters", auth.TokenBytesMax)
	}
	return token, nil
}

// firstBytes is a buffer that drops what is written beyond max bytes.
type firstBytes struct {
	bytes.Buffer
	max int
}

func (b *firstBytes) Write(p []byte) (int, error) {
	_, _ = b.Buffer.Write(p[:min(len(p), b.max-b.Len())]) // never fails
	return len(p), nil
}

// expiry returns when a token says that it expires, without verifying it: the zero time if it does
// not say.
func expiry(token string) time.Time {
	var claims struct {
		Expires *float64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires == nil {
		return time.Time{}
	}
	if seconds := *claims.Expires; seconds > 0 && seconds < 1<<40 {
		return time.Unix(int64(seconds), 0)
	}
	return time.Time{}
}
