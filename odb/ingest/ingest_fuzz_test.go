package ingest_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// FuzzIngest checks that a pack is either refused as invalid or leaves a sound pool, also when it
// is pushed twice, in the hot tier and as a segment.
//
// The input is a list of entries: kind, base, size, content. The test deflates and seals them, and
// replaces <raw n> and <hex n> by the IDs of whole entries, so that the fuzzer gets past checksums.
func FuzzIngest(f *testing.F) {
	const person = "A <a@b> 1 +0000\n"
	f.Add(entryScript(
		"\x03\x00blob\n",
		"\x02\x00100644 a\x00<raw 0>",
		"\x01\x00tree <hex 1>\nauthor "+person+"committer "+person+"\nm\n",
		"\x01\x00tree <hex 1>\nparent <hex 2>\nauthor "+person+"committer "+person+"\nm\n",
		"\x04\x00object <hex 3>\ntype commit\ntag v1\ntagger "+person+"\nm\n",
		"\x05\x00\x05\x05\x90\x05",
		"\x06\x00\x05\x06\x90\x05\x01!",
	))
	f.Add(entryScript("\x03\x00[submodule \"a\"]\n\turl = b\n", "\x02\x00100644 .gitmodules\x00<raw 0>",
		"\x02\x0040000 d\x00<raw 1>"))
	f.Add(entryScript("\x03\x00one", "\x03\x00one", "\x06\x01\x03\x03\x90\x03", "\x05\x02\x03\x03\x90\x03"))
	f.Add(entryScript("\x01\x00tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor " + person + "committer " + person +
		"\nm\n"))
	tiers := []*odbtest.Pool{
		odbtest.NewPool(f, odb.Options{Limits: odb.Limits{ObjectBytes: 1 << 20, InflatedBytes: 8 << 20}}),
		odbtest.NewPool(f, odb.Options{Limits: odb.Limits{ObjectBytes: 1 << 20, InflatedBytes: 8 << 20, HotValueBytes: 1}}),
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		packed := assemble(script)
		var verdicts []error
		for _, tier := range tiers {
			pool := tier.Another(t)
			first, again := push(pool, packed), push(pool, packed)
			if (first == nil) != (again == nil) {
				t.Errorf("first %v, then %v", first, again)
			}
			pool.Fsck()
			verdicts = append(verdicts, first)
		}
		if (verdicts[0] == nil) != (verdicts[1] == nil) {
			t.Errorf("hot: %v, as a segment: %v", verdicts[0], verdicts[1])
		}
	})
}

// entryScript encodes entries, of which the first byte is the kind and the second the base, for
// assemble.
func entryScript(entries ...string) []byte {
	var script []byte
	for _, e := range entries {
		script = append(script, e[0], e[1], byte(len(e[2:])>>8), byte(len(e[2:])))
		script = append(script, e[2:]...)
	}
	return script
}

// assemble makes a pack of up to 16 entries.
func assemble(script []byte) []byte {
	var body []byte
	var offsets []int64
	var ids []object.ID
	for len(script) >= 4 && len(ids) < 16 {
		kind, base := script[0]%7, int(script[1])
		size := min(int(script[2])<<8|int(script[3]), len(script)-4)
		content := script[4 : 4+size]
		script = script[4+size:]
		header := pack.EntryHeader{Kind: pack.EntryKind(kind)}
		offset := int64(pack.HeaderSize + len(body))
		id := object.ZeroID
		switch kind {
		case 0, 5:
			header.Kind = pack.KindOFSDelta
			if len(offsets) == 0 {
				continue
			}
			header.BaseDistance = offset - offsets[base%len(offsets)]
		case 6:
			header.Kind = pack.KindRefDelta
			header.BaseID = object.ID{byte(base)}
			if len(ids) > 0 {
				header.BaseID = ids[base%len(ids)]
			}
		default:
			for n, named := range ids {
				content = bytes.ReplaceAll(content, fmt.Appendf(nil, "<raw %d>", n), named[:])
				content = bytes.ReplaceAll(content, fmt.Appendf(nil, "<hex %d>", n), named.AppendHex(nil))
			}
			id, _ = object.Hash(object.Type(kind), content)
		}
		header.Size = int64(len(content))
		offsets, ids = append(offsets, offset), append(ids, id)
		body = pack.Deflate(header.Append(body), content, pack.LevelFast)
	}
	packed := append(pack.Header{Version: 2, Count: uint32(len(ids))}.Append(nil), body...)
	return packtest.Seal(packed)
}

// push makes a pack part of a pool, or returns the reason why it was refused.
func push(pool *odbtest.Pool, packed []byte) error {
	pool.Helper()
	_, err := pool.Push(packed, ingest.Options{})
	if err != nil && !ingest.IsBadPack(err) && !errors.Is(err, pack.ErrLimit) {
		pool.Fatalf("an error of another kind: %v", err)
	}
	return err
}
