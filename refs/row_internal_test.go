package refs

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

func drawID(t *rapid.T) (id object.ID) {
	copy(id[:], rapid.SliceOfN(rapid.Byte(), len(id), len(id)).Draw(t, "id"))
	return id
}

func drawRef(t *rapid.T, name string) *Ref {
	ref := &Ref{
		Name: name, ID: drawID(t),
		Created:       Creation{Sequence: rapid.Uint64().Draw(t, "sequence"), Index: rapid.Uint32().Draw(t, "index")},
		createdMillis: rapid.Int64().Draw(t, "millis"),
	}
	if rapid.Bool().Draw(t, "tag") {
		ref.Peeled = drawID(t)
	}
	return ref
}

// cutOrChanged returns a row as a bad disk might.
func cutOrChanged(t *rapid.T, row []byte) []byte {
	if rapid.Bool().Draw(t, "cut") {
		return row[:rapid.IntRange(0, len(row)-1).Draw(t, "size")]
	}
	changed := append([]byte(nil), row...)
	changed[rapid.IntRange(0, len(row)-1).Draw(t, "at")] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
	return changed
}

func TestRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := "refs/heads/" +
			strings.Repeat("x", rapid.SampledFrom([]int{1, 20, plainNameMax - 11, plainNameMax - 10, 1013}).Draw(t, "size"))
		ref := drawRef(t, name)
		key, row := refKey(RepoID{1}, name), encodeRow(ref)
		if len(key) > kv.KeyBytesMax {
			t.Fatalf("key of %d bytes", len(key))
		}
		nameKey := key[1+len(RepoID{}):]
		if got, err := decodeRow(nameKey, row); err != nil || got != *ref {
			t.Fatalf("got %+v, %v, want %+v", got, err, *ref)
		}
		if _, err := decodeRow(nameKey, cutOrChanged(t, row)); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if _, err := decodeRow(nameKey, row[:21]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut: %v", err)
		}
	})
}

func TestEntries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shared := Entry{
			Sequence: rapid.Uint64().Draw(t, "sequence"), Actor: rapid.String().Draw(t, "actor"), Cause: rapid.String().Draw(t,
				"cause"),
			Time:    time.UnixMilli(rapid.Int64Range(-1<<40, 1<<45).Draw(t, "time")).UTC(),
			Options: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "options"),
		}
		shared.mark = rapid.Uint64().Draw(t, "mark")
		shared.prior = &head{
			sequence: shared.Sequence - 1, token: rapid.Uint64().Draw(t, "token"), count: rapid.Uint64().Draw(t, "count"),
			nameBytes: rapid.Uint64().Draw(t, "name bytes"),
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "elsewhere") {
			shared.Elsewhere = append(shared.Elsewhere, Position{RepoID{2, byte(i)}, rapid.Uint64().Draw(t, "there")})
		}
		if len(shared.Options) == 0 {
			shared.Options = nil
		}
		var current Entry
		for index := range uint32(3) {
			entry := shared
			entry.Index = index
			if rapid.Bool().Draw(t, "ref") {
				entry.Ref = rapid.String().Draw(t, "name")
				if rapid.Bool().Draw(t, "before") {
					entry.before = drawRef(t, entry.Ref)
					entry.Before = entry.before.ID
				}
				if rapid.Bool().Draw(t, "after") {
					entry.after = drawRef(t, entry.Ref)
					entry.After = entry.after.ID
				}
			}
			pair := kv.Pair{Key: journalKey(RepoID{1}, entry.Sequence, index), Value: encodeEntry(&entry)}
			got, err := decodeEntry(pair, &current)
			if err != nil || !reflect.DeepEqual(got, entry) {
				t.Fatalf("got %+v, %v, want %+v", got, err, entry)
			}
			broken := current
			pair.Value = cutOrChanged(t, pair.Value)
			if _, err := decodeEntry(pair, &broken); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

// Bytes that are not a row are reported as damage, whatever they are.
func TestNonsense(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key, value := rapid.SliceOf(rapid.Byte()).Draw(t, "key"), rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		var current Entry
		_, row := decodeRow(key, value)
		_, entry := decodeEntry(kv.Pair{Key: key, Value: value}, &current)
		_, inPlace := decodeEntry(kv.Pair{Key: journalKey(RepoID{}, 0, 0), Value: value}, &current)
		_, headErr := decodeHead(value)
		_, receipt := decodeReceipt(value, &Receipt{})
		_, floorErr := decodeFloor(value)
		_, former := decodeFormer(formerPrefix(RepoID{}, string(key)), value)
		_, _, _, split := splitFormer(key)
		for _, err := range []error{row, entry, inPlace, headErr, receipt, floorErr, former, split} {
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrReceiptMismatch) {
				t.Fatal(err)
			}
		}
	})
}

// A row of a later version, one with surplus bytes, and one under the key of another name are
// refused.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	row := encodeRow(&Ref{Name: "refs/heads/a"})
	row[0] = rowVersion + 1
	if _, err := decodeRow([]byte("refs/heads/a"), row); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a row of the next version: %v", err)
	}
	if _, err := decodeRow([]byte("refs/heads/a"), append(encodeRow(&Ref{Name: "refs/heads/a"}), 0)); !errors.Is(err,
		ErrCorrupt) {
		t.Errorf("a row that goes on: %v", err)
	}
	long := "refs/heads/" + strings.Repeat("x", plainNameMax)
	key := refKey(RepoID{}, long)[1+len(RepoID{}):]
	if _, err := decodeRow(key, encodeRow(&Ref{Name: "refs/heads/y" + long})); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a row of another long name: %v", err)
	}
}
