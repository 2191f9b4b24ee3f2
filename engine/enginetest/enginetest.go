// Package enginetest opens hosts over stores in memory for tests.
//
// The stores are the real ones on a file system in memory, so that nothing is mocked and tests
// leave no files behind. Start at [Open]; [OpenOn] opens a host again on the same file system,
// after a crash; [OpenOver] opens one beside another; [OpenBehind] lets a test meddle with the
// keys. A [Writer] makes writes of every kind that may be refused. [OpenBackups] opens a folder of
// backups.
package enginetest

import (
	"bytes"
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// Open opens a host over empty stores, until the test ends.
func Open(tb testing.TB) *engine.Host {
	tb.Helper()
	host, shut := OpenOn(tb, vfs.NewMem(), engine.Config{})
	tb.Cleanup(shut)
	return host
}

// OpenOn opens a host over the stores in fs with the given settings, whose stores it fills in. The
// returned function closes host and stores.
func OpenOn(tb testing.TB, fs vfs.FS, config engine.Config) (host *engine.Host, shut func()) {
	tb.Helper()
	keys, files, shutStores := odbtest.OpenStores(tb, fs)
	host = OpenOver(tb, keys, files, config)
	return host, func() {
		tb.Helper()
		if err := host.Close(context.Background()); err != nil {
			tb.Error(err)
		}
		shutStores()
	}
}

// OpenBehind opens a host over empty stores with the given settings, until the test ends. It
// reaches its keys through the store that wrap makes of the real one.
func OpenBehind(tb testing.TB, config engine.Config, wrap func(keys kv.Store) kv.Store) *engine.Host {
	tb.Helper()
	keys, files, shut := odbtest.OpenStores(tb, vfs.NewMem())
	tb.Cleanup(shut)
	host := OpenOver(tb, wrap(keys), files, config)
	tb.Cleanup(func() {
		if err := host.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return host
}

// OpenOver opens a host over stores of [odbtest.OpenStores], wrapped or not, with the given
// settings. The caller closes it.
func OpenOver(tb testing.TB, keys kv.Store, files file.Store, config engine.Config) *engine.Host {
	tb.Helper()
	config.KV, config.Files = keys, files
	config.Objects.RemoteKeys = config.Objects.RemoteKeys || odbtest.Shared()
	host, err := engine.Open(context.Background(), config)
	if err != nil {
		tb.Fatal(err)
	}
	return host
}

// Create creates a repository of the organization "acme", with the fixed default branch main, and
// opens it.
func Create(tb testing.TB, host *engine.Host, name string) *engine.Repository {
	tb.Helper()
	ctx := context.Background()
	if _, err := host.CreateRepository(
		ctx, engine.Actor{Org: Org, Subject: "test"}, engine.CreateRequest{Name: name, DefaultBranch: "main"},
	); err != nil {
		tb.Fatal(err)
	}
	repo, err := host.Repository(ctx, Org, name)
	if err != nil {
		tb.Fatal(err)
	}
	return repo
}

// Org is the organization of [Create].
const Org = "acme"

// Push pushes a pack and some refs to a repository, without a particular actor.
func Push(tb testing.TB, repo *engine.Repository, pack []byte, commands ...engine.Command) {
	tb.Helper()
	ctx := context.Background()
	p, err := repo.Receive(ctx, engine.Actor{Org: Org, Subject: "tester"},
		engine.PushRequest{Commands: commands, Pack: bytes.NewReader(pack)})
	if err != nil {
		tb.Fatal(err)
	}
	defer p.Close()
	result, err := p.Finish(ctx, nil)
	if err == nil {
		err = result.Unpack
	}
	if err != nil {
		tb.Fatal(err)
	}
	for i, done := range result.Commands {
		if done.Err != nil {
			tb.Fatalf("push %s: %v", commands[i].Name, done.Err)
		}
	}
}
