package object

import (
	"strconv"
	"strings"
	"time"
)

// Signature is a person and a time, as in the author, committer and tagger lines:
//
//	Name <Email> Seconds Zone
//
// Name and Email are bytes as stored, in whatever encoding. Zone is as stored too ("+0200", and in
// odd commits "-7", "+51800" or ""); Seconds is 0 when the line has no readable date.
type Signature struct {
	Name, Email string
	Seconds     int64 // since 1970-01-01 UTC
	Zone        string
}

// ParseSignature reads a line as git does: the name ends before the first '<', the email at the
// next '>', and the date follows the last '>'. ok is false when there is no email at all; the rest
// of a damaged line is left empty.
func ParseSignature(line string) (sig Signature, ok bool) {
	open := strings.IndexByte(line, '<')
	if open < 0 {
		return Signature{}, false
	}
	length := strings.IndexByte(line[open+1:], '>')
	if length < 0 {
		return Signature{}, false
	}
	sig.Name = strings.TrimRight(line[:open], whitespace)
	sig.Email = line[open+1 : open+1+length]

	date := strings.Trim(line[strings.LastIndexByte(line, '>')+1:], whitespace)
	digits := 0
	for digits < len(date) && date[digits] >= '0' && date[digits] <= '9' {
		digits++
	}
	seconds, err := strconv.ParseInt(date[:digits], 10, 64)
	if err != nil {
		return sig, true
	}
	sig.Seconds = seconds
	sig.Zone = strings.TrimLeft(date[digits:], whitespace)
	return sig, true
}

// whitespace is the white space that git trims, without the vertical tab.
const whitespace = " \t\n\r"

// Append appends the line, without its keyword and newline, to dst.
func (s Signature) Append(dst []byte) []byte {
	dst = append(dst, s.Name...)
	dst = append(dst, " <"...)
	dst = append(dst, s.Email...)
	dst = append(dst, "> "...)
	dst = strconv.AppendInt(dst, s.Seconds, 10)
	dst = append(dst, ' ')
	return append(dst, s.Zone...)
}

// String returns the line as [Signature.Append] writes it.
func (s Signature) String() string { return string(s.Append(nil)) }

// Time returns the moment in the signature's own zone; a zone that git cannot mean is read as UTC.
func (s Signature) Time() time.Time {
	return time.Unix(s.Seconds, 0).In(time.FixedZone("", s.zoneSeconds()))
}

// zoneSeconds reads "+hhmm" as git does, as a decimal number whose last two digits are minutes.
func (s Signature) zoneSeconds() int {
	value, err := strconv.Atoi(s.Zone)
	if err != nil || value <= -10000 || value >= 10000 {
		return 0
	}
	return (value/100*60 + value%100) * 60
}

// CommitTime converts the time of a commit or tag from seconds. Times beyond the year 9999 become
// the beginning of 1970, as git shows them.
func CommitTime(seconds int64) time.Time {
	const beyond = 253402300800 // 10000-01-01
	if seconds < 0 || seconds >= beyond {
		seconds = 0
	}
	return time.Unix(seconds, 0).UTC()
}
