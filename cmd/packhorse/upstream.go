package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"packhorse/api"
	"packhorse/engine"
	"packhorse/engine/outbound"
	"packhorse/engine/upstream"
	"packhorse/engine/upstream/githubapp"
)

// upstreamFlags configure outbound connections: upstreams, and webhooks.
type upstreamFlags struct {
	UpstreamAllow   []string      `help:"Host names, addresses and networks (CIDR) that upstreams and webhooks may reach even if private or loopback; comma-separated." placeholder:"HOST|CIDR" is:"reachable"`
	UpstreamWorkers int           `help:"Concurrent syncs with upstreams; one organization gets half of them." default:"4" min:"1"`
	UpstreamRetry   time.Duration `help:"Delay after a failed sync; it doubles with each failure, up to an hour." default:"5s" min:"1ms"`
	GithubAppID     string        `help:"ID of the GitHub App for private repositories on GitHub, of the accounts listed as github_owners in org.yaml." placeholder:"ID" is:"number"`
	GithubAppKey    string        `help:"Private key of the GitHub App: PEM file." placeholder:"FILE" type:"path" is:"file"`
	GithubAPI       string        `name:"github-api" help:"Base URL of the GitHub API; https://HOST/api/v3 for GitHub Enterprise Server." default:"https://api.github.com" placeholder:"URL" is:"url"`
}

// upstreams returns the configuration of upstreams.
func (s *server) upstreams() (engine.UpstreamConfig, error) {
	guard, err := outbound.ParseGuard(s.flags.Upstream.UpstreamAllow)
	if err != nil {
		return engine.UpstreamConfig{}, &usageError{fmt.Sprintf("--upstream-allow: %v", err)}
	}
	app, err := s.flags.Upstream.app(guard)
	if err != nil {
		return engine.UpstreamConfig{}, err
	}
	return engine.UpstreamConfig{
		Enabled: true,
		Guard:   guard,
		App: func(org, owner string) engine.GitHubApp {
			if config, ok := s.tokens.OrgConfig(org); app == nil || !ok || !mayUseApp(config.GitHubOwners, owner) {
				return nil
			}
			return app
		},
		Settings: upstream.Settings{Workers: s.flags.Upstream.UpstreamWorkers, RetryMin: s.flags.Upstream.UpstreamRetry},
		Bases: func(org string) map[string]string {
			config, ok := s.tokens.OrgConfig(org)
			if !ok {
				return nil
			}
			return config.Upstreams
		},
	}, nil
}

// mayUseApp reports whether an account on GitHub is one of those listed; GitHub ignores case.
func mayUseApp(owners []string, owner string) bool {
	return slices.ContainsFunc(owners, func(listed string) bool {
		return listed == "*" || strings.EqualFold(listed, owner)
	})
}

// app returns the GitHub App, nil without one.
func (f *upstreamFlags) app(guard *outbound.Guard) (*githubapp.App, error) {
	switch {
	case f.GithubAppID == "" && f.GithubAppKey == "":
		return nil, nil
	case f.GithubAppID == "" || f.GithubAppKey == "":
		return nil, &usageError{"--github-app-id and --github-app-key go together: a GitHub App needs its ID and its private key"}
	}
	key, err := os.ReadFile(f.GithubAppKey)
	if err != nil {
		return nil, &usageError{fmt.Sprintf("--github-app-key: %v", err)}
	}
	at, err := guard.CheckURL(f.GithubAPI)
	if err != nil {
		return nil, &usageError{fmt.Sprintf("--github-api: %v", err)}
	}
	app, err := githubapp.New(githubapp.Config{
		ID: f.GithubAppID, Key: key, API: at, Client: guard.Client(outbound.Options{}), Agent: "packhorse/" + version,
	})
	if err != nil {
		return nil, &usageError{fmt.Sprintf("--github-app-key: %s: %v", f.GithubAppKey, err)}
	}
	return app, nil
}

// upstreamFigures are the metrics of syncs.
func upstreamFigures(host *engine.Host) []api.Figure {
	figure := func(name, help string, counter bool, value func(upstream.Stats) float64) api.Figure {
		return api.Figure{Name: "upstream_" + name, Help: help, Counter: counter, Value: func() float64 {
			return value(host.UpstreamStats())
		}}
	}
	return []api.Figure{
		figure("syncs_total", "Completed syncs with upstreams.", true, func(s upstream.Stats) float64 {
			return float64(s.Syncs)
		}),
		figure("failures_total", "Syncs with upstreams that failed, entirely or for some refs.", true,
			func(s upstream.Stats) float64 { return float64(s.Failures) }),
		figure("running", "Running syncs with upstreams.", false, func(s upstream.Stats) float64 {
			return float64(s.Running)
		}),
		figure("waiting", "Repositories waiting for a sync with their upstream or for a retry.", false,
			func(s upstream.Stats) float64 { return float64(s.Waiting) }),
		figure("lag_seconds", "Time for which the repository that waits for longest has waited for a complete sync.", false,
			func(s upstream.Stats) float64 { return s.Lag.Seconds() }),
	}
}
