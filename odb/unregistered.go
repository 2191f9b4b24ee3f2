package odb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"packhorse/odb/file"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// listedMax is the number of listed files that are looked up together.
const listedMax = kv.ReadCountMax

// Unregistered walks the files that are stored, have no registration, and are about to get none. It
// is for a store whose files have intents, and lists all of them.
//
// A file that was listed has an intent until the batch that registers it. So one that has neither,
// when first the intents and then the registrations are read after the listing, is named by nobody
// and never will be, unless a server without intents stores it.
func (s *Store) Unregistered(ctx context.Context) iter.Seq2[file.Info, error] {
	return func(yield func(file.Info, error) bool) {
		var listed []file.Info
		settle := func() bool {
			left, err := s.unnamed(ctx, listed)
			listed = listed[:0]
			for _, info := range left {
				if !yield(info, nil) {
					return false
				}
			}
			return err == nil || yield(file.Info{}, fmt.Errorf("look for unregistered files: %w", err))
		}
		for info, err := range s.Files.List(ctx) {
			if err != nil {
				yield(file.Info{}, fmt.Errorf("look for unregistered files: %w", err))
				return
			}
			if listed = append(listed, info); len(listed) == listedMax && !settle() {
				return
			}
		}
		settle()
	}
}

// unnamed returns those of some listed files that neither an intent nor a registration names.
func (s *Store) unnamed(ctx context.Context, listed []file.Info) ([]file.Info, error) {
	left, err := s.unregistered(ctx, listed)
	if len(left) == 0 || err != nil {
		return nil, err
	}
	named := make(map[string]bool, len(left))
	for _, info := range left {
		named[info.Name] = false
	}
	if err := intent.Named(ctx, s.keys, named); err != nil {
		return nil, err
	}
	left = slices.DeleteFunc(left, func(info file.Info) bool { return named[info.Name] })
	if left, err = s.unregistered(ctx, left); err != nil {
		return nil, err
	}
	// A sweep deletes the file before its registration.
	var there []file.Info
	for _, info := range left {
		open, err := s.Files.Open(ctx, info.Name)
		if errors.Is(err, file.ErrNotFound) {
			continue
		}
		if err == nil {
			err = open.Close()
		}
		if err != nil {
			return there, err
		}
		there = append(there, info)
	}
	return there, nil
}

// unregistered returns those of some files that have no registration. It omits files that are none
// of this package.
func (s *Store) unregistered(ctx context.Context, files []file.Info) ([]file.Info, error) {
	var ours []file.Info
	var keys [][]byte
	for _, info := range files {
		id, ok := segment.LayerOfFile(info.Name)
		if ok || intent.IsProbe(info.Name) {
			ours, keys = append(ours, info), append(keys, registrationKey(id)) // of a probe: no such row
		}
	}
	rows, err := s.keys.Read(ctx, kv.ReadSet{Keys: keys})
	if err != nil {
		return nil, err
	}
	var left []file.Info
	for i, info := range ours {
		if rows.Values[i] == nil {
			left = append(left, info)
		}
	}
	return left, nil
}
