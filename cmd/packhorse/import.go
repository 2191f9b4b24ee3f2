package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"packhorse/cmd/packhorse/apiclient"
	"packhorse/cmd/packhorse/transfer"
)

// importCommand brings repositories from elsewhere to a running server.
type importCommand struct {
	apiFlags

	Jobs   int    `help:"Repositories at a time." default:"4" min:"1"`
	Prefix string `help:"First part of all names on the server." placeholder:"NAME" is:"repository"`
	DryRun bool   `help:"Tell what would be done, and do nothing." name:"dry-run"`
	Force  bool   `help:"Also move refs of the server that are no ancestors of the new values."`

	GitHubAPI       string `help:"Base URL of GitHub's API." placeholder:"URL" default:"https://api.github.com" name:"github-api" is:"url"`
	GitHubTokenFile string `help:"File of a token for GitHub." placeholder:"FILE" type:"path" name:"github-token-file" is:"file"`

	Source []string `arg:"" help:"A folder with bare repositories, the URL of a repository, @FILE with a URL and perhaps a name on each line, or github:ACCOUNT." is:"text"`
}

// importRetries is how often a repository is begun again when something is not available.
const importRetries = 3

// Run brings all repositories. A failure of one does not end the others.
func (c importCommand) Run(ctx context.Context, to streams) error {
	var refused []string
	if !c.Force {
		refused = []string{"no-force-push"}
	}
	server, err := c.server(refused...)
	if err != nil {
		return err
	}
	finder, err := c.finder()
	if err != nil {
		return err
	}
	jobs, err := finder.Sources(ctx, c.Source)
	if _, ok := errors.AsType[*transfer.ArgumentError](err); ok {
		return &usageError{"<source>: " + err.Error()}
	}
	if missing, ok := errors.AsType[*fs.PathError](err); ok {
		return &usageError{fmt.Sprintf("<source>: %v", expected(missing, "a folder, a URL, @FILE or github:ACCOUNT"))}
	}
	if err != nil {
		return err
	}
	begun := time.Now()
	display := transfer.NewDisplay(to.out, terminalWidth(to.out), c.DryRun)
	importer := &transfer.Importer{
		Server: server, Jobs: c.Jobs, DryRun: c.DryRun, Retries: importRetries, Begun: display.Begun, Ended: display.Ended,
	}
	if err := c.reach(ctx, importer); err != nil {
		return err
	}
	importer.Run(ctx, jobs)
	summary := display.Close()
	if err := to.printf("%s", summary.Text(len(jobs), time.Since(begun), c.DryRun)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not finished; the same command goes on: %w", err)
	}
	if count := len(summary.Failed); count > 0 {
		return fmt.Errorf("%d of %d repositories failed", count, len(jobs))
	}
	return nil
}

// reach returns an error if the server does not answer or takes no token of the organization: all
// repositories would fail for the same reason.
func (c importCommand) reach(ctx context.Context, importer *transfer.Importer) error {
	err := importer.Reach(ctx)
	if apiclient.HasStatus(err, http.StatusUnauthorized) {
		return &usageError{fmt.Sprintf(
			"--key and --org: %s takes no token of organization %q that %s signs: %v", c.URL, c.Org, c.Key, err,
		)}
	}
	if err != nil {
		return fmt.Errorf("--url: the server cannot be reached: %w", err)
	}
	return nil
}

// finder returns what finds the sources.
func (c importCommand) finder() (transfer.Finder, error) {
	api, err := url.Parse(c.GitHubAPI)
	if err != nil || api.Scheme != "https" && api.Scheme != "http" || api.Host == "" {
		return transfer.Finder{}, &usageError{"--github-api is not an http or https URL with a host"}
	}
	finder := transfer.Finder{
		Client: newClient(), Agent: "packhorse/" + version, Prefix: strings.Trim(c.Prefix, "/"), GitHubAPI: api,
	}
	if c.GitHubTokenFile != "" {
		token, err := os.ReadFile(c.GitHubTokenFile)
		if err != nil {
			return transfer.Finder{}, err
		}
		finder.GitHubToken = strings.TrimSpace(string(token))
	}
	return finder, nil
}
