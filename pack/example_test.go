package pack_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"

	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// A pack of a blob and of a second version of it, which is stored as a delta against the first.
func Example() {
	first := []byte("What is written here stays the same.\n")
	second := []byte("What is written here stays the same.\nThis is new.\n")
	var packed bytes.Buffer
	w := pack.NewWriter(&packed, 2)
	write := func(header pack.EntryHeader, content []byte) pack.Entry {
		header.Size = int64(len(content))
		deflated := pack.Deflate(nil, content, pack.LevelDefault)
		entry, err := w.WriteDeflatedFrom(header, bytes.NewReader(deflated), int64(len(deflated)))
		if err != nil {
			log.Fatal(err)
		}
		return entry
	}
	base := write(pack.EntryHeader{Kind: pack.EntryKind(object.TypeBlob)}, first)
	program, ok := delta.NewIndex(first).Create(nil, second, len(second))
	if !ok {
		log.Fatal("the delta would be larger than the blob")
	}
	write(pack.EntryHeader{Kind: pack.KindOFSDelta, BaseDistance: w.Offset() - base.Offset}, program)
	if _, err := w.Close(); err != nil {
		log.Fatal(err)
	}

	// The reader gives entries as they are stored. Whoever wants the objects applies the deltas.
	contents := map[int64][]byte{}
	r := pack.NewReader(&packed, pack.ReaderOptions{})
	for {
		_, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		content, err := r.ReadContent(nil)
		if err != nil {
			log.Fatal(err)
		}
		entry := r.Entry()
		fmt.Print(entry.Kind)
		if entry.Kind == pack.KindOFSDelta {
			fmt.Printf(" against the entry at %d", entry.BaseOffset)
			if content, err = delta.Apply(nil, contents[entry.BaseOffset], content, 1<<20); err != nil {
				log.Fatal(err)
			}
		}
		contents[entry.Offset] = content
		fmt.Printf(": %q\n", content)
	}
	// Output:
	// blob: "What is written here stays the same.\n"
	// ofs-delta against the entry at 12: "What is written here stays the same.\nThis is new.\n"
}
