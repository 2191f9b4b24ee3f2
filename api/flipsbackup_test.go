package api_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/backup"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
)

// olderBackups are backups that were taken before a store was damaged.
type olderBackups struct {
	fs   *vfs.MemFS // with the folder
	asks [][]ask    // of the store of each backup
}

// keepBackup takes one more backup of the undamaged store, whose answers to some requests it
// records. The folder of those before stays, too: the first has other files than the damaged store,
// all of which the next backup copies; the second has the same ones, none of which it copies.
func (f *flipped) keepBackup(asks []ask) {
	f.t.Helper()
	f.baseline(asks)
	older := olderBackups{fs: vfs.NewMem(), asks: [][]ask{asks}}
	if n := len(f.backups); n > 0 {
		older.fs = f.backups[n-1].copied(f.t)
		older.asks = append(f.backups[n-1].asks[:n:n], asks)
	}
	dest, shut := enginetest.OpenBackups(f.t, older.fs)
	defer shut()
	_, err := f.host.Backup(f.t.Context(), dest, backup.Options{})
	must(err)
	f.backups = append(f.backups, older)
}

func (b *olderBackups) copied(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	_, err := vfs.Clone(b.fs, fs, "backups", "backups")
	must(err)
	return fs
}

// restoredEvery is the share of the cases of each kind of place after which a backup is restored,
// which takes half as long as the rest of a case. A backup is taken and checked in every case.
const restoredEvery = 4

// holdBackup takes a backup of the damaged store into a folder with older ones, and reports whether
// it was refused. It is whole, or names the damaged file. A damaged row is in it as in the store,
// and is found there, too. Every file of the older backups is what it was. restore says to restore
// one of them all.
func (f *flipped) holdBackup(random *rand.Rand, how string, at *place, found, restore bool) (refused bool) {
	f.t.Helper()
	older := &f.backups[random.IntN(len(f.backups))]
	fs := older.copied(f.t)
	dest, shut := enginetest.OpenBackups(f.t, fs)
	defer shut()
	report, err := f.host.Backup(f.t.Context(), dest, backup.Options{})
	told, refused := errors.AsType[*backup.StoreDamagedError](err)
	switch {
	case refused:
		f.holdIncomplete(how, at, dest, told)
	case err != nil || report.LostCount > 0:
		f.t.Errorf("%s: a backup: %+v, %v", how, report, err)
	}
	if all := enginetest.CheckBackups(f.t, dest); len(all) != len(older.asks)+1 {
		f.t.Errorf("%s: there are %d backups, after %d", how, len(all), len(older.asks))
	}
	for _, name := range filesBelow(fs, "backups") {
		if path.Base(name) == path.Base(at.name) && !bytes.Equal(readAll(fs, name), at.data) {
			f.t.Errorf("%s: a backup has copied the damage", how)
		}
	}
	if !restore {
		return refused
	}
	count := len(older.asks)
	if !refused {
		count++
	}
	if n := random.IntN(count); n < len(older.asks) {
		f.holdRestored(how, dest, uint64(n+1), someOf(older.asks[n], random), true)
	} else {
		f.holdRestored(how, dest, report.Number, someOf(f.asks, random), at.key == nil || !found)
	}
	return refused
}

// holdIncomplete wants a backup to name the damaged file, and not to be restored without it.
func (f *flipped) holdIncomplete(how string, at *place, from file.Store, told *backup.StoreDamagedError) {
	f.t.Helper()
	if len(told.Damage) != 1 || told.Damage[0].File != path.Base(at.name) {
		f.t.Errorf("%s: a backup tells of %+v", how, told.Damage)
	}
	err := enginetest.RestoreBackup(f.t, vfs.NewMem(), from, backup.Options{})
	if !errors.Is(err, backup.ErrIncomplete) {
		f.t.Errorf("%s: a backup without it is restored: %v", how, err)
	}
}

// holdRestored wants the store of a backup to give right answers, and to be sound or not.
func (f *flipped) holdRestored(how string, from file.Store, number uint64, asks []*ask, sound bool) {
	f.t.Helper()
	r := &flipped{t: f.t, fs: vfs.NewMem(), client: f.client}
	must(enginetest.RestoreBackup(f.t, r.fs, from, backup.Options{Number: number}))
	r.openStores()
	defer r.shutStores()
	r.open()
	defer r.shut()
	if refused := r.holdAnswers(how, asks); sound && refused > 0 {
		f.t.Errorf("%s: backup %d, restored, refuses %d answers", how, number, refused)
	}
	if found := r.found(true); found == sound {
		f.t.Errorf("%s: backup %d, restored: fsck finds damage: %t", how, number, found)
	}
}
