package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"packhorse/engine"
	"packhorse/engine/clonecache"
	"packhorse/engine/maintain"
	"packhorse/engine/quota"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/space"
	"packhorse/odb/span"
	"packhorse/refs"
)

// The content of a data folder.
const (
	keysFolder  = "keys"       // the key-value store
	filesFolder = "files"      // segment files
	cacheFolder = "cache"      // generated packs; may be deleted at any time
	adminSocket = "admin.sock" // of the server that runs, mode 0600
)

// storeFlags configure the location and the resources of the stores. What means nothing to a
// maintenance command is left out of its help, and accepted all the same: a server and its
// maintenance have one environment and one configuration file. See [isFor].
type storeFlags struct {
	Memory       byteSize `help:"Memory for stores, caches and requests; 1GiB, or half of the control group limit if less." default:"${memory}" min:"16MiB" for:"serve,gc,fsck,backup"`
	IngestMemory byteSize `help:"Memory for one incoming pack; 0: an eighth of --memory, at most 128MiB." default:"0" for:"serve"`
	MinFree      byteSize `help:"Free disk space below which writes are refused; 0: 1GiB, or 5 % of the disk if less." default:"0" for:"serve,gc,fsck,backup"`
	CloneCache   byteSize `help:"Disk space for generated packs, which equal clones share; 0 turns the cache off." default:"10GiB" for:"serve"`

	KeepHistory time.Duration `help:"How long repositories can be read as they were; the org.yaml of an organization may say otherwise." default:"336h" for:"serve,gc,repos"`

	Limits limitFlags `embed:"" group:"Limits"`

	sharedFlags
}

// limitFlags are the limits of stored data.
type limitFlags struct {
	ObjectMax     byteSize `help:"Maximum size of an object." default:"4GiB" min:"1KiB"`
	PackMax       byteSize `help:"Maximum size of the pack of a push." default:"16GiB" min:"1KiB"`
	InflatedMax   byteSize `help:"Maximum inflated size of a pack, unless 200 times its size is more." default:"20GiB" min:"1KiB"`
	ObjectsMax    int      `help:"Maximum number of objects in a push." default:"5000000" min:"1"`
	DeltaDepthMax int      `help:"Maximum length of a delta chain in a push." default:"4095" min:"1"`
	TreeDepthMax  int      `help:"Maximum nesting of folders." default:"2048" min:"1"`
	CommandsMax   int      `help:"Maximum number of ref updates in a push." default:"10000" min:"1"`
	OperationsMax int      `help:"Maximum number of file operations in a commit." default:"100000" min:"1"`
	LastCommitMax int      `help:"Maximum number of distinct last commits in a listing of files." default:"100000" min:"1"`
	DiffFileMax   byteSize `help:"Maximum size of a file that a diff compares; larger files count as binary." default:"512MiB" min:"1KiB"`
	MergeMaxBytes byteSize `help:"Maximum size of the new objects of a merge." default:"256MiB" min:"1KiB"`
	RefsMax       int      `help:"Maximum number of refs in a repository." default:"1000000" min:"1"`
}

// Shares of --memory, in sixteenths. The rest is for the program itself: connections, buffers,
// garbage.
const (
	keysShare     = 2
	objectsShare  = 2
	refsShare     = 1
	historyShare  = 1
	requestsShare = 4
	shares        = 16
)

// garbagePercent is the amount of garbage in percent of the live heap. Most of the heap is caches
// of bytes without pointers, which the collector need not scan, so frequent collection is cheap and
// keeps the process small.
const garbagePercent = 40

// ingestMemoryMost is the --ingest-memory of a server that has plenty.
const ingestMemoryMost = int64(128 * mib)

func (f storeFlags) ingestMemory() int64 {
	if f.IngestMemory > 0 {
		return int64(f.IngestMemory)
	}
	return min(int64(f.Memory)/8, ingestMemoryMost)
}

func (f storeFlags) share(of int64) int64 { return int64(f.Memory) / shares * of }

