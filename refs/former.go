package refs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

	"packhorse/odb/kv"
)

// A former state of a ref is what a transaction has replaced or deleted. It is a row of its own,
// under the name and then the place of that change, so that the refs of any moment are found
// without the journal: the state of a ref at a sequence is the first former one behind it, or the
// present one if there is none. Either did not exist yet if it was created behind the sequence; a
// creation therefore needs no row.
//
// The row is written by the batch with the journal entry of the change, and is removed by the batch
// that removes that. Entries of version 2 and older have none.

// formerNameMax bounds the part of a name in the key of a former state. A shorter name, or one of
// that size, ends with formerWhole; of a longer one the key has so many bytes, formerCut and the
// SHA-256 of the whole name, and the value has the name. No name has bytes as low as these two, so
// that the rows of a name lie together, behind those of all lower names.
const (
	formerNameMax = kv.KeyBytesMax - 1 - len(RepoID{}) - 1 - sha256.Size - formerPlaceBytes
	formerWhole   = 0
	formerCut     = 1

	formerPlaceBytes = 8 + 4
)

// formerLongMax bounds how many names of the past may share their first formerNameMax bytes: a
// reader holds them to put them in order.
const formerLongMax = 10_000

// formerPrefix returns what the keys of all former states of a ref begin with.
func formerPrefix(repo RepoID, name string) []byte {
	key := tableKey(formerTable, repo, len(name)+1+sha256.Size+formerPlaceBytes)
	if len(name) <= formerNameMax {
		return append(append(key, name...), formerWhole)
	}
	sum := sha256.Sum256([]byte(name))
	return append(append(append(key, name[:formerNameMax]...), formerCut), sum[:]...)
}

func appendFormerPlace(prefix []byte, sequence uint64, index uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(prefix, sequence), index)
}

func formerKey(repo RepoID, name string, sequence uint64, index uint32) []byte {
	return appendFormerPlace(formerPrefix(repo, name), sequence, index)
}

// splitFormer splits a formerKey into its formerPrefix and the place of the change.
func splitFormer(key []byte) (prefix []byte, sequence uint64, index uint32, err error) {
	end := len(key) - formerPlaceBytes
	if end <= 1+len(RepoID{}) {
		return nil, 0, 0, corrupt("key of a former state of %d bytes", len(key))
	}
	return key[:end], binary.BigEndian.Uint64(key[end:]), binary.BigEndian.Uint32(key[end+8:]), nil
}

// encodeFormer returns the value of a former state: version(1), the state, and the name if the key
// has no room for it.
func encodeFormer(ref *Ref) []byte {
	row := appendState([]byte{rowVersion}, ref)
	if len(ref.Name) > formerNameMax {
		row = append(row, ref.Name...)
	}
	return row
}

// decodeFormer returns the ref of a row with a former state.
func decodeFormer(prefix, value []byte) (Ref, error) {
	d := decoder{rest: value}
	d.version()
	var ref Ref
	d.state(&ref)
	named := prefix[1+len(RepoID{}):]
	if whole := len(named) - 1; named[whole] == formerWhole && whole <= formerNameMax {
		ref.Name = string(named[:whole])
	} else {
		ref.Name = string(d.take(len(d.rest)))
	}
	if err := d.end(); err != nil {
		return Ref{}, fmt.Errorf("read a former state of %.200q: %w", named, err)
	}
	if repo := RepoID(prefix[1:]); !bytes.Equal(formerPrefix(repo, ref.Name), prefix) {
		return Ref{}, corrupt("a former state of %.200q lies under another name", ref.Name)
	}
	return ref, nil
}

// formerBehind selects the first former state of a ref behind a sequence.
func formerBehind(repo RepoID, name string, sequence uint64) kv.ScanOptions {
	prefix := formerPrefix(repo, name)
	return kv.ScanOptions{Start: appendFormerPlace(prefix, sequence+1, 0), End: kv.PrefixEnd(prefix), Limit: 1}
}

// stateAt returns the state of a ref at a sequence, nil for "absent", from its present row and what
// formerBehind has found.
func stateAt(repo RepoID, name string, sequence uint64, row []byte, behind kv.Page) (*Ref, error) {
	var ref Ref
	var err error
	switch {
	case len(behind.Pairs) > 0:
		prefix, _, _, splitErr := splitFormer(behind.Pairs[0].Key)
		if splitErr != nil {
			return nil, splitErr
		}
		ref, err = decodeFormer(prefix, behind.Pairs[0].Value)
	case row == nil:
		return nil, nil
	default:
		ref, err = decodeNamed(refKey(repo, name), row, name)
	}
	if err != nil || ref.Created.Sequence > sequence {
		return nil, err
	}
	return &ref, nil
}

