package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"packhorse/cmd/packhorse/apiclient"
	"packhorse/engine/webhook"
)

// reposFlags say how repositories are reached: by --url through the API, with tokens of an
// organization, or by --data as the operator of a data folder.
type reposFlags struct {
	URL string `help:"Base URL of the server; or else --data." placeholder:"URL" name:"url" is:"url"`
	Org string `help:"Organization: that signs the tokens, or whose repositories in --data are meant." placeholder:"NAME" is:"name"`
	Key string `help:"Private key of the organization, PKCS #8 PEM; goes with --url." placeholder:"PRIVATE.pem" type:"path" is:"file"`

	tokenFlags

	Data string `help:"Data folder, for the operator of the server, who needs no key; or else --url." placeholder:"DIR" type:"path" is:"folder"`
	Orgs string `help:"Folder of organizations, whose settings count when no server has --data open." placeholder:"DIR" type:"path" is:"folder"`

	openFlags
}

// listedRepository is a repository in a listing.
type listedRepository struct {
	Org string `json:"org,omitempty"` // only an operator is told

	apiclient.Repository
	operatorsFigures
}

// operatorsFigures are what only an operator is told in a listing.
type operatorsFigures struct {
	StoredBytes int64            `json:"stored_bytes"`
	LastWrite   time.Time        `json:"last_write,omitzero"` // of what was not deleted
	Webhooks    *webhook.Backlog `json:"webhooks,omitempty"`  // nil when nothing waits
	Damage      string           `json:"damage,omitempty"`    // why the rest could not be read
}

// shownRepository is all that is known of a repository.
type shownRepository struct {
	Org string `json:"org,omitempty"`

	apiclient.Repository
	apiclient.Usage

	Webhooks *webhook.Backlog `json:"webhooks,omitempty"`
}

// repositories is a way to reach repositories.
type repositories interface {
	// list calls visit with each, and line returns what is printed of it as JSON.
	list(ctx context.Context, match string, deleted bool, visit func(listedRepository) error) error
	line(r listedRepository) any
	show(ctx context.Context, name string) (shownRepository, error)
	rename(ctx context.Context, name, to string) error
	setDefault(ctx context.Context, name, branch string) error
	delete(ctx context.Context, name string) (apiclient.Repository, error)
	undelete(ctx context.Context, name, id, newName string) (apiclient.Repository, error)
}

// forOperator reports whether the repositories are reached as their operator.
func (f *reposFlags) forOperator() bool { return f.Data != "" }

// The flags that mean something on both ways, and those that do so with --url only. All others go
// with --data.
var (
	reposFlagsOfBoth = []string{"config", "help", "org", "subject", "json", "deleted", "id", "as"}
	reposFlagsOfAPI  = []string{"url", "key", "kid", "allow-http"}
)

// reach returns the way that the flags say. One of --url and --data that is typed wins over the
// other one from the environment or the configuration file. anyOrg is whether an operator may leave
// the organization out.
func (f *reposFlags) reach(selected *kong.Context, anyOrg bool, to streams) (repositories, error) {
	var typed []string
	for _, flag := range selected.Flags() {
		if isTyped(selected, flag) {
			typed = append(typed, flag.Name)
		}
	}
	if f.URL != "" && f.Data != "" {
		switch byURL, byData := slices.Contains(typed, "url"), slices.Contains(typed, "data"); {
		case byURL && !byData:
			f.Data = ""
		case byData && !byURL:
			f.URL = ""
		}
	}
	if (f.URL == "") == (f.Data == "") {
		return nil, &usageError{"want one of --url, the address of the server, and --data, its data folder"}
	}
	for _, name := range typed {
		if slices.Contains(reposFlagsOfBoth, name) {
			continue
		}
		if isOfAPI := slices.Contains(reposFlagsOfAPI, name); isOfAPI == f.forOperator() {
			with, without := "--data", "--url"
			if isOfAPI {
				with, without = without, with
			}
			return nil, &usageError{fmt.Sprintf("--%s: goes with %s, and means nothing with %s", name, with, without)}
		}
	}
	var missing []string
	if f.Key == "" && !f.forOperator() {
		missing = append(missing, "--key=PRIVATE.pem")
	}
	if f.Org == "" && (!anyOrg || !f.forOperator()) {
		missing = append(missing, "--org=NAME")
	}
	if len(missing) > 0 {
		return nil, &usageError{"missing flags: " + strings.Join(missing, ", ")}
	}
	if f.forOperator() {
		return &folderRepositories{taskFlags{f.Data, f.openFlags}, f.Orgs, f.Org, f.Subject, to}, nil
	}
	server, err := apiFlags{f.URL, f.Org, f.Key, f.tokenFlags}.server()
	if err != nil {
		return nil, err
	}
	return apiRepositories{server}, nil
}

