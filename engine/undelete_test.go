package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/engine/enginetest"
	"packhorse/engine/quota"
	"packhorse/engine/upstream"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

const day = 24 * time.Hour

// graveyard is a host with a clock of its own, in which repositories are deleted and come back.
type graveyard struct {
	t    *testing.T
	host *engine.Host
	// other is another host over the same stores, which keys does not wrap.
	other *engine.Host
	keys  *beforeApply
	late  atomic.Int64 // what the clock is ahead by
}

func newGraveyard(t *testing.T, config engine.Config) *graveyard {
	t.Helper()
	g := &graveyard{t: t, keys: &beforeApply{}}
	config.Now = g.now
	config.Refs.Now = g.now
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	g.keys.Store = keys
	g.host, g.other = enginetest.OpenOver(t, g.keys, files, config), enginetest.OpenOver(t, keys, files, config)
	t.Cleanup(func() {
		must(t, errors.Join(g.host.Close(context.Background()), g.other.Close(context.Background())))
	})
	return g
}

func (g *graveyard) now() time.Time { return time.Now().Add(time.Duration(g.late.Load())) }

func (g *graveyard) pass(d time.Duration) { g.late.Add(int64(d)) }

// filled creates a repository with a few refs.
func (g *graveyard) filled(name string) *engine.Repository {
	g.t.Helper()
	repo := enginetest.Create(g.t, g.host, name)
	for _, branch := range []string{"main", "z", "a"} {
		target := engine.CommitTarget{Branch: branch}
		if branch != "main" {
			target.Base = "main"
		}
		_, err := upload(repo, acme, target, change{path: name, content: name + branch})
		must(g.t, err)
	}
	_, err := repo.DeleteBranch(g.t.Context(), acme, refs.Main, "z")
	must(g.t, err)
	return repo
}

func (g *graveyard) open(name string) *engine.Repository {
	g.t.Helper()
	repo, err := g.host.Repository(g.t.Context(), enginetest.Org, name)
	must(g.t, err)
	return repo
}

func (g *graveyard) remove(name string) engine.Deleted {
	g.t.Helper()
	deleted, err := g.host.DeleteRepository(g.t.Context(), acme, name)
	must(g.t, err)
	return deleted
}

// rehearsing is an actor whose changes are dry runs.
var rehearsing = func() engine.Actor {
	actor := acme
	actor.DryRun = true
	return actor
}()

func (g *graveyard) undelete(request engine.UndeleteRequest) (engine.Created, error) {
	g.t.Helper()
	return g.host.Undelete(g.t.Context(), acme, request)
}

func (g *graveyard) back(request engine.UndeleteRequest) engine.Created {
	g.t.Helper()
	created, err := g.undelete(request)
	must(g.t, err)
	return created
}

// tips are the branches of a repository, with the transactions that created them.
func tips(t *testing.T, repo *engine.Repository) map[string]string {
	t.Helper()
	page, err := repo.Branches(t.Context(), refs.Main, "", 100)
	must(t, err)
	found := make(map[string]string)
	for i, branch := range page.Items {
		found[branch.Name] = fmt.Sprint(i, branch.Tip, branch.Created)
	}
	return found
}

func (g *graveyard) listed() (names []string) {
	g.t.Helper()
	page, err := g.host.Repositories(g.t.Context(), enginetest.Org, engine.ListOptions{Limit: 100})
	must(g.t, err)
	for _, item := range page.Items {
		names = append(names, item.Name)
	}
	return names
}

func (g *graveyard) deleted() (items []engine.DeletedItem) {
	g.t.Helper()
	options := engine.ListOptions{Limit: 2}
	for {
		page, err := g.host.DeletedRepositories(g.t.Context(), enginetest.Org, options)
		must(g.t, err)
		items = append(items, page.Items...)
		if options.Cursor = page.Next; options.Cursor == "" {
			return items
		}
	}
}

