package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"packhorse/cmd/packhorse/gitdir"
	"packhorse/engine"
)

// Finder finds what arguments name.
type Finder struct {
	Client      *http.Client
	Agent       string
	Prefix      string   // of all names on the server, without the slash behind it
	GitHubAPI   *url.URL // base URL
	GitHubToken string   // "" for what everybody may read
}

// ArgumentError says what is wrong with an argument, which is "" if it may hold a secret.
type ArgumentError struct{ Argument, Text string }

func (e *ArgumentError) Error() string {
	if e.Argument == "" {
		return "an argument " + e.Text
	}
	return fmt.Sprintf("%q %s", e.Argument, e.Text)
}

// urlExpected is what the URL of a repository is.
const urlExpected = "expected one as in https://git.example.com/web/site.git"

// Sources returns the repositories that arguments name: a folder with bare repositories in it, the
// URL of one repository, "@FILE" with a URL and perhaps a name on each line, "github:ACCOUNT". A
// repository in a folder is named by its path below it, others by the path of their URL. One whose
// name no repository may have, or that another one has, is a job that fails.
//
// Errors: [ArgumentError], those of the file system and of GitHub.
func (f Finder) Sources(ctx context.Context, arguments []string) ([]Job, error) {
	var jobs []Job
	for _, argument := range arguments {
		var found []Job
		var err error
		account, isGitHub := strings.CutPrefix(argument, "github:")
		list, isList := strings.CutPrefix(argument, "@")
		switch {
		case isGitHub:
			found, err = f.gitHub(ctx, account)
		case isList:
			found, err = f.list(list)
		case strings.Contains(argument, "://"):
			found, err = f.url(argument, "")
		default:
			found, err = f.folder(ctx, argument)
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, found...)
	}
	names := make(map[string]string, len(jobs))
	for i := range jobs {
		job := &jobs[i]
		if f.Prefix != "" {
			job.Name = f.Prefix + "/" + job.Name
		}
		if job.err = engine.CheckRepositoryName(job.Name); job.err != nil {
			continue
		}
		if other, taken := names[job.Name]; taken {
			job.err = fmt.Errorf("%s has the same name", other)
			continue
		}
		names[job.Name] = job.From
	}
	return jobs, nil
}

// list reads a file of URLs. Empty lines and those that begin with # are none.
func (f Finder) list(file string) (jobs []Job, err error) {
	open, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, open.Close()) }()
	lines := bufio.NewScanner(open)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) > 2 {
			return nil, &ArgumentError{fmt.Sprintf("%s:%d", file, number), "has more than two words: expected a URL and perhaps a name, as in https://git.example.com/a.git web/site"}
		}
		found, err := f.url(fields[0], strings.Join(fields[1:], ""))
		if wrong, ok := errors.AsType[*ArgumentError](err); ok {
			return nil, &ArgumentError{fmt.Sprintf("%s:%d", file, number), wrong.Text}
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, found...)
	}
	return jobs, lines.Err()
}

// url is the job of one URL. The name may be "".
func (f Finder) url(text, name string) ([]Job, error) {
	at, err := url.Parse(text)
	if err != nil {
		return nil, &ArgumentError{"", "is not a URL: " + urlExpected} // it may hold a password
	}
	password, secret := at.User.Password()
	switch {
	case at.Scheme != "https" && at.Scheme != "http" || at.Host == "":
		return nil, &ArgumentError{at.Redacted(), "is not an http or https URL with a host: " + urlExpected}
	case at.RawQuery != "" || at.Fragment != "":
		return nil, &ArgumentError{at.Redacted(), "has a query or a fragment: " + urlExpected}
	case secret && at.Scheme == "http" && !isLoopback(at.Hostname()):
		return nil, &ArgumentError{at.Redacted(), "would send a password without encryption: use https"}
	}
	if name == "" {
		name = strings.TrimSuffix(strings.Trim(path.Clean(at.Path), "/"), ".git")
	}
	return []Job{{
		Name: name, From: at.Redacted(), origin: openHost(f.Client, at, at.User.Username(), password, f.Agent),
	}}, nil
}

// folder finds the repositories in a folder and below it.
func (f Finder) folder(ctx context.Context, dir string) ([]Job, error) {
	var jobs []Job
	err := gitdir.Find(ctx, dir, func(path, name string) error {
		jobs = append(jobs, Job{Name: name, From: path, origin: openFolder(path)})
		return nil
	})
	if err == nil && len(jobs) == 0 {
		return nil, &ArgumentError{dir, "is a folder without repositories: expected one with bare repositories in it or below it"}
	}
	return jobs, err
}
