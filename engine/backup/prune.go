package backup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"packhorse/odb/file"
)

// prune removes every backup except those in keep, and then the files that these do not name.
// Interrupted, it leaves unreferenced files. Memory: about a hundred bytes a file. It removes
// nothing when a manifest to keep cannot be read.
func prune(ctx context.Context, dest file.Store, keep []uint64) (removed int64, err error) {
	needed := make(map[string]struct{})
	for _, number := range keep {
		needed[manifestName(number)] = struct{}{}
		for e, err := range entries(ctx, dest, number, new(head)) {
			if err != nil {
				return 0, err
			}
			if e.kind != kindLost {
				needed[e.stored()] = struct{}{}
			}
		}
	}
	for _, manifests := range []bool{true, false} {
		for info, err := range dest.List(ctx) {
			if err != nil {
				return removed, err
			}
			_, isManifest := numberOf(info.Name)
			if _, ok := needed[info.Name]; ok || isManifest != manifests {
				continue
			}
			if err := dest.Delete(ctx, info.Name); err != nil {
				return removed, err
			}
			removed++
		}
	}
	return removed, nil
}

// Policy selects the backups to keep: those that any of its rules selects. The newest complete one
// always is.
type Policy struct {
	// Last is the number of the newest backups to keep.
	Last int
	// Daily and Weekly are the numbers of days and weeks, among those with a backup, of which the
	// newest backup is kept. A day ends at midnight UTC, a week on Sunday.
	Daily, Weekly int
}

// choose returns the numbers of the backups that are kept, ascending. Those whose manifest is
// damaged are not among them. One that is incomplete stays until a later one is complete.
func (p Policy) choose(all []Summary) []uint64 {
	var keep []uint64
	days, weeks := make(map[string]struct{}), make(map[string]struct{})
	complete := 0
	for i := range all {
		s := &all[len(all)-1-i]
		switch {
		case s.Damage != nil:
			continue
		case s.LostCount > 0:
			if complete == 0 {
				keep = append(keep, s.Number)
			}
			continue
		}
		complete++
		kept := complete == 1 || complete <= p.Last
		year, week := s.Time.UTC().ISOWeek()
		daily := first(days, s.Time.UTC().Format(time.DateOnly), p.Daily)
		weekly := first(weeks, fmt.Sprintf("%d-%d", year, week), p.Weekly)
		if kept || daily || weekly {
			keep = append(keep, s.Number)
		}
	}
	slices.Reverse(keep)
	return keep
}

// first reports whether key is new, and one of the first keys up to a bound.
func first(seen map[string]struct{}, key string, bound int) bool {
	_, ok := seen[key]
	if ok || len(seen) >= bound {
		return false
	}
	seen[key] = struct{}{}
	return true
}

// Forgotten is what [Forget] did.
type Forgotten struct {
	// Kept and Removed are numbers of backups, ascending.
	Kept, Removed []uint64
	// FileCount is the number of removed files, manifests included.
	FileCount int64
}

// Forget removes the backups that the policy does not keep, and the files that only they name.
//
// Errors: [ErrNone]; [ErrDamaged] when a manifest cannot be read, unless damaged is set, which
// removes such backups, too.
func Forget(ctx context.Context, dest file.Store, policy Policy, damaged bool) (Forgotten, error) {
	all, err := List(ctx, dest)
	if err != nil {
		return Forgotten{}, err
	}
	if len(all) == 0 {
		return Forgotten{}, ErrNone
	}
	done := Forgotten{Kept: policy.choose(all)}
	for i := range all {
		if all[i].Damage != nil && !damaged {
			return Forgotten{}, all[i].Damage
		}
		if !slices.Contains(done.Kept, all[i].Number) {
			done.Removed = append(done.Removed, all[i].Number)
		}
	}
	if len(done.Kept) == 0 {
		return Forgotten{}, fmt.Errorf("%w that can be kept", ErrNone)
	}
	done.FileCount, err = prune(ctx, dest, done.Kept)
	return done, err
}
