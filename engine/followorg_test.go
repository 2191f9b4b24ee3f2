package engine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/organization"
	"packhorse/engine/outbox"
	"packhorse/engine/webhook"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// orgMemory is what a server has in memory of an organization: it knows the row that it has
// followed last, and nothing by itself.
type orgMemory struct {
	keys kv.Store

	mu    sync.Mutex // guards the fields below
	hooks []webhook.Hook
	asked []string
	err   error
}

// follow is a [engine.Config.FollowOrg]. The organization has the hook that is in its org.yaml.
func (m *orgMemory) follow(ctx context.Context, org string, row []byte) error {
	stored, err := organization.Load(ctx, m.keys, organization.State{})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked = append(m.asked, "follow"); m.err != nil || err != nil {
		return errors.Join(err, m.err)
	}
	if version, err := organization.ParseVersion(row); err != nil || version != stored.Orgs[org].Version {
		return errors.New("the row is not the one that is stored")
	}
	m.hooks = nil
	if url := stored.Orgs[org].Files["org.yaml"]; url != nil {
		m.hooks = []webhook.Hook{{URL: string(url), Secret: "secret"}}
	}
	return nil
}

func (m *orgMemory) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.asked
	m.asked = nil
	return asked
}

// config returns the settings of a host with that memory.
func (m *orgMemory) config(t *testing.T) engine.Config {
	t.Helper()
	config := hooked(t, []string{"127.0.0.1"})
	config.FollowOrg = m.follow
	config.Webhooks.Hooks = func(string) []webhook.Hook {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.hooks
	}
	return config
}

func storeOrg(t *testing.T, keys kv.Store, files organization.Files) {
	t.Helper()
	err := organization.Update(t.Context(), keys, func(organization.State) (map[string]organization.Files, error) {
		return map[string]organization.Files{enginetest.Org: files}, nil
	})
	must(t, err)
}

// TestFollowOrg changes an organization while a host runs that does not look by itself. The next
// write asks after the change has arrived whether its token is good, and is an event of a webhook
// that came with the change.
func TestFollowOrg(t *testing.T) {
	t.Parallel()
	receiver := newHearing(t, nil)
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	defer shut()
	memory := &orgMemory{keys: keys}
	host := enginetest.OpenOver(t, keys, files, memory.config(t))
	defer func() { must(t, host.Close(context.Background())) }()
	actor := engine.Actor{Org: enginetest.Org, Subject: "s", Recheck: func() error {
		memory.mu.Lock()
		defer memory.mu.Unlock()
		memory.asked = append(memory.asked, "recheck")
		return nil
	}}
	asks := func(what string) {
		t.Helper()
		if asked := memory.take(); len(asked) < 2 || asked[0] != "follow" || asked[1] != "recheck" {
			t.Errorf("%s asks %v", what, asked)
		}
	}
	_, err := host.CreateRepository(t.Context(), actor, engine.CreateRequest{Name: "r", DefaultBranch: "main"})
	must(t, err)
	asks("a creation")
	repo, err := host.Repository(t.Context(), enginetest.Org, "r")
	must(t, err)
	commit := func(content string) (engine.CommitResult, error) {
		return upload(repo, actor, main, change{path: "f", content: content})
	}
	first, err := commit("1")
	must(t, err)
	asks("a commit")

	storeOrg(t, keys, organization.Files{"org.yaml": []byte(receiver.server.URL)})
	second, err := commit("2")
	must(t, err)
	want := "refs/heads/main " + first.New.String() + " " + second.New.String()
	eventually(t, "the event of a new webhook", func() bool { return len(receiver.heard()) > 0 })
	if heard := receiver.heard(); len(heard) != 1 || heard[0] != want {
		t.Errorf("heard %q, want %q", heard, want)
	}

	memory.mu.Lock()
	memory.err = kv.ErrUnavailable
	memory.mu.Unlock()
	if _, err := commit("3"); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("a commit that cannot follow: %v", err)
	}
	_, err = host.CreateRepository(t.Context(), actor, engine.CreateRequest{Name: "s"})
	if !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("a creation that cannot follow: %v", err)
	}
	if sequence, err := repo.Sequence(t.Context()); err != nil || sequence != second.Sequence {
		t.Errorf("at %d, %v, want %d", sequence, err, second.Sequence)
	}
}

// TestFollowOrgOfOutbox has a host deliver what another one has put into the outbox, for a webhook
// that only the other one knew.
func TestFollowOrgOfOutbox(t *testing.T) {
	t.Parallel()
	receiver := newHearing(t, nil)
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	defer shut()
	other := enginetest.OpenOver(t, keys, files, engine.Config{})
	repo := enginetest.Create(t, other, "r")
	done, err := upload(repo, acme, main, change{path: "f", content: "1"})
	must(t, err)
	must(t, other.Close(context.Background()))
	storeOrg(t, keys, organization.Files{"org.yaml": []byte(receiver.server.URL)})
	id := repo.Item().ID
	b := kv.NewBatch()
	b.Put(binary.BigEndian.AppendUint64(append([]byte{outbox.Table, byte(outbox.Webhook)}, id[:]...), done.Sequence), nil)
	_, err = keys.Apply(t.Context(), b)
	must(t, err)

	memory := &orgMemory{keys: keys}
	host := enginetest.OpenOver(t, keys, files, memory.config(t))
	defer func() { must(t, host.Close(context.Background())) }()
	eventually(t, "the event", func() bool { return len(receiver.heard()) > 0 })
}
