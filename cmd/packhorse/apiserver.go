package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"packhorse/api/auth"
	"packhorse/cmd/packhorse/apiclient"
	"packhorse/cmd/packhorse/gitcredential"
)

// apiFlags are the flags of commands that work through the public API of a running server.
type apiFlags struct {
	URL string `help:"Base URL of the server." placeholder:"URL" name:"url" required:"" is:"url"`
	Org string `help:"Organization that signs the tokens." placeholder:"NAME" required:"" is:"name"`
	Key string `help:"Private key of the organization, PKCS #8 PEM." placeholder:"PRIVATE.pem" required:"" type:"path" is:"file"`

	tokenFlags
}

// tokenFlags say more about the tokens, and where they are sent.
type tokenFlags struct {
	AllowHTTP bool   `help:"Send tokens to hosts other than the loopback over plain HTTP." name:"allow-http"`
	Kid       string `help:"Key ID; if omitted, any key of the organization may verify the tokens." placeholder:"ID" is:"name"`
	Subject   string `help:"Actor to record in the journal." placeholder:"TEXT" is:"text"`
}

// apiTokenTTL is the validity of a token, which is made for one request.
const apiTokenTTL = 10 * time.Minute

// server returns a client of the server. Its tokens refuse some operations on all refs.
func (f apiFlags) server(refused ...string) (*apiclient.Server, error) {
	checked, err := gitcredential.ParseServer(f.URL, f.AllowHTTP)
	if err != nil {
		return nil, &usageError{fmt.Sprintf("--url: %v", err)}
	}
	base, err := url.Parse(checked.String())
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, err
	}
	return &apiclient.Server{
		URL: base, Client: newClient(), Agent: "packhorse/" + version,
		Sign: func(repo string, scopes ...string) (string, error) {
			now := time.Now()
			token, err := auth.Mint(key, auth.Claims{
				Org: f.Org, Repo: repo, Scopes: scopes, IssuedAt: now, Expires: now.Add(apiTokenTTL),
				Subject: f.Subject, KeyID: f.Kid, Ops: refused,
			})
			if err != nil {
				return "", keyError(f.Key, privateKeyExpected, err)
			}
			return token, nil
		},
	}, nil
}

// connectionsPerHost is how many idle connections a client keeps to one host.
const connectionsPerHost = 16

// newClient returns a client of HTTP that keeps the connections of parallel jobs.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = connectionsPerHost
	return &http.Client{Transport: transport}
}
