package api

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
)

// refuse returns an error of the door with a status.
func refuse(status int, as code.Code, message string) error {
	return &exchange.Error{Status: status, Code: as, Message: message}
}

// repeated returns the refusal of a header that comes more than once.
func repeated(header string) error {
	return refuse(http.StatusBadRequest, code.MalformedHTTP, "more than one "+header+" header")
}

// once are the headers that different readers could interpret differently if they were repeated.
// Names are in lower case.
var once = map[string]struct {
	bit     uint8
	refusal error
}{
	"authorization":     {1 << 0, auth.ErrDuplicate},
	"content-encoding":  {1 << 1, repeated("content-encoding")},
	"content-length":    {framingLength, repeated("content-length")},
	"content-type":      {1 << 3, repeated("content-type")},
	"idempotency-key":   {1 << 4, repeated("idempotency-key")},
	"transfer-encoding": {framingChunks, repeated("transfer-encoding")},
	"x-min-sequence":    {1 << 6, repeated("x-min-sequence")},
	"git-protocol":      {1 << 7, repeated("git-protocol")},
}

const (
	framingLength = 1 << 2
	framingChunks = 1 << 5

	onceLengthMin = len("content-type")
	onceLengthMax = len("transfer-encoding")
)

var (
	errVersion = refuse(http.StatusHTTPVersionNotSupported, code.HTTPVersionUnsupported,
		"HTTP/1.1 is required (behind nginx: proxy_http_version 1.1)")
	errFraming  = refuse(http.StatusBadRequest, code.MalformedHTTP, "both content-length and transfer-encoding")
	errCoding   = refuse(http.StatusBadRequest, code.MalformedHTTP, "transfer-encoding: expected chunked")
	errBareLine = refuse(http.StatusBadRequest, code.MalformedHTTP, "a header line ends without a carriage return")
	errFolded   = refuse(http.StatusBadRequest, code.MalformedHTTP, "a header goes on in a second line")
	errPath     = refuse(http.StatusBadRequest, code.MalformedHTTP, "malformed path")
	errQuery    = refuse(http.StatusBadRequest, code.MalformedHTTP, "malformed query")
	errURL      = refuse(http.StatusRequestURITooLong, code.URLTooLong, "the URL is too long")
)

// checkHeader refuses headers that fasthttp accepts and that a proxy in front, or a reader behind,
// could interpret differently.
func checkHeader(h *fasthttp.RequestHeader) error {
	if !h.IsHTTP11() {
		return errVersion
	}
	var seen uint8
	for raw := h.RawHeaders(); len(raw) > 0; {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte{'\n'})
		switch {
		case len(line) == 0 || line[len(line)-1] != '\r':
			return errBareLine
		case line[0] == ' ' || line[0] == '\t':
			return errFolded
		}
		colon := bytes.IndexByte(line, ':')
		if colon < onceLengthMin || colon > onceLengthMax {
			continue
		}
		var name [onceLengthMax]byte
		for i := range colon {
			name[i] = line[i] | 0x20 // letters become small, the hyphen stays
		}
		header, ok := once[string(name[:colon])]
		if !ok {
			continue
		}
		if seen&header.bit != 0 {
			return header.refusal
		}
		seen |= header.bit
	}
	if seen&framingChunks != 0 && !bytes.EqualFold(h.Peek("Transfer-Encoding"), []byte("chunked")) {
		return errCoding
	}
	if seen&framingLength != 0 && seen&framingChunks != 0 {
		return errFraming
	}
	return nil
}

// splitTarget returns the path and the query of a request's target, as they were sent.
func splitTarget(target string, sizeMax int) (path, query string, err error) {
	if len(target) > sizeMax {
		return "", "", errURL
	}
	if !strings.HasPrefix(target, "/") { // absolute form, which clients use towards proxies
		_, rest, ok := strings.Cut(target, "://")
		slash := strings.IndexByte(rest, '/')
		if !ok || slash < 0 {
			return "", "", errPath
		}
		target = rest[slash:]
	}
	path, query, _ = strings.Cut(target, "?")
	return path, query, nil
}

// namedPrefix begins every path that names the repository, which travels as one escaped segment.
const namedPrefix = "/api/repos/"

// decodePath undoes percent-escapes once. It refuses paths that software with another order of
// splitting, cleaning and decoding could take for a different path: backslashes, dot segments and
// control bytes, escaped or not; and escaped slashes and escapes of escapes, except behind
// [namedPrefix], where it also returns the segments.
func decodePath(raw string) (path string, named []string, err error) {
	rest, inNamed := strings.CutPrefix(raw, namedPrefix)
	if !inNamed {
		path, err = decodeSegment(raw, false)
		return path, nil, err
	}
	for segment := range strings.SplitSeq(rest, "/") {
		segment, err = decodeSegment(segment, true)
		if err != nil {
			return "", nil, err
		}
		named = append(named, segment)
	}
	return namedPrefix + strings.Join(named, "/"), named, nil
}

// decodeSegment decodes a part of a path. Names in it may have a slash, a percent sign or a hash
// when anything says so; git's own rules for names decide about these.
func decodeSegment(raw string, anything bool) (string, error) {
	if strings.IndexByte(raw, '#') >= 0 {
		return "", errPath
	}
	decoded := raw
	if strings.IndexByte(raw, '%') >= 0 {
		var b strings.Builder
		for i := 0; i < len(raw); i++ {
			c := raw[i]
			if c == '%' {
				if i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2]) {
					return "", errPath
				}
				c = unhex(raw[i+1])<<4 | unhex(raw[i+2])
				if !anything && (c == '/' || c == '%' || c == '#') {
					return "", errPath
				}
				i += 2
			}
			b.WriteByte(c)
		}
		decoded = b.String()
	}
	for i := range len(decoded) {
		if c := decoded[i]; c < ' ' || c == 0x7f || c == '\\' {
			return "", errPath
		}
	}
	for segment := range strings.SplitSeq(decoded, "/") {
		if segment == "." || segment == ".." {
			return "", errPath
		}
	}
	return decoded, nil
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
