package pack_test

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/pack"
)

// craft returns a pack of raw entries with a right header and trailer.
func craft(entries ...string) []byte {
	data := pack.Header{Version: 2, Count: uint32(len(entries))}.Append(nil)
	data = append(data, strings.Join(entries, "")...)
	sum := sha1.Sum(data)
	return append(data, sum[:]...)
}

// rawEntry is a header that claims size, and the zlib stream of content.
func rawEntry(tb testing.TB, kind pack.EntryKind, size int64, content string) string {
	tb.Helper()
	return string(pack.EntryHeader{Kind: kind, Size: size, BaseDistance: 1 << 20}.Append(nil)) +
		string(deflated(tb, []byte(content), 6))
}

func TestReaderCorrupt(t *testing.T) {
	t.Parallel()
	blob := rawEntry(t, pack.KindBlob, 7, "content")
	large := strings.Repeat("x", 1<<20)
	badSum := craft(blob)
	badSum[len(badSum)-1] ^= 1
	tests := map[string]struct {
		data []byte
		err  error
	}{
		"no pack":              {[]byte("hello, this is no pack"), pack.ErrCorrupt},
		"wrong trailer":        {badSum, pack.ErrChecksum},
		"content too short":    {craft(rawEntry(t, pack.KindBlob, 8, "content")), pack.ErrCorrupt},
		"content too long":     {craft(rawEntry(t, pack.KindBlob, 6, "content")), pack.ErrCorrupt},
		"large too short":      {craft(rawEntry(t, pack.KindBlob, 1<<20+1, large)), pack.ErrCorrupt},
		"large too long":       {craft(rawEntry(t, pack.KindBlob, 1<<20-1, large)), pack.ErrCorrupt},
		"claims much":          {craft(rawEntry(t, pack.KindBlob, 3<<30, "content")), pack.ErrCorrupt},
		"claims nothing":       {craft(rawEntry(t, pack.KindBlob, 0, "content")), pack.ErrCorrupt},
		"base before the pack": {craft(blob, rawEntry(t, pack.KindOFSDelta, 7, "content")), pack.ErrCorrupt},
		"kind 5":               {craft(rawEntry(t, 5, 7, "content")), pack.ErrCorrupt},
		"no zlib":              {craft(blob[:1] + strings.Repeat("no zlib", 20)), pack.ErrCorrupt},
		"preset dictionary":    {craft(blob[:1] + "\x78\xbb" + blob[3:]), pack.ErrCorrupt},
		"window too large":     {craft(blob[:1] + "\x88\x1c" + blob[3:]), pack.ErrCorrupt},
		"wrong Adler-32":       {craft(blob[:len(blob)-1] + "\x00"), pack.ErrCorrupt},
		"bytes between":        {craft(blob+"\x00", blob), pack.ErrCorrupt},
	}
	for name, test := range tests {
		for _, how := range []string{"whole", "large pieces", "skip"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				if _, err := readAll(bytes.NewReader(test.data), pack.ReaderOptions{}, how); !errors.Is(err, test.err) {
					t.Errorf("error %v, want %v", err, test.err)
				}
			})
		}
	}
}

// TestReaderCutOff ends a pack after each byte: cleanly, and with an error of the source.
func TestReaderCutOff(t *testing.T) {
	t.Parallel()
	data := craft(rawEntry(t, pack.KindBlob, 7, "content"), rawEntry(t, pack.KindTree, 0, ""))
	large := craft(rawEntry(t, pack.KindBlob, 600_000, string(incompressible(600_000))))
	broken := errors.New("broken")
	check := func(data []byte, cut int) {
		t.Helper()
		for _, how := range []string{"whole", "large pieces", "skip"} {
			_, err := readAll(bytes.NewReader(data[:cut]), pack.ReaderOptions{}, how)
			if !errors.Is(err, pack.ErrCorrupt) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, cut off at %d: error %v", how, cut, err)
			}
			src := io.MultiReader(bytes.NewReader(data[:cut]), iotest.ErrReader(broken))
			if _, err := readAll(src, pack.ReaderOptions{}, how); !errors.Is(err, broken) || errors.Is(err, pack.ErrCorrupt) {
				t.Errorf("%s, broken at %d: error %v", how, cut, err)
			}
		}
	}
	for cut := range data {
		check(data, cut)
	}
	for cut := 1; cut < len(large); cut += 60_000 {
		check(large, cut)
	}
}