// TestUndelete deletes a repository and brings it back: it is as it was, and goes on. Nobody sees
// it meanwhile.
func TestUndelete(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{})
	repo := g.filled("r")
	enginetest.Create(t, g.host, "other")
	id, before := repo.Item().ID, tips(t, repo)
	sequence, err := repo.Sequence(t.Context())
	must(t, err)
	deleted := g.remove("r")
	if deleted.ID != id || deleted.Sequence != sequence+1 || deleted.Purge.IsZero() {
		t.Errorf("deleted %+v", deleted)
	}
	g.unseen(repo)
	sound(t, g.host)
	items := g.deleted()
	if len(items) != 1 || items[0].ID != id || items[0].Name != "r" || !items[0].Purge.Equal(deleted.Purge) ||
		items[0].Purge.Sub(items[0].Deleted) != 14*day || items[0].Bytes == 0 || items[0].Actor != "tester" {
		t.Errorf("listed as deleted: %+v", items)
	}

	dry, err := g.host.Undelete(t.Context(), rehearsing, engine.UndeleteRequest{Name: "r"})
	must(t, err)
	g.unseen(repo)
	g.pass(13 * day)
	maintainAll(t, g.host)
	created := g.back(engine.UndeleteRequest{Name: "r"})
	if created != dry || created.Item.ID != id || created.Sequence != sequence+2 {
		t.Errorf("brought back %+v, in a dry run %+v", created, dry)
	}
	again := g.open("r")
	if now := tips(t, again); !maps.Equal(now, before) || len(now) != 2 {
		t.Errorf("branches were %v, and are %v", before, now)
	}
	if names := g.listed(); fmt.Sprint(names) != "[other r]" || len(g.deleted()) != 0 {
		t.Errorf("listed %v, and deleted %v", names, g.deleted())
	}
	_, err = upload(again, acme, main, change{path: "more"})
	must(t, err)
	page, err := again.Events(t.Context(), engine.EventsRequest{After: sequence - 1, Limit: 10})
	must(t, err)
	if len(page.Entries) != 2 || page.Entries[0].Sequence != sequence || page.Entries[1].Sequence != sequence+3 {
		t.Errorf("events %+v", page.Entries)
	}
	g.told(id, refs.FeedCreated, refs.FeedRef, refs.FeedRef, refs.FeedRef, refs.FeedRef, refs.FeedDeleted,
		refs.FeedRevived, refs.FeedRef)
	sound(t, g.host)
	maintainAll(t, g.host)
	sound(t, g.host)

	// It was opened before the deletion, and is the same repository.
	if _, err := upload(repo, acme, main, change{path: "by an old handle"}); err != nil {
		t.Error(err)
	}
}