// formerRange selects the former states of the refs with start <= name < end, and perhaps of others
// that share the first bytes of either. An empty end reaches to the last one.
func formerRange(repo RepoID, start, end string) kv.ScanOptions {
	bound := func(name string) []byte {
		return append(tableKey(formerTable, repo, len(name)), name[:min(len(name), formerNameMax)]...)
	}
	options := kv.ScanOptions{Start: bound(max(start, "\x01")), End: kv.PrefixEnd(bound(""))} // behind the floor
	if end != "" {
		options.End = bound(end)
	}
	if len(end) > formerNameMax {
		options.End = kv.PrefixEnd(options.End)
	}
	return options
}

// formers walks, in the order of their names, the refs with start <= name < end that were replaced
// or deleted behind a sequence, in the state before. That may have been created behind the sequence
// as well. An empty end reaches to the last one.
//
// It reads page by page, and passes over the other former states of a ref: a walk takes as many
// steps as there are such refs, and no more pages than there are in the range.
func formers(
	ctx context.Context, reader kv.Reader, repo RepoID, sequence uint64, start, end string,
) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		var long []Ref // that share their first bytes
		emit := func(ref Ref) bool {
			return ref.Name < start || end != "" && ref.Name >= end || yield(ref, nil)
		}
		next := func(ref Ref) (goOn bool, err error) {
			if len(long) > 0 && !strings.HasPrefix(ref.Name, long[0].Name[:formerNameMax]) {
				if !flush(long, emit) {
					return false, nil
				}
				long = long[:0]
			}
			if len(ref.Name) <= formerNameMax {
				return emit(ref), nil
			}
			if long = append(long, ref); len(long) > formerLongMax {
				err = &LimitError{What: "former names that share their first bytes", Max: formerLongMax}
			}
			return err == nil, err
		}
		options := formerRange(repo, start, end)
		var prefix []byte // of the last row
		found := false    // the state of its ref
		for {
			page, err := formersPage(ctx, reader, options)
			for i := 0; i < len(page.Pairs) && err == nil; i++ {
				var at uint64
				var rowPrefix []byte
				if rowPrefix, at, _, err = splitFormer(page.Pairs[i].Key); err != nil {
					break
				}
				if !bytes.Equal(rowPrefix, prefix) {
					prefix, found = slices.Clip(rowPrefix), false
				}
				if found || at <= sequence {
					continue
				}
				found = true
				var ref Ref
				if ref, err = decodeFormer(prefix, page.Pairs[i].Value); err != nil {
					break
				}
				var goOn bool
				if goOn, err = next(ref); !goOn && err == nil {
					return
				}
			}
			if err != nil {
				yield(Ref{}, fmt.Errorf("read former states of refs: %w", err))
				return
			}
			if !page.More {
				break
			}
			if options.Start = kv.PrefixEnd(prefix); !found {
				options.Start = appendFormerPlace(prefix, sequence+1, 0)
			}
		}
		flush(long, emit)
	}
}

// formersPage returns the first pairs of a range.
func formersPage(ctx context.Context, reader kv.Reader, options kv.ScanOptions) (kv.Page, error) {
	if known, ok := reader.(*prefetch); ok {
		return known.page(options)
	}
	options.Limit = kv.PageCountMax
	rows, err := reader.Read(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{options}})
	if err != nil {
		return kv.Page{}, err
	}
	return rows.Pages[0], nil
}

// over walks the refs of a sequence: the present ones, with their former states in their places.
// Both come in the order of their names.
func over(sequence uint64, former, now iter.Seq2[Ref, error]) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		next, stop := iter.Pull2(former)
		defer stop()
		emit := func(ref *Ref) bool { return ref.Created.Sequence > sequence || yield(*ref, nil) }
		past, err, more := next()
		// before hands on the former states below name, and all that are left when there is none.
		before := func(name string) bool {
			for more && err == nil && (name == "" || past.Name < name) {
				if !emit(&past) {
					return false
				}
				past, err, more = next()
			}
			if err != nil {
				yield(Ref{}, err)
			}
			return err == nil
		}
		for ref, nowErr := range now {
			if nowErr != nil {
				yield(Ref{}, nowErr)
				return
			}
			if !before(ref.Name) {
				return
			}
			if more && past.Name == ref.Name {
				ref = past
				past, err, more = next()
			}
			if !emit(&ref) {
				return
			}
		}
		before("")
	}
}
