package pack_test

import (
	"errors"
	"math"
	"testing"

	"packhorse/pack"
	"packhorse/pack/object"
)

func TestEntryHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	id := object.EmptyTreeID
	tests := map[string]struct {
		header pack.EntryHeader
		want   string // the first bytes
	}{
		"empty blob":      {pack.EntryHeader{Kind: pack.KindBlob}, "\x30"},
		"15 bytes":        {pack.EntryHeader{Kind: pack.KindCommit, Size: 15}, "\x1f"},
		"16 bytes":        {pack.EntryHeader{Kind: pack.KindTree, Size: 16}, "\xa0\x01"},
		"2047 bytes":      {pack.EntryHeader{Kind: pack.KindTag, Size: 2047}, "\xcf\x7f"},
		"2048 bytes":      {pack.EntryHeader{Kind: pack.KindTag, Size: 2048}, "\xc0\x80\x01"},
		"4 GiB":           {pack.EntryHeader{Kind: pack.KindBlob, Size: 4 << 30}, "\xb0\x80\x80\x80\x80\x01"},
		"nearest base":    {pack.EntryHeader{Kind: pack.KindOFSDelta, Size: 3, BaseDistance: 1}, "\x63\x01"},
		"distance 127":    {pack.EntryHeader{Kind: pack.KindOFSDelta, Size: 3, BaseDistance: 127}, "\x63\x7f"},
		"distance 128":    {pack.EntryHeader{Kind: pack.KindOFSDelta, Size: 3, BaseDistance: 128}, "\x63\x80\x00"},
		"distance 16511":  {pack.EntryHeader{Kind: pack.KindOFSDelta, Size: 3, BaseDistance: 16511}, "\x63\xff\x7f"},
		"distance 16512":  {pack.EntryHeader{Kind: pack.KindOFSDelta, Size: 3, BaseDistance: 16512}, "\x63\x80\x80\x00"},
		"distance 16 GiB": {pack.EntryHeader{Kind: pack.KindOFSDelta, Size: 3, BaseDistance: 16 << 30}, "\x63\xbe"},
		"base by ID":      {pack.EntryHeader{Kind: pack.KindRefDelta, Size: 300, BaseID: id}, "\xfc\x12" + string(id[:])},
		"longest of header": {
			pack.EntryHeader{Kind: pack.KindRefDelta, Size: 1<<60 - 1, BaseID: id}, "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := test.header.Append([]byte("x"))[1:]
			if string(data[:len(test.want)]) != test.want {
				t.Errorf("got %x, want %x...", data, test.want)
			}
			if len(data) > pack.EntryHeaderSizeMax {
				t.Errorf("%d bytes", len(data))
			}
			got, n, err := pack.ParseEntryHeader(append(data, "rest"...))
			if err != nil || n != len(data) || got != test.header {
				t.Errorf("parsed %+v, %d bytes, %v", got, n, err)
			}
			for cut := range data {
				if _, _, err := pack.ParseEntryHeader(data[:cut]); !errors.Is(err, pack.ErrCorrupt) {
					t.Errorf("cut off at %d: error %v", cut, err)
				}
			}
		})
	}
}

func TestParseEntryHeaderCorrupt(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"kind 0":            "\x05rest",
		"kind 5":            "\x55rest",
		"size too long":     "\xbf\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"distance 0":        "\x63\x00",
		"distance too long": "\x63\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		if h, _, err := pack.ParseEntryHeader([]byte(data)); !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("%s: %+v, error %v", name, h, err)
		}
	}
}

func TestHeader(t *testing.T) {
	t.Parallel()
	for _, want := range []pack.Header{{Version: 2}, {Version: 3, Count: 7}, {Version: 2, Count: math.MaxUint32}} {
		if got, err := pack.ParseHeader(want.Append(nil)); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	for _, data := range []string{
		"", "PACK\x00\x00\x00\x02\x00\x00\x00", "PACX\x00\x00\x00\x02\x00\x00\x00\x00",
		"PACK\x00\x00\x00\x04\x00\x00\x00\x00",
	} {
		if _, err := pack.ParseHeader([]byte(data)); !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("%q: error %v", data, err)
		}
	}
}

func TestEntryKind(t *testing.T) {
	t.Parallel()
	for kind, want := range map[pack.EntryKind]string{
		pack.KindCommit: "commit", pack.KindTree: "tree", pack.KindBlob: "blob", pack.KindTag: "tag",
		pack.KindOFSDelta: "ofs-delta", pack.KindRefDelta: "ref-delta", 0: "kind(0)", 5: "kind(5)",
	} {
		if kind.String() != want || kind.IsDelta() != (kind >= 6) || kind.IsDelta() && kind.Type() != 0 {
			t.Errorf("%s: delta %v, type %s, want %s", kind, kind.IsDelta(), kind.Type(), want)
		}
	}
}
