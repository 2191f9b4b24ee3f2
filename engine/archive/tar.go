package archive

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"packhorse/pack/object"
)

// The tar format as git writes it: ustar headers, and extended ones (pax) for what does not fit
// into them. Of a header these fields are filled in, at these offsets; numbers are in octal.
//
//	0 name | 100 mode | 108 uid | 116 gid | 124 size | 136 mtime | 148 checksum | 156 type | 157 linkname
//	257 "ustar\0" "00" | 265 uname | 297 gname | 329 devmajor | 337 devminor | 345 prefix | 500 end
const (
	recordSize = 512
	blockSize  = 20 * recordSize // a stream is a multiple of it long

	nameSize   = 100
	linkSize   = 100
	prefixSize = 155

	sizeMax  = 0o77777777777
	mtimeMax = 0o77777777777

	permissionMask = 0o002 // mode bits that git clears for all users: tar.umask
)

// Types of entries.
const (
	typeFile     = '0'
	typeLink     = '2'
	typeFolder   = '5'
	typeExtended = 'x'
	typeGlobal   = 'g'
)

// tarWriter writes a tar stream.
type tarWriter struct {
	w       io.Writer
	seconds int64
	written int64
}

// member is an entry of the stream.
type member struct {
	path string // of a folder with the slash
	mode object.Mode
	id   object.ID
	size int64
	data []byte // the content, or nil if it is written afterwards
}

// global writes the header that names the commit.
func (t *tarWriter) global(commit object.ID) error {
	extended := appendPair(nil, "comment", commit.String())
	if t.seconds > mtimeMax {
		extended = appendPair(extended, "mtime", strconv.FormatInt(t.seconds, 10))
		t.seconds = mtimeMax
	}
	return t.extended(typeGlobal, "pax_global_header", extended)
}

// entry writes the header of a member, and its content if it is there. Else the caller writes it,
// and calls pad.
func (t *tarWriter) entry(m *member) error {
	var h header
	var extended []byte
	h.setName(m.path, &extended, m.id)
	mode, size := m.mode, int64(0)
	switch {
	case mode.IsSymlink():
		h.kind(typeLink)
		mode |= 0o777
		if len(m.data) > linkSize {
			extended = appendPair(extended, "linkpath", string(m.data))
			h.text(157, linkSize, "see "+m.id.String()+".paxheader")
		} else {
			h.text(157, linkSize, string(m.data))
		}
	case mode.IsRegular():
		h.kind(typeFile)
		mode |= 0o666
		if mode.IsExec() {
			mode |= 0o777
		}
		mode &^= permissionMask
		if size = m.size; size > sizeMax {
			extended = appendPair(extended, "size", strconv.FormatInt(size, 10))
			size = 0
		}
	default: // a folder, or a submodule, which is an empty one
		h.kind(typeFolder)
		mode = (mode | 0o777) &^ permissionMask
	}
	if extended != nil {
		if err := t.extended(typeExtended, m.id.String()+".paxheader", extended); err != nil {
			return err
		}
	}
	h.finish(mode, size, t.seconds)
	if err := t.write(h[:]); err != nil || !m.mode.IsRegular() || m.data == nil {
		return err
	}
	if _, err := t.w.Write(m.data); err != nil {
		return err
	}
	return t.pad(int64(len(m.data)))
}

// extended writes a header of pairs for the next entry.
func (t *tarWriter) extended(kind byte, name string, pairs []byte) error {
	var h header
	h.kind(kind)
	h.text(0, nameSize, name)
	h.finish(0o666, int64(len(pairs)), t.seconds)
	if err := t.write(h[:]); err != nil {
		return err
	}
	if _, err := t.w.Write(pairs); err != nil {
		return err
	}
	return t.pad(int64(len(pairs)))
}

func (t *tarWriter) write(p []byte) error {
	t.written += int64(len(p))
	_, err := t.w.Write(p)
	return err
}

var zeros [blockSize]byte

// pad ends a content of size bytes, which has been written past t, at the end of a record.
func (t *tarWriter) pad(size int64) error {
	t.written += size
	return t.write(zeros[:-t.written&(recordSize-1)])
}

// close writes the end of the stream: two records of zeros at least, up to the end of a block.
func (t *tarWriter) close() error {
	tail := blockSize - int(t.written%blockSize)
	if err := t.write(zeros[:tail]); err != nil || tail >= 2*recordSize {
		return err
	}
	return t.write(zeros[:])
}

// header is one header record.
type header [recordSize]byte

func (h *header) kind(c byte) { h[156] = c }

func (h *header) text(offset, size int, text string) { copy(h[offset:offset+size], text) }

// setName puts a path into name and prefix, or into a pair of the extended header.
func (h *header) setName(path string, extended *[]byte, id object.ID) {
	if len(path) <= nameSize {
		h.text(0, nameSize, path)
		return
	}
	cut := prefixEnd(path)
	if cut > 0 && len(path)-cut-1 <= nameSize {
		h.text(345, prefixSize, path[:cut])
		h.text(0, nameSize, path[cut+1:])
		return
	}
	h.text(0, nameSize, id.String()+".data")
	*extended = appendPair(*extended, "path", path)
}

// prefixEnd returns where the longest prefix of a path ends that fits, or 0.
func prefixEnd(path string) int {
	end := len(strings.TrimSuffix(path, "/"))
	return max(strings.LastIndexByte(path[:min(end, prefixSize)], '/'), 0)
}

// finish fills in what all headers have, and the checksum.
func (h *header) finish(mode object.Mode, size, seconds int64) {
	h.text(100, 8, fmt.Sprintf("%07o", uint32(mode)&0o7777))
	h.text(108, 8, "0000000")
	h.text(116, 8, "0000000")
	h.text(124, 12, fmt.Sprintf("%011o", size))
	h.text(136, 12, fmt.Sprintf("%011o", uint64(seconds)))
	h.text(257, 8, "ustar\x0000")
	h.text(265, 32, "root")
	h.text(297, 32, "root")
	h.text(329, 8, "0000000")
	h.text(337, 8, "0000000")
	sum := 8 * uint32(' ') // the checksum itself counts as blanks
	for _, c := range h {
		sum += uint32(c)
	}
	h.text(148, 8, fmt.Sprintf("%07o", sum))
}

// appendPair appends a pair of an extended header: its own length in decimal, a blank, the key, an
// equals sign, the value and a newline.
func appendPair(dst []byte, key, value string) []byte {
	rest := len(" ") + len(key) + len("=") + len(value) + len("\n")
	length := rest + 1
	for rest+len(strconv.Itoa(length)) > length {
		length++
	}
	return fmt.Appendf(dst, "%d %s=%s\n", length, key, value)
}