// TestReaderWastefulStream has an entry whose stream is far longer than its content needs: legal,
// and not in the window as a whole.
func TestReaderWastefulStream(t *testing.T) {
	t.Parallel()
	const emptyBlock = "\x00\x00\x00\xff\xff"
	zlib := string(deflated(t, []byte("content"), 0))
	zlib = zlib[:2] + strings.Repeat(emptyBlock, 200_000) + zlib[2:]
	header := string(pack.EntryHeader{Kind: pack.KindBlob, Size: 7}.Append(nil))
	data := craft(header+zlib, rawEntry(t, pack.KindBlob, 4, "next"))
	for _, how := range []string{"whole", "pieces", "skip"} {
		entries, err := readAll(bytes.NewReader(data), pack.ReaderOptions{}, how)
		if err != nil || len(entries) != 2 || entries[0].PackedSize != int64(len(header)+len(zlib)) {
			t.Errorf("%s: %d entries, %v", how, len(entries), err)
		}
		if how != "skip" && err == nil && string(entries[0].content)+string(entries[1].content) != "contentnext" {
			t.Errorf("%s: %q", how, entries[0].content)
		}
	}
}

func TestReaderLimits(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 1<<20)
	bomb := craft(rawEntry(t, pack.KindBlob, 1<<20, zeros), rawEntry(t, pack.KindBlob, 1<<20, zeros))
	random := string(incompressible(1 << 20))
	honest := craft(rawEntry(t, pack.KindBlob, 1<<20, random), rawEntry(t, pack.KindBlob, 1<<20, random))
	tests := map[string]struct {
		data   []byte
		limits pack.Limits
		limit  string
	}{
		"defaults":          {data: bomb},
		"object":            {data: bomb, limits: pack.Limits{ObjectSizeMax: 1<<20 - 1}, limit: "object size"},
		"object just":       {data: bomb, limits: pack.Limits{ObjectSizeMax: 1 << 20}},
		"object by default": {data: craft(rawEntry(t, pack.KindBlob, 4<<30+1, "")), limit: "object size"},
		"count":             {data: bomb, limits: pack.Limits{CountMax: 1}, limit: "object count"},
		"count just":        {data: bomb, limits: pack.Limits{CountMax: 2}},
		"count by default":  {data: pack.Header{Version: 2, Count: 5_000_001}.Append(nil), limit: "object count"},
		"pack":              {data: honest, limits: pack.Limits{PackSizeMax: 1 << 20}, limit: "pack size"},
		"pack just":         {data: honest, limits: pack.Limits{PackSizeMax: int64(len(honest))}},
		"pack by one": {
			data: honest, limits: pack.Limits{PackSizeMax: int64(len(honest)) - 1}, limit: "pack size",
		},
		"inflated": {
			data: bomb, limits: pack.Limits{InflatedMax: 1 << 20, InflatedRatioMax: 200}, limit: "inflated size",
		},
		"inflated, but in ratio":   {data: honest, limits: pack.Limits{InflatedMax: 1 << 20, InflatedRatioMax: 2}},
		"inflated, ratio too high": {data: bomb, limits: pack.Limits{InflatedMax: 1 << 20, InflatedRatioMax: 2000}},
	}
	for name, test := range tests {
		for _, how := range []string{"whole", "large pieces", "skip"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				_, err := readAll(bytes.NewReader(test.data), pack.ReaderOptions{Limits: test.limits}, how)
				var limit *pack.LimitError
				switch {
				case test.limit == "":
					if err != nil {
						t.Errorf("refused: %v", err)
					}
				case !errors.As(err, &limit) || !errors.Is(err, pack.ErrLimit) || errors.Is(err, pack.ErrCorrupt):
					t.Errorf("error %v, want the limit of %s", err, test.limit)
				case limit.Limit != test.limit || limit.Value <= limit.Max:
					t.Errorf("%+v, want %s", limit, test.limit)
				}
			})
		}
	}
}

// TestReaderMemory reads a pack that claims and inflates to much: the memory stays small.
func TestReaderMemory(t *testing.T) {
	data := craft(rawEntry(t, pack.KindBlob, 16<<20, strings.Repeat("\x00", 16<<20)),
		rawEntry(t, pack.KindBlob, 3<<30, "claims"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := pack.NewReader(bytes.NewReader(data), pack.ReaderOptions{})
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); n != 16<<20 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadContent(nil); !errors.Is(err, pack.ErrCorrupt) {
		t.Fatalf("error %v", err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
}

func TestReaderRawError(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	_, err := readAll(bytes.NewReader(seededPack(t, 5)), pack.ReaderOptions{Raw: failingWriter{full}}, "whole")
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