// store is an opened data folder. Its parts are closed in the order opposite to that of their
// opening.
type store struct {
	host    *engine.Host
	space   *space.Watch
	damage  func() error      // of the key-value store
	shared  *sharedStores     // nil: the stores are in the folder
	clones  *clonecache.Cache // nil: none
	closers []func(context.Context) error

	processors *fair.Processors // of requests and of webhooks
}

// errInUse says that another process has a data folder open.
var errInUse = errors.New("is in use by another packhorse")

// outside is the part of a store's configuration that concerns its surroundings. Maintenance
// commands need none of it.
type outside struct {
	open        openFiles
	secretKey   []byte                    // seals stored secrets
	maintenance *maintain.Settings        // of the background; nil: nothing happens there
	signingKeys func(org string) [][]byte // the contents of the files of an organization's signing keys
	quotas      func(org string) quota.Limits
	keepHistory func(org string) (time.Duration, bool)
	scrub       engine.ScrubOptions   // the zero value does not scrub
	census      time.Duration         // the interval of counts; 0: none
	tracer      span.Tracer           // nil: none
	webhooks    engine.WebhookConfig  // the zero value delivers nothing
	upstreams   engine.UpstreamConfig // the zero value syncs nothing
	// openOrgs and followOrg are for organizations that are rows of the key-value store. The first is
	// called before anything asks about organizations, and what it returns before the store is closed.
	// The second is [engine.Config.FollowOrg].
	openOrgs  func(ctx context.Context, keys kv.Store) (shut func(), err error)
	followOrg func(ctx context.Context, org string, row []byte) error
	committed func(ctx context.Context, done refs.Committed) // [refs.Options.Committed]
}

// openStore opens the folder, which is made if it does not exist, for this process alone.
func openStore(
	ctx context.Context, dir string, flags storeFlags, around outside, logger *slog.Logger,
) (_ *store, err error) {
	debug.SetMemoryLimit(int64(flags.Memory))
	debug.SetGCPercent(garbagePercent)
	if err := checkPlace(dir, flags.sharedFlags); err != nil {
		return nil, err
	}
	s := &store{damage: func() error { return nil }, processors: fair.NewProcessors(0)}
	defer func() {
		if err != nil {
			err = errors.Join(nameStore(dir, flags.sharedFlags, err), s.close(ctx))
		}
	}()
	if flags.shared() { // first: a refusal is to leave no folder behind
		if err := s.reachShared(ctx, flags, around, logger); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := keepPrivate(dir, keysFolder, filesFolder, cacheFolder, spoolFolder, blocksFolder); err != nil {
		return nil, err
	}
	warnOfLoose(dir, logger)
	if s.space, err = space.Open(dir, space.Options{MinBytes: int64(flags.MinFree), Logger: logger}); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func(context.Context) error { s.space.Close(); return nil })
	open := s.openEmbedded
	if flags.shared() {
		open = s.openShared
	}
	keys, files, err := open(ctx, dir, flags, around, logger)
	if err != nil {
		return nil, err
	}
	if !flags.shared() {
		if err := s.openOrgs(ctx, keys, around); err != nil {
			return nil, err
		}
	}
	s.clones, err = openClones(filepath.Join(dir, cacheFolder), flags, around.open, logger)
	if err != nil {
		return nil, err
	}
	limits := flags.Limits
	config := engine.Config{
		KV:    keys,
		Files: files,
		Objects: odb.Options{
			CacheBytes:        flags.share(objectsShare),
			IngestMemoryBytes: flags.ingestMemory(),
			OpenFileCountMax:  around.open.segments,
			Limits: odb.Limits{
				ObjectBytes:   int64(limits.ObjectMax),
				PackBytes:     int64(limits.PackMax),
				PackCount:     limits.ObjectsMax,
				InflatedBytes: int64(limits.InflatedMax),
				DeltaDepth:    limits.DeltaDepthMax,
				TreeDepth:     limits.TreeDepthMax,
			},
			Logger: logger,
		},
		Clones: s.clones,
		Space:  s.space,
		Refs: refs.Options{
			CacheBytes: flags.share(refsShare), RefsMax: limits.RefsMax, Committed: around.committed,
		},
		Limits: engine.Limits{
			CommandCountMax: limits.CommandsMax, OperationCountMax: limits.OperationsMax,
			LastCommitCountMax: limits.LastCommitMax,
			DiffFileBytes:      int64(limits.DiffFileMax),
			MergeBytesMax:      int64(limits.MergeMaxBytes),
			// As much as one organization's requests may hold.
			TraceBytesMax:     flags.share(requestsShare) / 2,
			MergePathBytesMax: flags.share(requestsShare) / 2,
		},
		HistoryBytes: flags.share(historyShare),
		Logger:       logger,
		Version:      version,

		SecretKey:   around.secretKey,
		SigningKeys: around.signingKeys,
		Quotas:      around.quotas,
		KeepHistory: around.keepHistory,
		FollowOrg:   around.followOrg,
		Scrub:       around.scrub,
		Census:      around.census,
		Tracer:      around.tracer,
		Webhooks:    around.webhooks,
		Processors:  s.processors,
		Upstreams:   around.upstreams,
	}
	if flags.shared() {
		config.Sharing = &engine.Sharing{URL: flags.ServerURL}
		config.Objects.RemoteKeys = true
	}
	if around.maintenance != nil {
		config.Maintenance, config.Background = *around.maintenance, true
	}
	config.Maintenance.KeepHistory = orNone(flags.KeepHistory)
	s.host, err = engine.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.host.Close)
	return s, nil
}

