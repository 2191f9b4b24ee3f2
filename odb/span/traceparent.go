package span

import (
	"context"
	"encoding/hex"
	"strings"
)

// The headers of W3C Trace Context, https://www.w3.org/TR/trace-context/.
const (
	ParentHeader = "Traceparent"
	StateHeader  = "Tracestate"
)

// Link is what identifies a span to other programs. The zero value identifies none.
type Link struct {
	Trace   [16]byte
	Span    [8]byte
	Sampled bool   // whoever began the span records it
	State   string // what systems of tracing add, passed on as it came; "" for nothing
	Remote  bool   // another program began the span
}

// IsValid reports whether the link identifies a span.
func (l Link) IsValid() bool { return l.Trace != [16]byte{} && l.Span != [8]byte{} }

// TraceID is the ID of the trace in hexadecimal digits, "" for the zero Link.
func (l Link) TraceID() string {
	if !l.IsValid() {
		return ""
	}
	return hex.EncodeToString(l.Trace[:])
}

// parentLength is the length of a traceparent header of version 00:
//
//	00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//	version, ID of the trace, ID of the span, flags
const parentLength = 55

const (
	flagSampled  = 1
	laterVersion = 0xff // is none
)

// Parse reads the values of the headers of a request. A traceparent that is missing, repeated or
// malformed gives the zero Link; a malformed tracestate is left out. Of a later version than 00
// only what it has in common with that is read.
func Parse(parents, states []string) Link {
	if len(parents) != 1 {
		return Link{}
	}
	l, ok := parseParent(parents[0])
	if !ok {
		return Link{}
	}
	l.State = joinState(states)
	return l
}

func parseParent(text string) (Link, bool) {
	if len(text) < parentLength || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Link{}, false
	}
	var version, flags [1]byte
	l := Link{Remote: true}
	for _, field := range []struct {
		to   []byte
		from string
	}{{version[:], text[:2]}, {l.Trace[:], text[3:35]}, {l.Span[:], text[36:52]}, {flags[:], text[53:55]}} {
		if strings.ToLower(field.from) != field.from {
			return Link{}, false
		}
		if _, err := hex.Decode(field.to, []byte(field.from)); err != nil {
			return Link{}, false
		}
	}
	rest := text[parentLength:]
	switch {
	case version[0] == laterVersion, version[0] == 0 && rest != "", rest != "" && rest[0] != '-', !l.IsValid():
		return Link{}, false
	}
	l.Sampled = flags[0]&flagSampled != 0
	return l, true
}

// String is the traceparent header, of version 00; "" for the zero Link. The flags that this
// version does not know are not passed on.
func (l Link) String() string {
	if !l.IsValid() {
		return ""
	}
	out := make([]byte, 0, parentLength)
	out = append(out, "00-"...)
	out = hex.AppendEncode(out, l.Trace[:])
	out = append(out, '-')
	out = hex.AppendEncode(out, l.Span[:])
	if l.Sampled {
		return string(append(out, "-01"...))
	}
	return string(append(out, "-00"...))
}

// Carry passes the headers that tell a server of the span in ctx to set, the traceparent first. It
// passes none without a span.
func Carry(ctx context.Context, set func(name, value string)) {
	l := From(ctx)
	if !l.IsValid() {
		return
	}
	set(ParentHeader, l.String())
	if l.State != "" {
		set(StateHeader, l.State)
	}
}

// Bounds of a tracestate. It may be left out when it is longer than 512 bytes.
const (
	stateBytesMax   = 512
	stateMembersMax = 32
	stateKeyMax     = 256
	stateValueMax   = 256
)

// joinState is the values of all tracestate headers as one, "" if they are malformed or too long.
func joinState(states []string) string {
	var members []string
	for _, state := range states {
		for member := range strings.SplitSeq(state, ",") {
			member = strings.Trim(member, " \t")
			if member == "" {
				continue // an empty member is allowed
			}
			if !isStateMember(member) {
				return ""
			}
			members = append(members, member)
		}
	}
	joined := strings.Join(members, ",")
	if len(members) > stateMembersMax || len(joined) > stateBytesMax || repeats(members) {
		return ""
	}
	return joined
}

// repeats reports whether two members have the same key.
func repeats(members []string) bool {
	seen := make(map[string]bool, len(members))
	for _, member := range members {
		name, _, _ := strings.Cut(member, "=")
		if seen[name] {
			return true
		}
		seen[name] = true
	}
	return false
}

// isStateMember reports whether text is key=value: a key of small letters, digits and _-*/, perhaps
// behind a tenant and an @, and a value of printable ASCII without comma and equals sign.
func isStateMember(text string) bool {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" || len(name) > stateKeyMax || value == "" || len(value) > stateValueMax {
		return false
	}
	tenant, system, several := strings.Cut(name, "@")
	if several && (tenant == "" || system == "" || !isLetter(system[0])) || !isLetter(name[0]) && !isDigit(name[0]) ||
		!several && !isLetter(name[0]) {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isLetter(c) && !isDigit(c) && !strings.ContainsRune("_-*/", rune(c)) &&
			(c != '@' || i != len(tenant)) {
			return false
		}
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == ',' || c == '=' {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
