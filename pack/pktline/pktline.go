// Package pktline reads and writes pkt-lines, the frames of git's network protocols, and the
// side-band inside them.
//
// A line is its own length in four hexadecimal digits, the digits included, and the payload:
//
//	"0006a\n"  data "a\n"
//	"0000"     flush: the end of a section
//	"0001"     delimiter: the end of a part of a section (protocol v2)
//	"0002"     response end (protocol v2 over stateless connections)
//
// See gitprotocol-common(5) and gitprotocol-pack(5). Start at [NewReader] and [NewWriter]. The
// package is pure: no sockets, no goroutines. A Reader or Writer is used by one goroutine at a
// time.
package pktline

import "errors"

// PayloadMax is the longest payload of one line, in bytes: 65,520 with the length.
const PayloadMax = 65516

const lengthSize = 4

var (
	// ErrLength says that a line's length is not four hexadecimal digits, or is the impossible 3.
	ErrLength = errors.New("pktline: bad line length")
	// ErrTooLong says that a line is longer than [PayloadMax].
	ErrTooLong = errors.New("pktline: line too long")
)

// Kind distinguishes data from the three lines without payload.
type Kind uint8

// The kinds of lines.
const (
	Data Kind = iota
	Flush
	Delim
	ResponseEnd
)

var kindNames = [...]string{Data: "data", Flush: "flush", Delim: "delim", ResponseEnd: "response-end"}

// String returns the name that git's documentation uses.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}
