package main

import (
	"bytes"
	"encoding/binary"

	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// zeros is a push of a file of zeros, a thousandth of its size.
func zeros(size int) ([]byte, error) {
	var b bundle
	b.ref("refs/heads/zeros", b.commit(b.tree(file("zeros", b.add(object.TypeBlob, make([]byte, size)))), 1, "zeros"))
	return b.push()
}

// deltas is a push of deltas, each of which repeats its base four times: 64 KiB becomes 4 GiB in
// eight steps.
func deltas(steps int) ([]byte, error) {
	base := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	id, err := object.Hash(object.TypeBlob, base)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	writeCommands(&body, []refChange{{"refs/heads/deltas", id}})
	w := packtest.NewWriter(&body, uint32(steps+1), 1)
	entry, err := w.WriteWhole(object.TypeBlob, base)
	for size := len(base); err == nil && steps > 0; steps-- {
		program := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(size)), uint64(4*size))
		for range 4 {
			for from := 0; from < size; from += 1 << 16 {
				program = append(program, 0x8f) // copies 64 KiB from the offset that follows
				program = binary.LittleEndian.AppendUint32(program, uint32(from))
			}
		}
		entry, err = w.WriteOFSDelta(entry.Offset, program)
		size *= 4
	}
	if err != nil {
		return nil, err
	}
	_, err = w.Close()
	return body.Bytes(), err
}

// manyCommands is a push of as many commands, and of no pack.
func manyCommands(count int) []byte {
	refs := make([]refChange, count)
	for i := range refs {
		refs[i] = refChange{"refs/heads/" + string(binary.AppendUvarint(nil, uint64(i)|1<<40)), object.ID{1}}
	}
	var body bytes.Buffer
	writeCommands(&body, refs)
	return body.Bytes()
}
