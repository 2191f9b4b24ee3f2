package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"packhorse/api/auth"
	"packhorse/cmd/packhorse/apiclient"
	"packhorse/engine"
	"packhorse/engine/webhook"
	"packhorse/refs"
)

// reposArgs are the arguments of the tasks about repositories. Each takes some of them.
type reposArgs struct {
	Org     string `json:",omitempty"` // "" for all, of a listing
	Repo    string `json:",omitempty"`
	ID      string `json:",omitempty"` // of a deleted repository
	As      string `json:",omitempty"` // new name
	Branch  string `json:",omitempty"`
	Match   string `json:",omitempty"`
	Deleted bool   `json:",omitempty"`
	Subject string `json:",omitempty"` // who says that it is them
}

// operatorSubject is the actor of the operator's changes in journals and in the audit log.
const operatorSubject = "operator"

// actor is the operator, who acts for an organization and is bound by no policy of its tokens.
func (a *reposArgs) actor() engine.Actor {
	subject := operatorSubject
	if a.Subject != "" {
		subject += ": " + a.Subject
	}
	return engine.Actor{Org: a.Org, Subject: subject}
}

// reposTasks are the tasks about repositories. orgConfig returns the settings of an organization,
// false if they are not known. The output is one JSON object a line.
func reposTasks(orgConfig func(org string) (*auth.OrgConfig, bool)) map[string]task {
	return map[string]task{
		"repos-list":        reposTask(runReposList),
		"repos-show":        reposTask(runReposShow),
		"repos-rename":      reposTask(runReposRename),
		"repos-set-default": reposTask(runReposSetDefault),
		"repos-delete":      reposTask(runReposDelete),
		"repos-undelete": reposTask(func(ctx context.Context, host *engine.Host, args reposArgs, lines *json.Encoder) error {
			return runReposUndelete(ctx, host, args, lines, orgConfig)
		}),
	}
}

// reposTask makes a task of a function about repositories, and has the audit log tell of whom and
// what it is.
func reposTask(run func(ctx context.Context, host *engine.Host, args reposArgs, lines *json.Encoder) error) task {
	return taskOf(func(ctx context.Context, host *engine.Host, args reposArgs, out io.Writer) error {
		auditActing(ctx, args.Org, args.Repo, args.actor().Subject)
		err := run(ctx, host, args, json.NewEncoder(out))
		if err != nil && args.Org != "" {
			err = fmt.Errorf("organization %s: %w", args.Org, err)
		}
		return err
	})
}

// describeItem is a repository as the API describes it.
func describeItem(item *engine.Item) apiclient.Repository {
	r := apiclient.Repository{
		ID: item.ID.String(), Name: item.Name, DefaultBranch: item.DefaultBranch, CreatedAt: item.Created.UTC(),
	}
	if item.Base != nil {
		r.Base = &apiclient.Base{Provider: item.Base.Provider, Owner: item.Base.Owner, Name: item.Base.Name}
	}
	return r
}

// describeSync is the state of syncs as the API describes it.
func describeSync(state *engine.SyncState) *apiclient.Sync {
	sync := &apiclient.Sync{State: string(state.Phase), LastError: state.LastError}
	if !state.LastSuccess.IsZero() {
		sync.LastSuccess = state.LastSuccess.UTC().Format(time.RFC3339Nano)
	}
	return sync
}

// someBacklog is nil for nothing.
func someBacklog(b webhook.Backlog) *webhook.Backlog {
	if b == (webhook.Backlog{}) {
		return nil
	}
	return &b
}

