package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/quota"
	"packhorse/engine/webhook"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
	"packhorse/refs"
)

// firstPack is a pack of count commits, one after the other, each with a file of its own, and the
// last of them.
func firstPack(t *testing.T, text string, count int) (pack []byte, tip object.ID) {
	t.Helper()
	var entries []packtest.Entry
	add := func(kind object.Type, data string) object.ID {
		entries = append(entries, packtest.Whole(kind, []byte(data)))
		return packtest.Hash(t, kind, []byte(data))
	}
	for i := range count {
		blob := add(object.TypeBlob, fmt.Sprint(text, i))
		tree := add(object.TypeTree, "100644 file\x00"+string(blob[:]))
		parent := ""
		if i > 0 {
			parent = fmt.Sprintf("parent %s\n", tip)
		}
		person := "A U Thor <author@example.com> 1700000000 +0000"
		tip = add(object.TypeCommit, fmt.Sprintf("tree %s\n%sauthor %s\ncommitter %s\n\n%s\n", tree, parent, person, person, text))
	}
	return packtest.Encode(entries...), tip
}

// stored are the rows and the files of a pair of stores.
func stored(t *testing.T, keys kv.Store, files file.Store) (all []string) {
	t.Helper()
	for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%q", pair.Key))
	}
	for info, err := range files.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	return all
}

func closeHost(t *testing.T, host *engine.Host) {
	t.Helper()
	if err := host.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// pushFirst is a push to the missing repository "new".
func pushFirst(
	host *engine.Host, actor engine.Actor, create engine.CreateRequest, pack []byte, commands ...engine.Command,
) (*engine.PushResult, error) {
	create.Name = "new"
	p, err := host.ReceiveFirst(context.Background(), actor, create,
		engine.PushRequest{Commands: commands, Pack: bytes.NewReader(pack)})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Finish(context.Background(), nil)
}

var firstActor = engine.Actor{Org: enginetest.Org, Subject: "tester"}

// layouts are packs that stay in the hot tier, and such as become a segment.
var layouts = map[string]engine.Config{"hot": {}, "segment": smallHot}

// TestFirstPush creates repositories by a push, and looks at what they are.
func TestFirstPush(t *testing.T) {
	t.Parallel()
	pack, tip := firstPack(t, "first", 20)
	for name, test := range map[string]struct {
		branches                []string
		chosen                  string
		wantDefault, wantDangle string
	}{
		"main":          {[]string{"main", "topic"}, "", "main", ""},
		"master":        {[]string{"a", "master"}, "", "master", ""},
		"another":       {[]string{"trunk"}, "", "trunk", ""},
		"several":       {[]string{"a", "b"}, "", "main", "main"},
		"stated":        {[]string{"a"}, "b", "b", "b"},
		"stated, there": {[]string{"a", "b"}, "b", "b", ""},
	} {
		for layout, config := range layouts {
			t.Run(name+", "+layout, func(t *testing.T) {
				t.Parallel()
				fs := vfs.NewMem()
				config := config
				config.Webhooks.Hooks = func(string) []webhook.Hook { return []webhook.Hook{{URL: "http://127.0.0.1:1", Secret: "s"}} }
				host, shut := enginetest.OpenOn(t, fs, config)
				var commands []engine.Command
				for _, branch := range test.branches {
					commands = append(commands, engine.Command{Name: "refs/heads/" + branch, New: tip})
				}
				result, err := pushFirst(host, firstActor, engine.CreateRequest{DefaultBranch: test.chosen}, pack, commands...)
				if err != nil || result.Unpack != nil || result.Sequence != 1 || result.Dangling != test.wantDangle {
					t.Fatalf("%+v, %v", result, err)
				}
				shut() // it is durable
				host, shut = enginetest.OpenOn(t, fs, config)
				defer shut()
				repo, err := host.Repository(t.Context(), enginetest.Org, "new")
				if err != nil {
					t.Fatal(err)
				}
				if got := repo.Item().DefaultBranch; got != test.wantDefault {
					t.Errorf("the default branch is %q, want %q", got, test.wantDefault)
				}
				page, err := repo.Events(t.Context(), engine.EventsRequest{Limit: 10})
				if err != nil || len(page.Entries) != len(commands) || page.Entries[0].Cause != "push" ||
					page.Entries[0].Actor != "tester" {
					t.Errorf("the journal has %+v, %v", page.Entries, err)
				}
				feed, err := host.OrgEvents(t.Context(), enginetest.Org, refs.FeedCursor{}, 10)
				if err != nil || len(feed.Events) != 1+len(commands) {
					t.Errorf("the feed has %+v, %v", feed.Events, err)
				}
				for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
					if err != nil || checked.Damaged() || checked.Objects.ObjectCount != 60 {
						t.Errorf("fsck: %+v, %v", checked, err)
					}
				}
				if _, err := upload(repo, firstActor, engine.CommitTarget{Branch: "next", Base: test.branches[0]},
					change{path: "b", content: "b"}); err != nil {
					t.Errorf("a commit on top: %v", err)
				}
			})
		}
	}
}