// unseen wants nobody to find a deleted repository, also by what was opened before.
func (g *graveyard) unseen(repo *engine.Repository) {
	g.t.Helper()
	ctx, id := g.t.Context(), repo.Item().ID
	_, byName := g.host.Repository(ctx, enginetest.Org, repo.Item().Name)
	_, byID := g.host.RepositoryByID(ctx, enginetest.Org, id)
	_, branches := repo.Branches(ctx, refs.Main, "", 1)
	_, events := repo.Events(ctx, engine.EventsRequest{Limit: 1})
	_, written := upload(repo, acme, main, change{path: "late"})
	_, forked := g.host.CreateRepository(ctx, acme, engine.CreateRequest{
		Name: "fork", Base: &engine.Base{Name: repo.Item().Name},
	})
	for what, err := range map[string]error{
		"by name": byName, "by id": byID, "branches": branches, "events": events, "a commit": written, "a fork": forked,
	} {
		if !errors.Is(err, engine.ErrNotFound) {
			g.t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range g.listed() {
		if name == repo.Item().Name {
			g.t.Error("it is listed")
		}
	}
	g.told(id, refs.FeedDeleted)
}

// told wants these events of a repository in the feed.
func (g *graveyard) told(id refs.RepoID, want ...refs.FeedKind) {
	g.t.Helper()
	var got []refs.FeedKind
	var cursor refs.FeedCursor
	for more := true; more; {
		page, err := g.host.OrgEvents(g.t.Context(), enginetest.Org, cursor, 3)
		must(g.t, err)
		for _, event := range page.Events {
			if event.Repo == id {
				got = append(got, event.Kind)
			}
		}
		cursor, more = page.Next, page.More
	}
	if !slices.Equal(got, want) {
		g.t.Errorf("the feed tells %v, want %v", got, want)
	}
}

// TestUndeleteNames deletes several repositories of one name.
func TestUndeleteNames(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{})
	first := g.filled("r").Item().ID
	g.remove("r")
	g.pass(time.Minute)
	second := g.filled("r").Item().ID
	g.remove("r")
	g.pass(time.Minute)
	third := g.filled("r").Item().ID

	if _, err := g.undelete(engine.UndeleteRequest{Name: "r"}); !errors.Is(err, engine.ErrExists) {
		t.Errorf("beside one of the name: %v", err)
	}
	if _, err := g.undelete(engine.UndeleteRequest{Name: "r", ID: first}); !errors.Is(err, engine.ErrExists) {
		t.Errorf("to a name that is taken: %v", err)
	}
	if got := g.back(engine.UndeleteRequest{Name: "r", ID: first, As: "team/first"}); got.Item.ID != first ||
		got.Item.Name != "team/first" || g.open("team/first").Item().ID != first {
		t.Errorf("brought back as %+v", got.Item)
	}
	g.remove("r")
	if got := g.back(engine.UndeleteRequest{Name: "r"}); got.Item.ID != third {
		t.Errorf("without an id %s comes back, and the last one was %s", got.Item.ID, third)
	}
	g.remove("team/first")
	if items := g.deleted(); len(items) != 2 || items[0].ID != second || items[1].ID != first {
		t.Errorf("deleted are %+v", items)
	}
	g.back(engine.UndeleteRequest{Name: "r", ID: second, As: "second"})
	g.back(engine.UndeleteRequest{Name: "team/first", As: "again"})
	if _, err := g.undelete(engine.UndeleteRequest{Name: "team/first"}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("by a name that it has no more: %v", err)
	}
	if names := g.listed(); fmt.Sprint(names) != "[r second again]" {
		t.Errorf("listed %v", names)
	}
	if id := g.open("again").Item().ID; id != first {
		t.Errorf("%s is called again, and %s should be", id, first)
	}
	sound(t, g.host)
}

// TestUndeleteRefusals asks for what cannot come back, or may not.
func TestUndeleteRefusals(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{})
	gone, there := g.filled("gone").Item().ID, g.filled("there").Item().ID
	g.remove("gone")
	purged := g.filled("purged").Item().ID
	g.remove("purged")
	_, err := g.host.PurgeRepository(t.Context(), acme, "purged", refs.RepoID{})
	must(t, err)
	policy, err := refs.ParsePolicy([][]any{{"refs/heads/main", []any{"no-push"}}}, nil)
	must(t, err)
	bound, other := acme, acme
	bound.Policy, other.Org = policy, "other"
	tests := map[string]struct {
		actor   engine.Actor
		request engine.UndeleteRequest
		want    error
	}{
		"never there":            {acme, engine.UndeleteRequest{Name: "never"}, engine.ErrNotFound},
		"never there, by id":     {acme, engine.UndeleteRequest{Name: "gone", ID: refs.NewRepoID()}, engine.ErrNotFound},
		"not deleted":            {acme, engine.UndeleteRequest{Name: "there"}, engine.ErrExists},
		"not deleted, by id":     {acme, engine.UndeleteRequest{Name: "there", ID: there}, engine.ErrExists},
		"another name":           {acme, engine.UndeleteRequest{Name: "there", ID: gone}, engine.ErrNotFound},
		"another organization":   {other, engine.UndeleteRequest{Name: "gone"}, engine.ErrNotFound},
		"... by id":              {other, engine.UndeleteRequest{Name: "gone", ID: gone}, engine.ErrNotFound},
		"a name that is taken":   {acme, engine.UndeleteRequest{Name: "gone", As: "there"}, engine.ErrExists},
		"a bad name":             {acme, engine.UndeleteRequest{Name: "gone", As: "a//b"}, engine.ErrInvalid},
		"purged":                 {acme, engine.UndeleteRequest{Name: "purged"}, engine.ErrPurged},
		"purged, by id":          {acme, engine.UndeleteRequest{Name: "purged", ID: purged}, engine.ErrPurged},
		"a policy":               {bound, engine.UndeleteRequest{Name: "gone"}, refs.ErrDenied},
		"too many repositories":  {acme, engine.UndeleteRequest{Name: "gone", CountMax: 1}, engine.ErrQuota},
		"too many, in a dry run": {rehearsing, engine.UndeleteRequest{Name: "gone", CountMax: 1}, engine.ErrQuota},
	}
	for name, test := range tests {
		if _, err := g.host.Undelete(t.Context(), test.actor, test.request); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	g.back(engine.UndeleteRequest{Name: "gone", CountMax: 2})
}

// TestUndeleteOnce brings a repository back under a key, deletes it again, and repeats the request.
func TestUndeleteOnce(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{})
	g.filled("r")
	g.remove("r")
	keyed := acme
	keyed.Receipt = &refs.Receipt{Key: refs.ReceiptKey{Org: enginetest.Org, Repo: "r", Endpoint: "undelete", Key: "k"}}
	request := engine.UndeleteRequest{Name: "r"}
	created, err := g.host.Undelete(t.Context(), keyed, request)
	must(t, err)
	for range 2 {
		replayed, err := g.host.Undelete(t.Context(), keyed, request)
		if err != nil || replayed.Sequence != created.Sequence || replayed.Item.ID != created.Item.ID {
			t.Errorf("replayed %+v, %v", replayed, err)
		}
		g.remove("r")
		g.back(request)
	}
	keyed.Receipt.Request[0]++
	if _, err := g.host.Undelete(t.Context(), keyed, request); !errors.Is(err, refs.ErrReceiptMismatch) {
		t.Errorf("another request under the key: %v", err)
	}
}

