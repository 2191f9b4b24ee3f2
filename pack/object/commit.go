package object

import (
	"bytes"
	"slices"
	"strconv"
)

// Commit is a commit as a value:
//
//	tree <ID>
//	parent <ID>          any number
//	author <signature>
//	committer <signature>
//	encoding <name>      optional
//	<extra headers>      gpgsig, mergetag and whatever other tools write
//
//	<message>
type Commit struct {
	Tree              ID
	Parents           []ID
	Author, Committer Signature
	Encoding          string // of the message; empty means UTF-8
	Extra             []Header
	Message           string // as stored, with its final newlines, if any

	// raw is the parsed object when the layout above would not give its bytes.
	raw string
}

// ParseCommit reads a commit, as leniently as git does: only the tree must be there, lines may be
// missing, repeated or in odd places.
//
// [Commit.Append] gives the same bytes again as long as no field has been changed. data is not
// kept. Errors: [ErrMalformed].
func ParseCommit(data []byte) (*Commit, error) {
	c, err := parseCommit(string(data))
	if err != nil {
		return nil, err
	}
	if canonical := c.appendCanonical(make([]byte, 0, len(data)+64)); !bytes.Equal(canonical, data) {
		c.raw = string(data)
	}
	return c, nil
}

func parseCommit(data string) (*Commit, error) {
	r := headerReader{rest: data}
	c := &Commit{}
	var ok bool
	if c.Tree, ok = r.takeID("tree"); !ok {
		return nil, malformed(TypeCommit, "no tree")
	}
	for {
		parent, ok := r.takeID("parent")
		if !ok {
			break
		}
		c.Parents = append(c.Parents, parent)
	}
	if line, ok := r.take("author"); ok {
		c.Author, _ = ParseSignature(line)
	}
	if line, ok := r.take("committer"); ok {
		c.Committer, _ = ParseSignature(line)
	}
	for {
		h, ok := r.next()
		if !ok {
			break
		}
		switch {
		case h.Name == "encoding" && c.Encoding == "":
			c.Encoding = h.Value
		case h.Name == "author": // out of place or once more: git shows the last
			c.Author, _ = ParseSignature(h.Value)
		case h.Name == "committer":
			c.Committer, _ = ParseSignature(h.Value)
		default:
			c.Extra = append(c.Extra, h)
		}
	}
	c.Message = r.message()
	return c, nil
}

// Append appends the stored form of c to dst: the bytes that were parsed while no field differs
// from them, else the layout of [Commit].
func (c *Commit) Append(dst []byte) []byte {
	if c.raw != "" {
		if parsed, err := parseCommit(c.raw); err == nil && parsed.equal(c) {
			return append(dst, c.raw...)
		}
	}
	return c.appendCanonical(dst)
}

func (c *Commit) appendCanonical(dst []byte) []byte {
	dst = appendIDHeader(dst, "tree", c.Tree)
	for _, parent := range c.Parents {
		dst = appendIDHeader(dst, "parent", parent)
	}
	dst = appendSignatureHeader(dst, "author", c.Author)
	dst = appendSignatureHeader(dst, "committer", c.Committer)
	if c.Encoding != "" {
		dst = appendHeader(dst, Header{"encoding", c.Encoding})
	}
	for _, h := range c.Extra {
		dst = appendHeader(dst, h)
	}
	dst = append(dst, '\n')
	return append(dst, c.Message...)
}

func (c *Commit) equal(other *Commit) bool {
	return c.Tree == other.Tree && slices.Equal(c.Parents, other.Parents) && c.Author == other.Author &&
		c.Committer == other.Committer &&
		c.Encoding == other.Encoding && slices.Equal(c.Extra, other.Extra) && c.Message == other.Message
}

// CommitLinks reads from a commit what a walk of history needs, without building a [Commit]: the
// tree, the parents in order and the committer's date, 0 where it cannot be read (as git has it).
// parents is nil for a root. Errors: [ErrMalformed].
func CommitLinks(data []byte) (tree ID, parents []ID, committerSeconds int64, err error) {
	tree, rest, ok := cutIDLine(data, "tree ")
	if !ok {
		return ZeroID, nil, 0, malformed(TypeCommit, "no tree")
	}
	for {
		parent, after, ok := cutIDLine(rest, "parent ")
		if !ok {
			break
		}
		parents, rest = append(parents, parent), after
	}
	return tree, parents, committerDate(rest), nil
}

// cutIDLine splits a line of keyword (with its space) and object ID off data.
func cutIDLine(data []byte, keyword string) (id ID, rest []byte, ok bool) {
	end := len(keyword) + HexSize
	if len(data) <= end || data[end] != '\n' || string(data[:len(keyword)]) != keyword {
		return ZeroID, data, false
	}
	id, ok = parseHex(data[len(keyword):end])
	if !ok {
		return ZeroID, data, false
	}
	return id, data[end+1:], true
}

// committerDate reads the date of the line after the author's.
func committerDate(rest []byte) int64 {
	if !bytes.HasPrefix(rest, []byte("author ")) {
		return 0
	}
	_, rest, _ = bytes.Cut(rest, []byte{'\n'})
	line, _, _ := bytes.Cut(rest, []byte{'\n'})
	if !bytes.HasPrefix(line, []byte("committer ")) {
		return 0
	}
	line = bytes.TrimLeft(line[bytes.LastIndexByte(line, '>')+1:], whitespace)
	digits := 0
	for digits < len(line) && line[digits] >= '0' && line[digits] <= '9' {
		digits++
	}
	seconds, err := strconv.ParseInt(string(line[:digits]), 10, 64)
	if err != nil {
		return 0
	}
	return seconds
}