// brokenReader ends in the midst of a pack.
type brokenReader struct{ io.Reader }

func (r brokenReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrClosedPipe
	}
	return n, err
}

// TestFirstPushRefused refuses and breaks off pushes to a missing repository in every way. Nothing
// is left of any of them: no row and no file.
func TestFirstPushRefused(t *testing.T) {
	t.Parallel()
	pack, tip := firstPack(t, "first", 20)
	good := engine.Command{Name: "refs/heads/main", New: tip}
	noPush, err := refs.ParsePolicy(nil, []string{"no-push"})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := refs.ParsePolicy(nil, []string{"verify-sig"})
	if err != nil {
		t.Fatal(err)
	}
	bound := func(policy refs.Policy) engine.Actor {
		actor := firstActor
		actor.Policy = policy
		return actor
	}
	revoked := firstActor
	revoked.Recheck = func() error { return errRevoked }
	full := func(string) quota.Limits { return quota.Limits{Organization: 100} }
	fullRepository := func(string) quota.Limits { return quota.Limits{Repository: 100} }
	for name, test := range map[string]struct {
		actor    engine.Actor
		create   engine.CreateRequest
		quotas   func(string) quota.Limits
		pack     []byte
		commands []engine.Command
		refusal  string // of each command; "" when there is an error instead
		err      error
	}{
		"policy":            {actor: bound(noPush), pack: pack, commands: []engine.Command{good}, refusal: "denied by policy"},
		"signature":         {actor: bound(signed), pack: pack, commands: []engine.Command{good}, refusal: "denied by policy"},
		"missing object":    {pack: pack, commands: []engine.Command{{Name: good.Name, New: object.ID{7}}}, refusal: "missing necessary"},
		"stale":             {pack: pack, commands: []engine.Command{{Name: good.Name, Old: object.ID{7}, New: tip}}, refusal: "expected"},
		"funny name":        {pack: pack, commands: []engine.Command{{Name: "refs/heads/a..b", New: tip}}, refusal: "a..b"},
		"a damaged pack":    {pack: pack[:len(pack)-3], commands: []engine.Command{good}, refusal: "unpacker"},
		"number of them":    {create: engine.CreateRequest{CountMax: 1}, pack: pack, commands: []engine.Command{good}, err: engine.ErrQuota},
		"a revoked token":   {actor: revoked, pack: pack, commands: []engine.Command{good}, err: errRevoked},
		"quota":             {quotas: full, pack: pack, commands: []engine.Command{good}, err: quota.ErrExceeded},
		"repository quota":  {quotas: fullRepository, pack: pack, commands: []engine.Command{good}, err: quota.ErrExceeded},
		"nothing to delete": {commands: []engine.Command{{Name: "refs/heads/other"}}},
		"nothing":           {},
	} {
		for layout, config := range layouts {
			t.Run(name+", "+layout, func(t *testing.T) {
				t.Parallel()
				actor := test.actor
				if actor.Org == "" {
					actor = firstActor
				}
				keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
				defer shut()
				config := config
				config.Quotas = test.quotas
				host := enginetest.OpenOver(t, keys, files, config)
				defer closeHost(t, host)
				if test.quotas == nil {
					enginetest.Create(t, host, "other")
				}
				before := stored(t, keys, files)
				result, err := pushFirst(host, actor, test.create, test.pack, test.commands...)
				if !errors.Is(err, test.err) {
					t.Fatalf("%v, want %v", err, test.err)
				}
				if err == nil {
					for _, done := range result.Commands {
						if test.refusal != "" && (done.Err == nil || !strings.Contains(done.Err.Error(), test.refusal)) {
							t.Errorf("%s: %v, want %q", done.Name, done.Err, test.refusal)
						}
					}
				}
				if after := stored(t, keys, files); !slices.Equal(after, before) {
					t.Errorf("stored are\n%s\nand were\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
				}
			})
		}
	}
	for layout, config := range layouts {
		t.Run("broken off, "+layout, func(t *testing.T) {
			t.Parallel()
			keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
			defer shut()
			host := enginetest.OpenOver(t, keys, files, config)
			defer closeHost(t, host)
			before := stored(t, keys, files)
			request := engine.PushRequest{
				Commands: []engine.Command{good}, Pack: brokenReader{bytes.NewReader(pack[:len(pack)/2])},
			}
			create := engine.CreateRequest{Name: "new"}
			if _, err := host.ReceiveFirst(t.Context(), firstActor, create, request); !errors.Is(err, io.ErrClosedPipe) {
				t.Fatalf("a pack that breaks off: %v", err)
			}
			request.Pack = bytes.NewReader(pack)
			p, err := host.ReceiveFirst(t.Context(), firstActor, create, request)
			if err != nil {
				t.Fatal(err)
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			if _, err := p.Finish(gone, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("a client that has gone: %v", err)
			}
			p.Close()
			if after := stored(t, keys, files); !slices.Equal(after, before) {
				t.Errorf("stored are\n%s\nand were\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
		})
	}
}

var errRevoked = errors.New("the key is gone")

// TestFirstPushRace lets two servers create the same repository by a push, both up to the last
// check before their batch. One does it; the other one is told to push again, and can.
func TestFirstPushRace(t *testing.T) {
	t.Parallel()
	for layout, config := range layouts {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
			defer shut()
			var arrived, done sync.WaitGroup
			arrived.Add(2)
			var hosts [2]*engine.Host
			var results [2]*engine.PushResult
			var packs [2][]byte
			var tips [2]object.ID
			for i := range 2 {
				hosts[i] = enginetest.OpenOver(t, keys, files, config)
				defer closeHost(t, hosts[i])
				packs[i], tips[i] = firstPack(t, fmt.Sprint("of ", i), 20)
				var armed atomic.Bool
				actor := firstActor
				actor.Recheck = func() error {
					if armed.CompareAndSwap(true, false) {
						arrived.Done()
						arrived.Wait()
					}
					return nil
				}
				p, err := hosts[i].ReceiveFirst(t.Context(), actor, engine.CreateRequest{Name: "new"}, engine.PushRequest{
					Commands: []engine.Command{{Name: "refs/heads/main", New: tips[i]}}, Pack: bytes.NewReader(packs[i]),
				})
				if err != nil {
					t.Fatal(err)
				}
				armed.Store(true)
				done.Go(func() {
					defer p.Close()
					var err error
					if results[i], err = p.Finish(t.Context(), nil); err != nil {
						t.Error(err)
					}
				})
			}
			done.Wait()
			if t.Failed() {
				return
			}
			winner := 0
			if results[0].Commands[0].Err != nil {
				winner = 1
			}
			loser := 1 - winner
			if err := results[winner].Commands[0].Err; err != nil {
				t.Errorf("neither has created it: %v", err)
			}
			if err := results[loser].Commands[0].Err; !errors.Is(err, engine.RefusedRace) {
				t.Errorf("the other push: %v, want %v", err, engine.RefusedRace)
			}
			page, err := hosts[0].Repositories(t.Context(), enginetest.Org, engine.ListOptions{Limit: 10})
			if err != nil || len(page.Items) != 1 {
				t.Fatalf("repositories %+v, %v", page.Items, err)
			}
			repo, err := hosts[loser].Repository(t.Context(), enginetest.Org, "new")
			if err != nil {
				t.Fatal(err)
			}
			enginetest.Push(t, repo, packs[loser], engine.Command{Name: "refs/heads/again", New: tips[loser]})
			for checked, err := range hosts[winner].Fsck(t.Context(), engine.FsckOptions{}) {
				if err != nil || checked.Damaged() || checked.Objects.ObjectCount != 120 {
					t.Errorf("fsck: %+v, %v", checked, err)
				}
			}
		})
	}
}
