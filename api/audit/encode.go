package audit

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// timeLayout is RFC 3339 with microseconds: lines sort as their times do.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// wireRecord is the JSON of a record, with its time first.
type wireRecord struct {
	Time string `json:"time"`
	*Record
}

// encode returns the JSON of a value, ended by a newline, with <, > and & as they are.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return text.Bytes(), err
}

// textBytesMax bounds each text of a shortened line. Escaped, each byte takes six: all texts
// together stay below the shortest line that a destination takes.
const textBytesMax = 160

// line returns the line of a record, ended by a newline: of sizeMax bytes at most, without it, or
// of any size if that is 0. A line that would be longer leaves out the last changes of refs, and if
// that is not enough the ends of its texts.
func (r *Record) line(sizeMax int) ([]byte, error) {
	wire := wireRecord{r.Time.UTC().Format(timeLayout), r}
	line, err := encode(wire)
	if err != nil || sizeMax == 0 || len(line) <= sizeMax+1 {
		return line, err
	}
	short := *r
	wire.Record, short.Shortened = &short, true
	for kept := len(r.Changes); kept > 0; {
		kept /= 2
		short.Changes, short.LeftOut = r.Changes[:kept], len(r.Changes)-kept
		if line, err = encode(wire); err != nil || len(line) <= sizeMax+1 {
			return line, err
		}
	}
	for _, text := range []*string{
		&short.Organization, &short.Repository, &short.Subject, &short.KeyID, &short.UserAgent,
	} {
		*text = shorten(*text)
	}
	return encode(wire)
}

// shorten returns the beginning of a text that is too long, with an ellipsis.
func shorten(text string) string {
	const ellipsis = "…"
	if len(text) <= textBytesMax {
		return text
	}
	end := textBytesMax - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