// runReposList prints repositories, or deleted ones, as it finds them.
func runReposList(ctx context.Context, host *engine.Host, args reposArgs, lines *json.Encoder) error {
	if args.Deleted {
		for r, err := range host.DeletedInventory(ctx, args.Org, args.Match) {
			if err != nil {
				return err
			}
			listed := listedRepository{
				Org: r.Org, Repository: describeItem(&r.Item), operatorsFigures: operatorsFigures{StoredBytes: r.Bytes},
			}
			listed.DeletedAt, listed.DeletedBy, listed.PurgeAt = r.Deleted.UTC(), r.Actor, r.Purge.UTC()
			if err := lines.Encode(listed); err != nil {
				return err
			}
		}
		return nil
	}
	for r, err := range host.Inventory(ctx, args.Org, args.Match) {
		if err != nil {
			return err
		}
		listed := listedRepository{Org: r.Org, Repository: describeItem(&r.Item), operatorsFigures: operatorsFigures{
			StoredBytes: r.StoredBytes, LastWrite: r.Written.UTC(), Webhooks: someBacklog(r.Hooks),
		}}
		if r.Sync != nil {
			listed.Sync = describeSync(r.Sync)
		}
		if r.Damage != nil {
			listed.Damage = oneLine(r.Damage)
		}
		if err := lines.Encode(listed); err != nil {
			return err
		}
	}
	return nil
}

// runReposShow prints all that is known of a repository.
func runReposShow(ctx context.Context, host *engine.Host, args reposArgs, lines *json.Encoder) error {
	repo, err := host.Repository(ctx, args.Org, args.Repo)
	if err != nil {
		return err
	}
	item, err := repo.Describe(ctx)
	if err != nil {
		return err
	}
	usage, err := repo.Usage(ctx)
	if err != nil {
		return err
	}
	waiting, err := repo.Backlog(ctx)
	if err != nil {
		return err
	}
	shown := shownRepository{
		Org: args.Org, Repository: describeItem(&item), Webhooks: someBacklog(waiting), Usage: apiclient.Usage{
			StoredBytes: usage.Stored.Bytes, SharedBytes: usage.Shared.Bytes, BorrowedBytes: usage.Borrowed.Bytes,
			Objects: usage.Stored.Count, Refs: int64(usage.Refs.RefCount), LastWrite: usage.Refs.Changed.UTC(),
		},
	}
	if usage.Refs.Changed.IsZero() {
		shown.LastWrite = usage.Created.UTC()
	}
	if state, attached := repo.Sync(); attached {
		shown.Sync = describeSync(&state)
	}
	return lines.Encode(shown)
}

// runReposRename gives a repository another name.
func runReposRename(ctx context.Context, host *engine.Host, args reposArgs, lines *json.Encoder) error {
	return changeSettings(ctx, host, args, engine.Settings{Name: args.As}, lines)
}

// runReposSetDefault moves the default branch.
func runReposSetDefault(ctx context.Context, host *engine.Host, args reposArgs, lines *json.Encoder) error {
	return changeSettings(ctx, host, args, engine.Settings{DefaultBranch: args.Branch}, lines)
}

func changeSettings(
	ctx context.Context, host *engine.Host, args reposArgs, to engine.Settings, lines *json.Encoder,
) error {
	repo, err := host.Repository(ctx, args.Org, args.Repo)
	if err != nil {
		return err
	}
	changed, err := repo.ChangeSettings(ctx, args.actor(), to)
	if err != nil {
		return err
	}
	return lines.Encode(describeItem(&changed.Item))
}

// runReposDelete deletes a repository, which may come back.
func runReposDelete(ctx context.Context, host *engine.Host, args reposArgs, lines *json.Encoder) error {
	deleted, err := host.DeleteRepository(ctx, args.actor(), args.Repo)
	if err != nil {
		return err
	}
	return lines.Encode(apiclient.Repository{ID: deleted.ID.String(), Name: args.Repo, PurgeAt: deleted.Purge})
}

// runReposUndelete brings a repository back, within the bound of its organization.
func runReposUndelete(
	ctx context.Context, host *engine.Host, args reposArgs, lines *json.Encoder,
	orgConfig func(org string) (*auth.OrgConfig, bool),
) error {
	undelete := engine.UndeleteRequest{Name: args.Repo, As: args.As}
	if args.ID != "" {
		var err error
		if undelete.ID, err = refs.ParseRepoID(args.ID); err != nil {
			return err
		}
	}
	if config, ok := orgConfig(args.Org); ok {
		undelete.CountMax = config.Limits.Repositories
	}
	back, err := host.Undelete(ctx, args.actor(), undelete)
	if err != nil {
		return err
	}
	return lines.Encode(describeItem(&back.Item))
}
