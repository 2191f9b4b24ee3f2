package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"packhorse/api"
	"packhorse/engine"
	"packhorse/engine/identity"
	"packhorse/odb/fair"
	"packhorse/odb/file"
	"packhorse/odb/file/cache"
	"packhorse/odb/file/s3"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/space"
)

// The content of a data folder of a server whose stores are elsewhere, besides that of store.go.
const (
	spoolFolder  = "spool"  // files that are being written
	blocksFolder = "blocks" // blocks of stored files; may be deleted at any time
)

// sharedFlags name stores that several servers share.
type sharedFlags struct {
	Keys       string   `help:"PostgreSQL database of keys and small objects, instead of the data folder: postgres://USER@HOST/DATABASE. Goes with --files." placeholder:"URL" env:"PACKHORSE_KEYS" group:"Several servers" is:"database"`
	KeysConns  int      `help:"Maximum number of connections to the database." default:"24" group:"Several servers" min:"1"`
	Files      string   `help:"Bucket of the files, instead of the data folder: s3://BUCKET/PREFIX?endpoint=URL&region=NAME&path-style=true. Goes with --keys." placeholder:"URL" env:"PACKHORSE_FILES" group:"Several servers" is:"bucket"`
	CacheBytes byteSize `help:"Disk space for blocks of files of the bucket." default:"50GiB" group:"Several servers" for:"serve,gc,fsck,backup"`
	ServerURL  string   `help:"URL of this server among those that share the stores, which 'packhorse cluster' prints." placeholder:"URL" group:"Several servers" is:"url" for:"serve,gc,fsck,backup"`
}

// shared reports whether the stores are outside of the data folder.
func (f sharedFlags) shared() bool { return f.Keys != "" }

