package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// gitHubPageMax bounds an answer of the API in bytes.
const gitHubPageMax = 16 << 20

// nextPage finds the next page in a Link header.
var nextPage = regexp.MustCompile(`<([^>]*)>;\s*rel="next"`)

// errNoAccount says that an account is no organization, or does not exist.
var errNoAccount = errors.New("GitHub knows no such account")

// gitHub returns the repositories of an account: an organization, or else a user.
func (f Finder) gitHub(ctx context.Context, account string) ([]Job, error) {
	if account == "" || strings.ContainsAny(account, "/?#") {
		return nil, &ArgumentError{"github:" + account, "is not github: and the name of an account: expected one as in github:acme"}
	}
	jobs, err := f.gitHubRepositories(ctx, "orgs", account)
	if errors.Is(err, errNoAccount) {
		jobs, err = f.gitHubRepositories(ctx, "users", account)
	}
	if err != nil {
		return nil, fmt.Errorf("list github:%s: %w", account, err)
	}
	return jobs, nil
}

func (f Finder) gitHubRepositories(ctx context.Context, kind, account string) ([]Job, error) {
	var jobs []Job
	page := f.GitHubAPI.JoinPath(kind, account, "repos")
	page.RawQuery = "per_page=100&type=all"
	for page != nil {
		var found []struct {
			FullName string `json:"full_name"`
			CloneURL string `json:"clone_url"`
			Size     int64  `json:"size"` // KiB
		}
		next, err := f.gitHubPage(ctx, page, &found)
		if err != nil {
			return nil, err
		}
		for _, repository := range found {
			at, err := url.Parse(repository.CloneURL)
			if err != nil || at.User != nil || at.Scheme != "https" && !isLoopback(at.Hostname()) {
				return nil, fmt.Errorf("the clone_url of %s is no https URL", repository.FullName)
			}
			jobs = append(jobs, Job{
				Name: repository.FullName, From: repository.CloneURL, Bytes: repository.Size << 10,
				origin: openHost(f.Client, at, "x-access-token", f.GitHubToken, f.Agent),
			})
		}
		page = next
	}
	return jobs, nil
}

// gitHubPage reads a page of a listing, and returns where the next one is, or nil.
func (f Finder) gitHubPage(ctx context.Context, page *url.URL, out any) (*url.URL, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/vnd.github+json")
	request.Header.Set("User-Agent", f.Agent)
	if f.GitHubToken != "" {
		request.Header.Set("Authorization", "Bearer "+f.GitHubToken)
	}
	response, err := f.Client.Do(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, gitHubPageMax))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusNotFound {
		return nil, errNoAccount
	}
	if response.StatusCode != http.StatusOK {
		var told struct{ Message string }
		_ = json.Unmarshal(text, &told) // the status is enough
		return nil, fmt.Errorf("the API answers %s: %.200q", response.Status, told.Message)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, err
	}
	link := nextPage.FindStringSubmatch(response.Header.Get("Link"))
	if link == nil {
		return nil, nil
	}
	next, err := url.Parse(link[1])
	if err != nil || next.Scheme != page.Scheme || next.Host != page.Host {
		return nil, errors.New("the API names a next page on another host")
	}
	return next, nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