// TestUndeletedForks deletes a repository that has forks: they can be read, whatever becomes of
// their base.
func TestUndeletedForks(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{})
	base := g.filled("r")
	before := tips(t, base)
	_, err := g.host.CreateRepository(t.Context(), acme,
		engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "r"}})
	must(t, err)
	fork := g.open("fork")
	forked := tips(t, fork)
	check := func() {
		t.Helper()
		sound(t, g.host)
		if now := tips(t, fork); !maps.Equal(now, forked) {
			t.Errorf("the fork had %v, and has %v", forked, now)
		}
	}
	g.remove("r")
	check()
	for i := range 3 {
		_, err := upload(fork, acme, main, change{path: fmt.Sprint(i)})
		must(t, err)
		forked = tips(t, fork)
		for done, err := range g.host.Maintain(t.Context(), engine.MaintainOptions{All: true, ReaderGrace: -1}) {
			must(t, errors.Join(err, done.Err))
		}
		check()
		g.back(engine.UndeleteRequest{Name: "r"})
		if now := tips(t, g.open("r")); !maps.Equal(now, before) {
			t.Errorf("the base had %v, and has %v", before, now)
		}
		check()
		g.remove("r")
	}
	_, err = g.host.PurgeRepository(t.Context(), acme, "r", refs.RepoID{})
	must(t, err)
	g.pass(day)
	maintainAll(t, g.host)
	check()
}

// TestUndeletedQuota counts a deleted repository until it is purged.
func TestUndeletedQuota(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{Quotas: func(string) quota.Limits { return quota.Limits{Organization: 1 << 30} }})
	other := g.filled("other")
	usage := func() (all, deleted int64) {
		t.Helper()
		found, err := other.Usage(t.Context())
		must(t, err)
		return found.OrganizationBytes, found.DeletedBytes
	}
	alone, _ := usage()
	g.filled("r")
	both, deleted := usage()
	if deleted != 0 || both <= alone {
		t.Fatalf("%d bytes became %d, %d are deleted", alone, both, deleted)
	}
	check := func(what string, wantAll, wantDeleted int64) {
		t.Helper()
		if all, deleted := usage(); all != wantAll || deleted != wantDeleted {
			t.Errorf("%s: %d bytes, %d are deleted, want %d and %d", what, all, deleted, wantAll, wantDeleted)
		}
	}
	g.remove("r")
	check("deleted", both, both-alone)
	g.back(engine.UndeleteRequest{Name: "r"})
	check("back", both, 0)
	g.remove("r")
	g.pass(15 * day)
	maintainAll(t, g.host)
	left, err := other.Usage(t.Context())
	must(t, err)
	check("purged", left.Stored.Bytes, 0)
}

