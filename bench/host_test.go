package bench_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"packhorse/engine"
	"packhorse/engine/clonecache"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// openHost opens a host over empty stores on the disk, without a clone cache or with one of 1 GiB,
// until the benchmark ends.
func openHost(b *testing.B, cached bool) *engine.Host {
	b.Helper()
	dir := b.TempDir()
	var config engine.Config
	if cached {
		var err error
		if config.Clones, err = clonecache.Open(
			filepath.Join(dir, "cache"), clonecache.Options{BudgetBytes: 1 << 30},
		); err != nil {
			b.Fatal(err)
		}
	}
	return openHostIn(b, dir, config)
}

// openHostIn opens a host with the given settings over stores in a folder, which it fills in.
func openHostIn(b *testing.B, dir string, config engine.Config) *engine.Host {
	b.Helper()
	ctx := context.Background()
	stores := openStores(b, dir)
	b.Cleanup(func() { stores.close(b) })
	config.KV, config.Files = stores.keys, stores.files
	host, err := engine.Open(ctx, config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { closeStore(b, func() error { return host.Close(ctx) }) })
	return host
}

// stores are those below a folder of the disk.
type stores struct {
	keys  *kv.Pebble
	files *file.Dir
}

func openStores(b *testing.B, dir string) stores {
	b.Helper()
	keys, err := kv.OpenPebble(filepath.Join(dir, "keys"), kv.PebbleOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	files, err := file.OpenDir(filepath.Join(dir, "files"), file.DirOptions{})
	if err != nil {
		b.Fatal(errors.Join(err, keys.Close()))
	}
	return stores{keys, files}
}

func (s stores) close(b *testing.B) {
	b.Helper()
	closeStore(b, s.files.Close)
	closeStore(b, s.keys.Close)
}

// history is the history that the benchmarks push: that of the default branch of the bare
// repository in PACKHORSE_REAL_REPO, or else a made-up one.
type history struct {
	tip, older object.ID // older is up to 100 commits behind the tip
	pack       []byte
	busiest    string // the file that most commits changed
	widest     string // the folder with the most entries
}

func openHistory(b *testing.B) *history {
	b.Helper()
	var git *oracle.Repository
	if dir := os.Getenv("PACKHORSE_REAL_REPO"); dir != "" {
		git = oracle.Open(b, dir)
	} else {
		git = oracle.New(b)
		commits := 3000
		if testing.Short() {
			commits = 300
		}
		git.Seed(oracle.History{Seed: 1, Commits: commits, Files: 400, Merges: true, Binary: true})
	}
	id := func(revision string) object.ID {
		id, err := object.ParseID(git.Git("rev-parse", revision+"^{commit}"))
		if err != nil {
			b.Fatal(err)
		}
		return id
	}
	files := git.Git("ls-tree", "-r", "--name-only", "HEAD")
	return &history{
		tip:     id("HEAD"),
		older:   id("HEAD~100"),
		pack:    git.Input([]byte("HEAD\n"), "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"),
		busiest: busiest(git.Git("log", "--format=", "--name-only", "HEAD"), files),
		widest:  widest(files),
	}
}

// push makes the history the main branch of a new repository.
func (h *history) push(b *testing.B, host *engine.Host, name string) *engine.Repository {
	b.Helper()
	return h.pushAs(b, &bencher, host, name)
}

func (h *history) pushAs(b *testing.B, actor *engine.Actor, host *engine.Host, name string) *engine.Repository {
	b.Helper()
	ctx := context.Background()
	repo := enginetest.Create(b, host, name)
	p, err := repo.Receive(ctx, *actor, engine.PushRequest{
		Commands: []engine.Command{{Name: "refs/heads/main", New: h.tip}}, Pack: bytes.NewReader(h.pack),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	result, err := p.Finish(ctx, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := result.Unpack; err != nil {
		b.Fatal(err)
	}
	if err := result.Commands[0].Err; err != nil {
		b.Fatal(err)
	}
	return repo
}

// bencher is the actor of writes.
var bencher = engine.Actor{Org: enginetest.Org, Subject: "bench"}