// apiRepositories reaches the repositories of an organization through the API.
type apiRepositories struct{ server *apiclient.Server }

func (a apiRepositories) list(
	ctx context.Context, match string, deleted bool, visit func(listedRepository) error,
) error {
	return a.server.List(ctx, match, deleted, func(r apiclient.Repository) error {
		return visit(listedRepository{Repository: r})
	})
}

func (a apiRepositories) line(r listedRepository) any { return r.Repository }

func (a apiRepositories) show(ctx context.Context, name string) (found shownRepository, err error) {
	if found.Repository, err = a.server.Show(ctx, name); err == nil {
		found.Usage, err = a.server.Usage(ctx, name)
	}
	return found, err
}

func (a apiRepositories) rename(ctx context.Context, name, to string) error {
	return a.server.Rename(ctx, name, to)
}

func (a apiRepositories) setDefault(ctx context.Context, name, branch string) error {
	return a.server.SetDefaultBranch(ctx, name, branch)
}

func (a apiRepositories) delete(ctx context.Context, name string) (apiclient.Repository, error) {
	return a.server.Delete(ctx, name)
}

func (a apiRepositories) undelete(ctx context.Context, name, id, newName string) (apiclient.Repository, error) {
	return a.server.Undelete(ctx, name, id, newName)
}

// folderRepositories reaches the repositories of a data folder as its operator, through the server
// that has it open, or else by opening it.
type folderRepositories struct {
	taskFlags

	orgs    string // folder of organizations
	org     string // "" for all
	subject string
	to      streams
}

// ask runs a task, and calls visit with each line of its output decoded.
func ask[T any](ctx context.Context, f *folderRepositories, name string, args reposArgs, visit func(T) error) error {
	kept, err := f.organizations(f.orgs, true, f.to)
	if err != nil {
		return err
	}
	defer kept.close()
	args.Org, args.Subject = f.org, f.subject
	around := outside{keepHistory: kept.history, openOrgs: kept.follow}
	return f.runLines(ctx, name, reposTasks(kept.config)[name], args, around, f.to, func(line string) error {
		var told T
		if err := json.Unmarshal([]byte(line), &told); err != nil {
			return fmt.Errorf("the answer of %s: %w", name, err)
		}
		return visit(told)
	})
}

// askOne is ask for a task that answers with one line.
func askOne[T any](ctx context.Context, f *folderRepositories, name string, args reposArgs) (told T, err error) {
	return told, ask(ctx, f, name, args, func(line T) error {
		told = line
		return nil
	})
}

func (f *folderRepositories) list(
	ctx context.Context, match string, deleted bool, visit func(listedRepository) error,
) error {
	return ask(ctx, f, "repos-list", reposArgs{Match: match, Deleted: deleted}, visit)
}

func (f *folderRepositories) line(r listedRepository) any { return r }

func (f *folderRepositories) show(ctx context.Context, name string) (shownRepository, error) {
	return askOne[shownRepository](ctx, f, "repos-show", reposArgs{Repo: name})
}

func (f *folderRepositories) rename(ctx context.Context, name, to string) error {
	_, err := askOne[apiclient.Repository](ctx, f, "repos-rename", reposArgs{Repo: name, As: to})
	return err
}

func (f *folderRepositories) setDefault(ctx context.Context, name, branch string) error {
	_, err := askOne[apiclient.Repository](ctx, f, "repos-set-default", reposArgs{Repo: name, Branch: branch})
	return err
}

func (f *folderRepositories) delete(ctx context.Context, name string) (apiclient.Repository, error) {
	return askOne[apiclient.Repository](ctx, f, "repos-delete", reposArgs{Repo: name})
}

func (f *folderRepositories) undelete(ctx context.Context, name, id, newName string) (apiclient.Repository, error) {
	return askOne[apiclient.Repository](ctx, f, "repos-undelete", reposArgs{Repo: name, ID: id, As: newName})
}