// TestUndeletePowerLoss cuts the power before each batch of a deletion, a return and a purge, and
// after each: what was acknowledged is so, and all or nothing of what was not.
func TestUndeletePowerLoss(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "a crash of its disk")
	cut := errors.New("the power is cut")
	steps := []struct {
		name string
		do   func(host *engine.Host) error
		// Which of these the repository is afterwards: there, deleted, purged.
		before, after string
	}{
		{"delete", func(host *engine.Host) error {
			_, err := host.DeleteRepository(context.Background(), acme, "r")
			return err
		}, "there", "deleted"},
		{"undelete", func(host *engine.Host) error {
			_, err := host.Undelete(context.Background(), acme, engine.UndeleteRequest{Name: "r"})
			return err
		}, "deleted", "there"},
		{"purge", func(host *engine.Host) error {
			_, err := host.PurgeRepository(context.Background(), acme, "r", refs.RepoID{})
			return err
		}, "deleted", "purged"},
		{"delete for good", func(host *engine.Host) error {
			_, err := host.PurgeRepository(context.Background(), acme, "r", refs.RepoID{})
			return err
		}, "there", "purged"},
	}
	for _, step := range steps {
		for acknowledged, want := range map[bool]string{false: step.before, true: step.after} {
			for seed := range uint64(3) {
				t.Run(fmt.Sprint(step.name, " ", acknowledged, " ", seed), func(t *testing.T) {
					t.Parallel()
					fs := vfs.NewCrashableMem()
					keys, files, shut := odbtest.OpenStores(t, fs)
					store := &beforeApply{Store: keys}
					host := enginetest.OpenOver(t, store, files, engine.Config{})
					g := &graveyard{t: t, host: host}
					repo := g.filled("r")
					tip := tips(t, repo)
					if step.before == "deleted" {
						g.remove("r")
					}
					var dead *vfs.MemFS
					clone := func() {
						rng := rand.New(rand.NewPCG(seed, 7))
						dead = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed) * 50, RNG: rng})
					}
					if !acknowledged {
						store.before = func() error {
							clone()
							return cut
						}
					}
					err := step.do(host)
					if acknowledged {
						must(t, err)
						clone()
					} else if !errors.Is(err, cut) {
						t.Fatal(err)
					}
					store.before = nil
					must(t, host.Close(context.Background()))
					shut()

					host, shut = enginetest.OpenOn(t, dead, engine.Config{})
					defer shut()
					sound(t, host)
					g.host = host
					var state string
					switch _, err := host.Repository(t.Context(), enginetest.Org, "r"); {
					case err == nil:
						state = "there"
					case len(g.deleted()) == 1:
						state = "deleted"
						g.back(engine.UndeleteRequest{Name: "r"})
					default:
						state = "purged"
					}
					if state != want {
						t.Fatalf("the repository is %s, want %s", state, want)
					}
					if state != "purged" {
						if now := tips(t, g.open("r")); !maps.Equal(now, tip) {
							t.Errorf("branches %v, want %v", now, tip)
						}
					}
				})
			}
		}
	}
}

// TestUndeleteRaces has something happen just before the batch that brings a repository back.
func TestUndeleteRaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile func(ctx context.Context, host *engine.Host) error
		want      error
	}{
		"it comes back": {func(ctx context.Context, host *engine.Host) error {
			_, err := host.Undelete(ctx, acme, engine.UndeleteRequest{Name: "r"})
			return err
		}, engine.ErrExists},
		"it comes back by another name": {func(ctx context.Context, host *engine.Host) error {
			_, err := host.Undelete(ctx, acme, engine.UndeleteRequest{Name: "r", As: "other"})
			return err
		}, engine.ErrNotFound},
		"it comes back and is deleted": {func(ctx context.Context, host *engine.Host) error {
			_, err := host.Undelete(ctx, acme, engine.UndeleteRequest{Name: "r"})
			if err == nil {
				_, err = host.DeleteRepository(ctx, acme, "r")
			}
			return err
		}, nil},
		"it is purged": {func(ctx context.Context, host *engine.Host) error {
			_, err := host.PurgeRepository(ctx, acme, "r", refs.RepoID{})
			return err
		}, engine.ErrPurged},
		"its name is taken": {func(ctx context.Context, host *engine.Host) error {
			_, err := host.CreateRepository(ctx, acme, engine.CreateRequest{Name: "r"})
			return err
		}, engine.ErrExists},
		"another number is drawn": {func(ctx context.Context, host *engine.Host) error {
			_, err := host.CreateRepository(ctx, acme, engine.CreateRequest{Name: "s"})
			return err
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGraveyard(t, engine.Config{})
			repo := g.filled("r")
			tip := tips(t, repo)
			g.remove("r")
			done := false
			g.keys.before = func() error {
				if done {
					return nil
				}
				done = true
				return test.meanwhile(t.Context(), g.other)
			}
			_, err := g.undelete(engine.UndeleteRequest{Name: "r"})
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if test.want == nil {
				if now := tips(t, g.open("r")); !maps.Equal(now, tip) {
					t.Errorf("branches %v, want %v", now, tip)
				}
			}
			sound(t, g.host)
		})
	}
}

