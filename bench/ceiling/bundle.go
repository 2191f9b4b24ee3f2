package main

import (
	"bytes"
	"fmt"
	"strings"

	"packhorse/pack/object"
	"packhorse/pack/packtest"
	"packhorse/pack/pktline"
)

// bundle is a pack under way, and the refs that are pushed with it.
type bundle struct {
	refs  []refChange
	items []item
	have  map[object.ID]bool
}

type refChange struct {
	name string
	to   object.ID
}

type item struct {
	kind object.Type
	data []byte
}

func (b *bundle) add(kind object.Type, data []byte) object.ID {
	id, err := object.Hash(kind, data)
	if err != nil {
		panic(err) // a type that does not exist
	}
	if b.have == nil {
		b.have = make(map[object.ID]bool)
	}
	if !b.have[id] {
		b.have[id] = true
		b.items = append(b.items, item{kind, data})
	}
	return id
}

func (b *bundle) tree(entries ...object.TreeEntry) object.ID {
	return b.add(object.TypeTree, object.AppendTree(nil, entries))
}

func (b *bundle) commit(tree object.ID, seconds int, message string, parents ...object.ID) object.ID {
	var text strings.Builder
	fmt.Fprintf(&text, "tree %s\n", tree)
	for _, parent := range parents {
		fmt.Fprintf(&text, "parent %s\n", parent)
	}
	fmt.Fprintf(&text, "author A <a@example.com> %d +0000\ncommitter A <a@example.com> %[1]d +0000\n\n%s\n",
		1_600_000_000+seconds, message)
	return b.add(object.TypeCommit, []byte(text.String()))
}

func (b *bundle) ref(name string, to object.ID) { b.refs = append(b.refs, refChange{name, to}) }

// push returns the body of a push of the added objects.
func (b *bundle) push() ([]byte, error) {
	packed, err := b.pack()
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	writeCommands(&body, b.refs)
	return append(body.Bytes(), packed...), nil
}

func (b *bundle) pack() ([]byte, error) {
	var body bytes.Buffer
	w := packtest.NewWriter(&body, uint32(len(b.items)), 1)
	for _, i := range b.items {
		if _, err := w.WriteWhole(i.kind, i.data); err != nil {
			return nil, err
		}
	}
	_, err := w.Close()
	return body.Bytes(), err
}

func writeCommands(body *bytes.Buffer, refs []refChange) {
	lines := pktline.NewWriter(body)
	for i, r := range refs {
		capabilities := ""
		if i == 0 {
			capabilities = "\x00report-status"
		}
		// A buffer takes everything.
		_ = lines.String(object.ZeroID.String() + " " + r.to.String() + " " + r.name + capabilities)
	}
	_ = lines.Flush()
}

func file(name string, id object.ID) object.TreeEntry {
	return object.TreeEntry{Mode: object.ModeBlob, Name: name, ID: id}
}

func folder(name string, id object.ID) object.TreeEntry {
	return object.TreeEntry{Mode: object.ModeTree, Name: name, ID: id}
}