// checkPlace returns why a data folder cannot be opened, as far as that shows from outside. It
// makes nothing.
func checkPlace(dir string, flags sharedFlags) error {
	return cmp.Or(checkDataFolder(dir), checkRestored(dir), flags.check(dir))
}

// openEmbedded opens the stores in the data folder.
func (s *store) openEmbedded(
	_ context.Context, dir string, flags storeFlags, around outside, logger *slog.Logger,
) (kv.Store, file.Store, error) {
	keys, err := kv.OpenPebble(filepath.Join(dir, keysFolder),
		kv.PebbleOptions{
			FS: s.space.FS(), MemoryBytes: flags.share(keysShare), Logger: logger, Block: fair.Rest,
			OpenFilesMax: around.open.tables,
		})
	if errors.Is(err, kv.ErrLocked) {
		return nil, nil, fmt.Errorf("%s %w", dir, errInUse)
	}
	if err != nil {
		return nil, nil, err
	}
	s.closers = append(s.closers, func(context.Context) error { return keys.Close() })
	s.damage = keys.Damage
	files, err := file.OpenDir(filepath.Join(dir, filesFolder), file.DirOptions{FS: around.open.others.Created(nil)})
	if err != nil {
		return nil, nil, err
	}
	s.closers = append(s.closers, func(context.Context) error { return files.Close() })
	return keys, files, nil
}

// openOrgs does what has to be done before anything asks about organizations.
func (s *store) openOrgs(ctx context.Context, keys kv.Store, around outside) error {
	if around.openOrgs == nil {
		return nil
	}
	shut, err := around.openOrgs(ctx, keys)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func(context.Context) error { shut(); return nil })
	return nil
}

// openClones opens the clone cache, unless it is switched off. Nothing runs in it before the first
// clone.
func openClones(dir string, flags storeFlags, open openFiles, logger *slog.Logger) (*clonecache.Cache, error) {
	if flags.CloneCache == 0 {
		return nil, nil
	}
	return clonecache.Open(dir, clonecache.Options{
		FS: open.others.Opened(nil), BudgetBytes: int64(flags.CloneCache), Logger: logger,
	})
}

// damageCount is the number of damaged items found; tables of the key-value store count as one.
func (s *store) damageCount() int {
	count := s.host.DamageCount()
	if s.damage() != nil {
		count++
	}
	return count
}

// close ends background work and closes the stores.
func (s *store) close(ctx context.Context) error {
	var errs []error
	for _, closing := range slices.Backward(s.closers) {
		errs = append(errs, closing(ctx))
	}
	return errors.Join(errs...)
}