// TestUndeleteOfServers deletes on one of two servers, brings back on the other, and writes on
// both.
func TestUndeleteOfServers(t *testing.T) {
	t.Parallel()
	_, servers := peers(t, engine.Config{}, engine.Config{})
	a, b := servers[0].host, servers[1].host
	made := enginetest.Create(t, a, "r")
	commit := func(repo *engine.Repository, path string) object.ID {
		t.Helper()
		done, err := upload(repo, acme, main, change{path: path, content: path})
		must(t, err)
		return done.New
	}
	commit(made, "one")
	other, err := b.Repository(t.Context(), enginetest.Org, "r")
	must(t, err)
	for i := range 3 {
		tip := commit(other, fmt.Sprint("two", i))
		_, err = a.DeleteRepository(t.Context(), acme, "r")
		must(t, err)
		if _, err := upload(other, acme, main, change{path: "late"}); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("a commit by the other server: %v", err)
		}
		if _, err := other.Sequence(t.Context()); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the journal by the other server: %v", err)
		}
		_, err = b.Undelete(t.Context(), acme, engine.UndeleteRequest{Name: "r"})
		must(t, err)
		for _, host := range []*engine.Host{a, b} {
			repo, err := host.Repository(t.Context(), enginetest.Org, "r")
			must(t, err)
			page, err := repo.Branches(t.Context(), refs.Main, "", 5)
			must(t, err)
			if len(page.Items) != 1 || page.Items[0].Tip != tip {
				t.Errorf("branches %+v, want %v", page.Items, tip)
			}
		}
		commit(made, fmt.Sprint("three", i))
		sound(t, a)
	}
	var kinds []refs.FeedKind
	page, err := b.OrgEvents(t.Context(), enginetest.Org, refs.FeedCursor{}, 100)
	must(t, err)
	last := uint64(0)
	for _, event := range page.Events {
		if kinds = append(kinds, event.Kind); event.Sequence < last {
			t.Errorf("%d follows %d", event.Sequence, last)
		}
		last = event.Sequence
	}
	want := []refs.FeedKind{refs.FeedCreated, refs.FeedRef}
	for range 3 {
		want = append(want, refs.FeedRef, refs.FeedDeleted, refs.FeedRevived, refs.FeedRef)
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}

// TestUndeleteDetached brings back a repository that had an upstream, and a credential for it: it
// has neither any more, and no row of them is left.
func TestUndeleteDetached(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{SecretKey: bytes.Repeat([]byte{1}, 32)})
	_, err := g.host.CreateRepository(t.Context(), acme, engine.CreateRequest{
		Name: "r", DefaultBranch: "main", Upstream: &engine.UpstreamBase{
			Origin: upstream.Origin{Provider: "gitlab", Owner: "o", Name: "n", DefaultBranch: "trunk"},
		},
	})
	must(t, err)
	repo := g.open("r")
	_, err = repo.CreateCredential(t.Context(), acme, credential.Login{Password: "p"})
	must(t, err)
	id := repo.Item().ID
	apply(t, g.keys.Store, func(b *kv.Batch) {
		b.Put(append(append([]byte{'O', 'u'}, id[:]...), 0, 0, 0, 0, 0, 0, 0, 1), nil)
		b.Put(append(append([]byte{'v'}, id[:]...), 's', 1), []byte("last common ref"))
	})
	g.remove("r")
	if item := g.deleted()[0]; item.DefaultBranch != "trunk" {
		t.Errorf("deleted is %+v", item)
	}
	back := g.back(engine.UndeleteRequest{Name: "r"})
	repo = g.open("r")
	if _, synced := repo.Sync(); synced || back.Item.Base != nil || repo.Item().DefaultBranch != "trunk" {
		t.Errorf("brought back %+v", back.Item)
	}
	for row := range allRows(t, g.keys) {
		if strings.Contains(row, string(id[:])) && strings.ContainsAny(row[:1], "kUvO") {
			t.Errorf("row %q is left", row)
		}
	}
	sound(t, g.host)
}