// check checks what the flags say together.
func (f sharedFlags) check(dir string) error {
	if (f.Keys == "") != (f.Files == "") {
		return &usageError{"--keys and --files go together: both stores are shared, or neither"}
	}
	other, mark := "a server with --keys and --files", blocksFolder
	if f.shared() {
		other, mark = "a server without --keys and --files, and holds its repositories", keysFolder
	}
	_, err := os.Stat(filepath.Join(dir, mark))
	if err == nil {
		return &usageError{fmt.Sprintf("--data: %s is the data folder of %s: choose another folder", dir, other)}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lockedFolder is the folder in a data folder that is locked while a server uses it.
func lockedFolder(flags sharedFlags) string {
	if flags.shared() {
		return spoolFolder
	}
	return keysFolder
}

// openKeys opens the database. trip, if not nil, gets the time of each round trip.
func (f sharedFlags) openKeys(
	ctx context.Context, logger *slog.Logger, trip func(took time.Duration),
) (*postgres.Store, error) {
	keys, err := postgres.Open(ctx,
		postgres.Options{URL: f.Keys, Conns: f.KeysConns, Logger: logger, Block: fair.Rest, Trip: trip})
	if err != nil {
		return nil, fmt.Errorf("--keys: %w", err)
	}
	return keys, nil
}

// reachShared opens the stores that several servers share, as far as that needs no data folder.
func (s *store) reachShared(ctx context.Context, flags storeFlags, around outside, logger *slog.Logger) error {
	location, err := s3.ParseLocation(flags.Files)
	if err != nil {
		return &usageError{"--files: " + err.Error()}
	}
	times := newSharedTimes()
	keys, err := flags.openKeys(ctx, logger, times.trips.Observe)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func(context.Context) error { return keys.Close() })
	bucket, err := s3.Open(ctx, s3.Options{
		Location: location, FS: around.open.others.Created(nil), Request: times.requests.Observe, Log: logger,
	})
	if err != nil {
		return fmt.Errorf("--files: %w", err)
	}
	s.shared = &sharedStores{keys: keys, bucket: bucket, times: times}
	s.closers = append(s.closers, func(context.Context) error {
		if s.shared.files != nil {
			return s.shared.files.Close() // and the bucket
		}
		return bucket.Close()
	})
	without, err := probe(ctx, keys, bucket)
	if err != nil {
		return err
	}
	if without != "" {
		logger.Info("the bucket's service does without", "missing", without)
	}
	if err := claim(ctx, keys, bucket); err != nil {
		return err
	}
	return s.openOrgs(ctx, keys, around)
}

// openShared opens the data folder of stores that were reached.
func (s *store) openShared(
	_ context.Context, dir string, flags storeFlags, _ outside, logger *slog.Logger,
) (kv.Store, file.Store, error) {
	err := s.shared.bucket.Occupy(filepath.Join(dir, spoolFolder))
	if errors.Is(err, file.ErrLocked) {
		return nil, nil, fmt.Errorf("%s %w", dir, errInUse)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--files: %w", err)
	}
	s.shared.files, err = cache.Open(filepath.Join(dir, blocksFolder),
		cache.Options{Store: s.shared.bucket, Bytes: int64(flags.CacheBytes), Block: fair.Rest, Log: logger})
	if err != nil {
		return nil, nil, err
	}
	s.space.Relieve(space.Spare{
		Bytes: func() int64 { return s.shared.files.Stats().Bytes },
		Free:  func(bytes int64) { s.shared.files.Shrink(bytes) },
	})
	return s.shared.keys, s.shared.files, nil
}

// probe tries the bucket. What a start leaves of the probe when it is killed is collected, unless
// it was the first start of the store.
func probe(ctx context.Context, keys kv.Store, bucket *s3.Store) (without string, err error) {
	try := func(name string) error {
		if without, err = bucket.Probe(ctx, name); err != nil {
			return fmt.Errorf("--files: %w", err)
		}
		return nil
	}
	row, err := identity.Read(ctx, keys)
	switch {
	case errors.Is(err, kv.ErrNotFound): // the database is to stay empty if the bucket is refused
		err = try(intent.ProbeName())
	case err == nil && row.Usable() == nil:
		err = intent.Probe(ctx, keys, try)
	case err == nil:
		err = row.Usable()
	}
	return without, err
}

// claim marks a bucket as that of the store in a database. Both know each other from the first
// start on, so that neither is used with another one by mistake.
func claim(ctx context.Context, keys kv.Store, bucket *s3.Store) error {
	id, err := engine.StoreID(ctx, keys)
	if err != nil {
		return err
	}
	for {
		known, err := identity.FilesPlace(ctx, keys)
		if err != nil {
			return err
		}
		place, err := bucket.Claim(ctx, id, known)
		if err != nil {
			return fmt.Errorf("--files: %w", err)
		}
		if known != "" {
			return nil
		}
		err = identity.NoteFilesPlace(ctx, keys, place)
		if !errors.Is(err, kv.ErrConflict) { // another server was quicker: with the same bucket?
			return err
		}
	}
}

// sharedStores are the opened stores, for their figures.
type sharedStores struct {
	keys   *postgres.Store
	bucket *s3.Store
	files  *cache.Store

	times sharedTimes
}

// sharedTimes are the times of round trips to the database and of requests to the bucket.
type sharedTimes struct{ trips, requests *api.Durations }

func newSharedTimes() sharedTimes {
	return sharedTimes{
		trips:    api.NewDurations("database_trip_duration_seconds", "Time of a round trip to the database."),
		requests: api.NewDurations("bucket_request_duration_seconds", "Time of a request to the bucket."),
	}
}

// silent returns an error while this server cannot tell the others that it lives.
func (s *store) silent() error {
	if member := s.host.Member(); member != nil && member.Silent() {
		return fmt.Errorf("the servers that share the stores have not heard of this one for %s",
			member.Age().Truncate(time.Second))
	}
	return nil
}

// sharedDurations are the histograms of shared stores.
func (s *store) sharedDurations() []*api.Durations {
	if s.shared == nil {
		return nil
	}
	return []*api.Durations{s.shared.times.trips, s.shared.times.requests}
}

// sharedFigures are the other metrics of shared stores.
func (s *store) sharedFigures() []api.Figure {
	if s.shared == nil {
		return nil
	}
	var figures []api.Figure
	add := func(name, help string, value func() float64) {
		figures = append(figures, api.Figure{
			Name: name, Help: help, Counter: strings.HasSuffix(name, "_total"), Value: value,
		})
	}
	keys := func(name, help string, value func(postgres.Metrics) float64) {
		add("database_"+name, help, func() float64 { return value(s.shared.keys.Metrics()) })
	}
	keys("retries_total", "Tries after the first, because of a conflict of transactions or a lost connection.",
		func(m postgres.Metrics) float64 { return float64(m.Retries) })
	keys("lost_connections_total", "Connections that broke, or said nothing for too long.",
		func(m postgres.Metrics) float64 { return float64(m.LostConns) })
	keys("unknown_outcomes_total", "Batches whose answer was lost, and about which the database told later.",
		func(m postgres.Metrics) float64 { return float64(m.Happened + m.Vanished) })
	keys("undecided_total", "Batches whose outcome is not known.", func(m postgres.Metrics) float64 {
		return float64(m.Undecided)
	})
	keys("unavailable_total", "Calls that failed because the database was away.", func(m postgres.Metrics) float64 {
		return float64(m.Unavailable)
	})
	keys("connections", "Open connections to the database.", func(m postgres.Metrics) float64 { return float64(m.Conns) })

	files := func(name, help string, value func(cache.Stats) float64) {
		add("file_cache_"+name, help, func() float64 { return value(s.shared.files.Stats()) })
	}
	files("bytes", "Size of the cache of files.", func(c cache.Stats) float64 { return float64(c.Bytes) })
	files("hits_total", "Reads from the cache of files.", func(c cache.Stats) float64 { return float64(c.Hits) })
	files("misses_total", "Reads that waited for the bucket.", func(c cache.Stats) float64 { return float64(c.Misses) })
	files("fetched_bytes_total", "Bytes copied from the bucket.", func(c cache.Stats) float64 {
		return float64(c.FetchedBytes)
	})
	files("evictions_total", "Files that left the full cache.", func(c cache.Stats) float64 { return float64(c.Evictions) })

	intents := func(name, help string, value func(intent.Stats) float64) {
		add("file_intents_"+name, help, func() float64 { return value(s.host.IntentStats()) })
	}
	intents("writing", "Notes of files that live servers are storing, at the last look of the collector.",
		func(i intent.Stats) float64 { return float64(i.WritingCount) })
	intents("waiting", "Notes of files that servers which have gone did not register, and that were not removed yet.",
		func(i intent.Stats) float64 { return float64(i.WaitingCount) })
	intents("taken_total", "Notes of files taken from servers that have gone.",
		func(i intent.Stats) float64 { return float64(i.TakenCount) })
	intents("collected_total", "Notes of files that were not registered, and have been removed from the bucket.",
		func(i intent.Stats) float64 { return float64(i.RemovedCount) })

	add("lease_age_seconds", "Time since this server last told the others that it lives.", func() float64 {
		return s.host.Member().Age().Seconds()
	})
	add("clock_difference_seconds", "Largest difference between the clock of this server and that of another one.",
		func() float64 { return s.host.Member().ClockDifference().Seconds() })
	add("duties", "Duties of all servers that this one does.", func() float64 {
		return float64(len(s.host.Member().Held()))
	})
	return figures
}
