package kv

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

const memoryBytesDefault = 128 << 20

// pebbleOptions tunes Pebble for many small synced commits.
func pebbleOptions(options PebbleOptions, p *Pebble) *pebble.Options {
	memory := options.MemoryBytes
	if memory <= 0 {
		memory = memoryBytesDefault
	}
	o := &pebble.Options{
		FS: &watchedFS{FS: options.FS, dir: p.dir, witness: &p.witness, failed: p.logFailed},
		// Memtables take their memory from the cache's, so this is the bound of both.
		CacheSize:                   memory,
		MemTableSize:                uint64(min(max(memory/8, 1<<20), 64<<20)),
		MemTableStopWritesThreshold: 4,
		// Pinned by name: an update of the dependency must not migrate stores by itself. From this format
		// on, a damaged log can be distinguished from one cut short by a crash; see witness for the gap
		// in it.
		FormatMajorVersion: pebble.FormatWALSyncChunks,
		// Small commits make many small flushes: merge them early, and stop writes late.
		L0CompactionThreshold: 2,
		L0StopWritesThreshold: 48,
		LBaseMaxBytes:         64 << 20,
		WALBytesPerSync:       512 << 10,
		WALMinSyncInterval:    p.syncPause,
		MaxManifestFileSize:   16 << 20,
		MaxOpenFiles:          options.OpenFilesMax,
		CompactionConcurrencyRange: func() (int, int) {
			return 1, 2
		},
		Logger:        pebbleLogger{p},
		EventListener: p.listener(),
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	for i := range o.Levels {
		o.Levels[i].BlockSize = 16 << 10
		o.Levels[i].IndexBlockSize = 128 << 10
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// listener counts events for operators and logs the rest.
func (p *Pebble) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			p.backgroundErrors.Add(1)
			p.logger.Error("kv: background work failed, retrying", "error", err)
		},
		// The reader of the damaged file gets the error; Pebble's default would end the process.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			p.corruptions.Add(1)
			p.damaged.CompareAndSwap(nil, &info.Path)
			p.logger.Error("kv: damaged table: packhorse fsck lists the repositories affected, restoring a backup repairs them",
				"path", info.Path, "error", info.Details)
		},
		FlushEnd:        func(pebble.FlushInfo) { p.stir() },
		CompactionEnd:   func(pebble.CompactionInfo) { p.stir() },
		ManifestCreated: func(pebble.ManifestCreateInfo) { p.stir() },
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			p.writeStalls.Add(1)
			p.logger.Warn("kv: writes stalled", "reason", info.Reason)
		},
	}
}

// pebbleLogger passes Pebble's messages to the store's logger. Informational ones have level debug.
type pebbleLogger struct{ store *Pebble }

// Infof implements pebble.Logger.
func (l pebbleLogger) Infof(format string, args ...any) {
	if l.store.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.store.logger.Debug("kv: " + fmt.Sprintf(format, args...))
	}
}

// Errorf implements pebble.Logger.
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.store.logger.Error("kv: " + fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger. Pebble expects that it does not return. After a commit it may:
// recovered checks for the failure, and the goroutine is a caller's.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if strings.HasPrefix(format, "pebble: fatal commit error") {
		l.store.fail(err)
	} else {
		l.store.logFailed(err)
	}
}
