package remote_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/engine/outbound"
	"packhorse/engine/upstream/remote"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

const (
	idText  = "0123456789abcdef0123456789abcdef01234567"
	secret  = "hunter2/secret"
	service = "001e# service=git-upload-pack\n0000"
	head    = idText + " refs/heads/main\x00side-band-64k\n"
)

func lines(texts ...string) string {
	var out []byte
	for _, text := range texts {
		switch text {
		case "0000", "0001":
			out = append(out, text...)
		default:
			out = pktline.AppendLine(out, []byte(text))
		}
	}
	return string(out)
}

// farSide answers without a network, and counts the bytes read of its answers.
type farSide struct {
	answers  []io.Reader // one a request; the last one again when there are no more
	requests int
	read     int64
	status   int
	header   http.Header
	kind     string // of content, in place of the right one
}

func (f *farSide) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return nil, err
		}
		if err := request.Body.Close(); err != nil {
			return nil, err
		}
	}
	header := http.Header{"Content-Type": {"application/x-" + request.URL.Query().Get("service") + "-advertisement"}}
	if request.Method == http.MethodPost {
		header.Set("Content-Type", strings.Replace(request.Header.Get("Content-Type"), "-request", "-result", 1))
	}
	if f.kind != "" {
		header.Set("Content-Type", f.kind)
	}
	maps.Copy(header, f.header)
	answer := f.answers[min(f.requests, len(f.answers)-1)]
	f.requests++
	status := f.status
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: request,
		ContentLength: -1,
		Body: io.NopCloser(readFunc(func(p []byte) (int, error) {
			n, err := answer.Read(p)
			f.read += int64(n)
			return n, err
		})),
	}, nil
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// endless says the same again and again.
func endless(text string) io.Reader {
	rest := ""
	return readFunc(func(p []byte) (int, error) {
		if rest == "" {
			rest = text
		}
		n := copy(p, rest)
		rest = rest[n:]
		return n, nil
	})
}

func then(parts ...any) io.Reader {
	var readers []io.Reader
	for _, part := range parts {
		if text, ok := part.(string); ok {
			part = strings.NewReader(text)
		}
		readers = append(readers, part.(io.Reader))
	}
	return io.MultiReader(readers...)
}

func (f *farSide) remote(t *testing.T) *remote.Remote {
	t.Helper()
	return &remote.Remote{
		URL: parseURL(t, "https://far.test/owner/repo.git"), Client: &http.Client{Transport: f}, Authorize: password("user",
			secret),
		Limits: remote.Limits{
			Refs: 100, NameBytes: 64 << 10, AdvertisementBytes: 1 << 20, PackBytes: 1 << 20, ProgressBytes: 64 << 10, Haves: 500,
		},
	}
}

// judge fails the test unless err is of a kind, quotes no secret, and little was read.
func (f *farSide) judge(t *testing.T, name string, err, kind error) {
	t.Helper()
	typed, ok := errors.AsType[*remote.Error](err)
	if !errors.Is(err, kind) || !ok {
		t.Errorf("%s: %v, want %v", name, err, kind)
		return
	}
	for _, hidden := range []string{
		secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte("user:" + secret)), "\n", "\x1b",
	} {
		if strings.Contains(err.Error(), hidden) {
			t.Errorf("%s: %q is told in %q", name, hidden, err)
		}
	}
	if len(typed.Error()) > 2000 || f.read > 2<<20 {
		t.Errorf("%s: a text of %d bytes, after %d were read", name, len(typed.Error()), f.read)
	}
}

const v2 = "version 2\n"

// capsV2 is a version 2 advertisement.
var capsV2 = lines(v2, "agent=far\n", "ls-refs=unborn\n", "fetch=shallow\n", "object-format=sha1\n", "0000")

// hostileListings are answers to Refs.
func hostileListings() map[string]struct {
	answers []io.Reader
	err     error
} {
	type listing = struct {
		answers []io.Reader
		err     error
	}
	first := idText + " refs/heads/main\x00caps\n"
	one := func(text string, err error) listing { return listing{[]io.Reader{strings.NewReader(text)}, err} }
	two := func(err error, parts ...any) listing {
		return listing{[]io.Reader{strings.NewReader(capsV2), then(parts...)}, err}
	}
	return map[string]listing{
		"nothing":              one("", remote.ErrUnavailable),
		"HTML":                 one("<html><body>Please log in</body></html>", remote.ErrProtocol),
		"HTML that has digits": one("0000<html>", remote.ErrProtocol),
		"cut in the service":   one("001e# serv", remote.ErrUnavailable),
		"cut behind it":        one("001e# service=git-upload-pack\n", remote.ErrUnavailable),
		"cut in the refs":      one(service+lines(first), remote.ErrUnavailable),
		"cut in a ref":         one(service+"00ff"+idText, remote.ErrUnavailable),
		"another service":      one(lines("# service=git-receive-pack\n", "0000", first, "0000"), remote.ErrProtocol),
		"no service":           one(lines(first, "0000"), remote.ErrProtocol),
		"no flush":             one(lines("# service=git-upload-pack\n", first, "0000"), remote.ErrProtocol),
		"no capabilities":      one(service+lines(idText+" refs/heads/main\n", "0000"), remote.ErrProtocol),
		"no id":                one(service+lines("xyz refs/heads/main\x00caps\n", "0000"), remote.ErrProtocol),
		"an id in upper case": one(service+lines(strings.ToUpper(idText)+" refs/heads/main\x00caps\n", "0000"),
			remote.ErrProtocol),
		"the zero id": one(service+lines(strings.Repeat("0", 40)+" refs/heads/main\x00caps\n", "0000"),
			remote.ErrProtocol),
		"no name":              one(service+lines(idText+"\x00caps\n", "0000"), remote.ErrProtocol),
		"twice":                one(service+lines(first, idText+" refs/heads/main\n", "0000"), remote.ErrProtocol),
		"peeled without a tag": one(service+lines(first, idText+" refs/tags/v1^{}\n", "0000"), remote.ErrProtocol),
		"a delimiter":          one(service+lines(first, "0001", "0000"), remote.ErrProtocol),
		"SHA-256": one(service+lines(idText+" refs/heads/main\x00object-format=sha256\n", "0000"),
			remote.ErrProtocol),
		"a bad length":   one(service+"zzzz", remote.ErrProtocol),
		"a long line":    one(service+"ffff"+strings.Repeat("a", 65531), remote.ErrProtocol),
		"an error":       one(lines("ERR go away "+secret+"\x1b[31m\n"), remote.ErrRejected),
		"an error later": one(service+lines(first, "ERR "+strings.Repeat("x", 60000)), remote.ErrRejected),
		"too many refs":  {[]io.Reader{then(service+lines(first), endlessRefs())}, remote.ErrLimit},
		"endless repetition": {
			[]io.Reader{then(service+lines(first), endless(lines(idText+" refs/pull/1\n")))}, remote.ErrLimit,
		},
		"endless HEADs": {[]io.Reader{then(service+lines(first), endless(lines(idText+" HEAD\n")))}, remote.ErrLimit},
		"endless shallows": {
			[]io.Reader{then(service+lines(first), endless(lines("shallow "+idText+"\n")))}, remote.ErrLimit,
		},
		"endless capabilities": {[]io.Reader{then(lines(v2), endless(lines("x=y\n")))}, remote.ErrLimit},
		"endless rest":         {[]io.Reader{then(service+lines(first, "0000"), endless("x"))}, remote.ErrLimit},
		"no fetch":             one(lines(v2, "ls-refs\n", "0000"), remote.ErrProtocol),
		"v2, SHA-256":          one(lines(v2, "ls-refs\n", "fetch\n", "object-format=sha256\n", "0000"), remote.ErrProtocol),
		"v2, nothing":          two(remote.ErrUnavailable, ""),
		"v2, no id":            two(remote.ErrProtocol, lines("main refs/heads/main\n", "0000")),
		"v2, no name":          two(remote.ErrProtocol, lines(idText+"\n", "0000")),
		"v2, bad peeled":       two(remote.ErrProtocol, lines(idText+" refs/tags/v peeled:x\n", "0000")),
		"v2, twice":            two(remote.ErrProtocol, lines(idText+" refs/tags/v\n", idText+" refs/tags/v\n", "0000")),
		"v2, a delimiter":      two(remote.ErrProtocol, lines(idText+" refs/tags/v\n", "0001")),
		"v2, an error": two(remote.ErrRejected,
			lines("ERR "+base64.StdEncoding.EncodeToString([]byte("user:"+secret)))),
		"v2, too many refs":  two(remote.ErrLimit, endlessRefs()),
		"v2, endless unborn": two(remote.ErrLimit, endless(lines("unborn HEAD symref-target:refs/heads/main\n"))),
		"v2, long names":     two(remote.ErrLimit, longRefs()),
		"v2, endless rest":   two(remote.ErrLimit, "0000", endless("0000")),
	}
}

// longRefs are fewer than a hundred, and their names altogether longer than may be.
func longRefs() io.Reader {
	var out strings.Builder
	for i := range 90 {
		out.WriteString(lines(fmt.Sprintf("%s refs/heads/%02d%s\n", idText, i, strings.Repeat("x", 900))))
	}
	return strings.NewReader(out.String())
}

// endlessRefs are refs with ever new names.
func endlessRefs() io.Reader {
	number, rest := 0, ""
	return readFunc(func(p []byte) (int, error) {
		if rest == "" {
			number++
			rest = lines(fmt.Sprintf("%s refs/heads/%d\n", idText, number))
		}
		n := copy(p, rest)
		rest = rest[n:]
		return n, nil
	})
}

func TestHostileListings(t *testing.T) {
	t.Parallel()
	for name, test := range hostileListings() {
		far := &farSide{answers: test.answers}
		_, err := far.remote(t).Refs(t.Context())
		far.judge(t, name, err, test.err)
	}
}

func TestHostileHeads(t *testing.T) {
	t.Parallel()
	ad := service + lines(idText+" refs/heads/main\x00caps\n", "0000")
	tests := map[string]struct {
		far   farSide
		err   error
		retry time.Duration
	}{
		"dumb":             {farSide{kind: "text/plain"}, remote.ErrProtocol, 0},
		"HTML":             {farSide{kind: "text/html; charset=utf-8"}, remote.ErrProtocol, 0},
		"another answer":   {farSide{kind: "application/x-git-upload-pack-result"}, remote.ErrProtocol, 0},
		"a long type":      {farSide{kind: strings.Repeat("a", 10000) + "/b"}, remote.ErrProtocol, 0},
		"gzip":             {farSide{header: http.Header{"Content-Encoding": {"gzip"}}}, remote.ErrProtocol, 0},
		"brotli":           {farSide{header: http.Header{"Content-Encoding": {"br"}}}, remote.ErrProtocol, 0},
		"not authorized":   {farSide{status: 401}, remote.ErrUnauthorized, 0},
		"payment required": {farSide{status: 402}, remote.ErrProtocol, 0},
		"forbidden":        {farSide{status: 403}, remote.ErrForbidden, 0},
		"not found":        {farSide{status: 404}, remote.ErrNotFound, 0},
		"gone":             {farSide{status: 410}, remote.ErrNotFound, 0},
		"no content":       {farSide{status: 204}, remote.ErrProtocol, 0},
		"too many requests": {
			farSide{status: 429, header: http.Header{"Retry-After": {"120"}}}, remote.ErrUnavailable, 2 * time.Minute,
		},
		"broken":      {farSide{status: 500}, remote.ErrUnavailable, 0},
		"bad gateway": {farSide{status: 502, header: http.Header{"Retry-After": {"-5"}}}, remote.ErrUnavailable, 0},
		"unavailable": {
			farSide{status: 503, header: http.Header{"Retry-After": {"9999999"}}}, remote.ErrUnavailable, 24 * time.Hour,
		},
		"an unknown status": {farSide{status: 799}, remote.ErrUnavailable, 0},
	}
	for name, test := range tests {
		far := &test.far
		far.answers = []io.Reader{strings.NewReader(ad)}
		_, err := far.remote(t).Refs(t.Context())
		far.judge(t, name, err, test.err)
		if typed, ok := errors.AsType[*remote.Error](err); ok && typed.RetryAfter != test.retry {
			t.Errorf("%s: again after %s", name, typed.RetryAfter)
		}
		if far.read > 0 {
			t.Errorf("%s: the body was read", name)
		}
	}
}

// endlessHaves never run out.
type endlessHaves struct{ count int }

func (h *endlessHaves) Next(_ context.Context, most int) ([]object.ID, error) {
	next := make([]object.ID, most)
	for i := range next {
		h.count++
		next[i] = object.ID{1, byte(h.count >> 16), byte(h.count >> 8), byte(h.count)}
	}
	return next, nil
}

func (*endlessHaves) Common(object.ID) {}

func TestHostileFetches(t *testing.T) {
	t.Parallel()
	const capsV0 = "multi_ack_detailed no-done side-band-64k ofs-delta thin-pack"
	v0 := service + lines(idText+" refs/heads/main\x00"+capsV0+"\n", "0000")
	v0plain := service + lines(idText+" refs/heads/main\x00ofs-delta\n", "0000")
	ready := lines("acknowledgments\n", "ACK 0100000100000000000000000000000000000000\n", "ready\n", "0001")
	tests := map[string]struct {
		ad     string
		answer []any
		err    error
	}{
		"nothing":            {capsV2, []any{""}, remote.ErrUnavailable},
		"no section":         {capsV2, []any{"0000"}, remote.ErrProtocol},
		"an unknown section": {capsV2, []any{lines("packfile-uris\n", "0000")}, remote.ErrProtocol},
		"shallow":            {capsV2, []any{lines("shallow-info\n", "0000")}, remote.ErrProtocol},
		"never a pack":       {capsV2, []any{endless(lines("acknowledgments\n", "NAK\n", "0000"))}, remote.ErrLimit},
		"NAK for ever":       {capsV2, []any{lines("acknowledgments\n"), endless(lines("NAK\n"))}, remote.ErrLimit},
		"unknown common":     {capsV2, []any{lines("acknowledgments\n", "ACK "+idText+"\n", "0000")}, remote.ErrProtocol},
		"no acknowledgment":  {capsV2, []any{lines("acknowledgments\n", "YES\n", "0000")}, remote.ErrProtocol},
		"ready, and no pack": {capsV2, []any{lines("acknowledgments\n", "ready\n", "0000")}, remote.ErrProtocol},
		"a pack, not ready": {
			capsV2, []any{lines("acknowledgments\n", "NAK\n", "0001", "packfile\n")}, remote.ErrProtocol,
		},
		"cut behind ready": {capsV2, []any{ready}, remote.ErrUnavailable},
		"an error":         {capsV2, []any{lines("ERR not for " + secret + "\n")}, remote.ErrRejected},
		"cut pack":         {capsV2, []any{lines("packfile\n", "\x01PACK")}, remote.ErrUnavailable},
		"cut in a packet":  {capsV2, []any{lines("packfile\n"), "00ff\x01PACK"}, remote.ErrUnavailable},
		"endless pack": {
			capsV2, []any{lines("packfile\n"), endless(lines("\x01" + strings.Repeat("x", 60000)))}, remote.ErrLimit,
		},
		"endless progress":     {capsV2, []any{lines("packfile\n"), endless(lines("\x02Counting\r"))}, remote.ErrLimit},
		"endless empty data":   {capsV2, []any{lines("packfile\n"), endless(lines("\x01"))}, remote.ErrLimit},
		"endless empty lines":  {capsV2, []any{lines("packfile\n"), endless(lines(""))}, remote.ErrProtocol},
		"an error in the pack": {capsV2, []any{lines("packfile\n", "\x01PACK", "\x03no "+secret+"\n")}, remote.ErrRejected},
		"an unknown band":      {capsV2, []any{lines("packfile\n", "\x04x")}, remote.ErrProtocol},
		"a delimiter":          {capsV2, []any{lines("packfile\n", "0001")}, remote.ErrProtocol},
		"more than the pack":   {capsV2, []any{lines("packfile\n", "0000"), endless("x")}, remote.ErrLimit},
		"v0, nothing":          {v0, []any{""}, remote.ErrUnavailable},
		"v0, shallow":          {v0, []any{lines("shallow "+idText+"\n", "0000")}, remote.ErrProtocol},
		"v0, NAK for ever":     {v0, []any{endless(lines("NAK\n"))}, remote.ErrLimit},
		"v0, unknown common":   {v0, []any{lines("ACK " + idText + " common\n")}, remote.ErrProtocol},
		"v0, an early end":     {v0, []any{lines("ACK 0100000100000000000000000000000000000000\n")}, remote.ErrProtocol},
		"v0, no ACK":           {v0, []any{lines("PACK\n")}, remote.ErrProtocol},
		"v0, endless ACKs": {
			v0, []any{endless(lines("ACK 0100000100000000000000000000000000000000 common\n"))}, remote.ErrLimit,
		},
		"v0, endless pack": {v0plain, []any{lines("NAK\n"), endless("PACK")}, remote.ErrLimit},
	}
	for name, test := range tests {
		far := &farSide{answers: []io.Reader{strings.NewReader(test.ad), strings.NewReader("0000"), then(test.answer...)}}
		if test.ad != capsV2 {
			far.answers = []io.Reader{strings.NewReader(test.ad), then(test.answer...)}
		}
		r := far.remote(t)
		ad := list(t, r)
		far.read = 0
		stream, err := r.Fetch(t.Context(), ad,
			remote.FetchRequest{Wants: []object.ID{{1}}, Haves: &endlessHaves{}, Progress: io.Discard})
		if err == nil {
			_, err = io.Copy(io.Discard, stream)
			err = errors.Join(err, stream.Close())
		}
		far.judge(t, name, err, test.err)
	}
}

// TestHavesEnd is a far side that never knows enough: the negotiation ends nevertheless.
func TestHavesEnd(t *testing.T) {
	t.Parallel()
	far := &farSide{answers: []io.Reader{
		strings.NewReader(capsV2), strings.NewReader("0000"), endless(lines("acknowledgments\n", "NAK\n", "0000")),
	}}
	r := far.remote(t)
	ad := list(t, r)
	var haves endlessHaves
	_, err := r.Fetch(t.Context(), ad, remote.FetchRequest{Wants: []object.ID{{1}}, Haves: &haves})
	// The answer does not end either; but for that, the last round would have said that no pack came.
	far.judge(t, "endless", err, remote.ErrLimit)
	far = &farSide{answers: []io.Reader{strings.NewReader(capsV2), strings.NewReader("0000")}}
	for range 20 {
		far.answers = append(far.answers, strings.NewReader(lines("acknowledgments\n", "NAK\n", "0000")))
	}
	r, haves = far.remote(t), endlessHaves{}
	ad = list(t, r)
	_, err = r.Fetch(t.Context(), ad, remote.FetchRequest{Wants: []object.ID{{1}}, Haves: &haves})
	far.judge(t, "never ready", err, remote.ErrProtocol)
	if haves.count != 500 || far.requests >= 20 {
		t.Errorf("%d haves in %d requests", haves.count, far.requests)
	}
	far = &farSide{answers: []io.Reader{strings.NewReader(capsV2), strings.NewReader("0000")}}
	r = far.remote(t)
	if _, err := r.Fetch(t.Context(), list(t, r), remote.FetchRequest{}); err == nil || far.requests != 2 {
		t.Errorf("nothing is wanted: %v after %d requests", err, far.requests)
	}
}

func TestHostileReports(t *testing.T) {
	t.Parallel()
	const caps = "report-status report-status-v2 side-band-64k ofs-delta delete-refs"
	advertise := func(caps string) string {
		return lines("# service=git-receive-pack\n", "0000", strings.Repeat("0", 40)+" capabilities^{}\x00"+caps+"\n", "0000")
	}
	banded := func(texts ...string) []any { return []any{lines("\x01"+lines(texts...), "0000")} }
	tests := map[string]struct {
		caps   string
		answer []any
		err    error
		reason string
	}{
		"done": {caps, banded("unpack ok\n", "ok refs/heads/main\n", "0000"), nil, ""},
		"done, with options": {
			caps, banded("unpack ok\n", "ok refs/heads/main\n", "option refname refs/x\n", "0000"), nil, "",
		},
		"no side-band": {
			"report-status ofs-delta", []any{lines("unpack ok\n", "ok refs/heads/main\n", "0000")}, nil, "",
		},
		"refused":            {caps, banded("unpack ok\n", "ng refs/heads/main no "+secret+"\x1b\n", "0000"), nil, "no ***"},
		"refused, no reason": {caps, banded("unpack ok\n", "ng refs/heads/main\n", "0000"), nil, "refused without a reason"},
		"not told":           {caps, banded("unpack ok\n", "0000"), nil, "the far side did not report on it"},
		"not unpacked": {
			caps, banded("unpack bad "+secret+"\n", "ng refs/heads/main unpacker error\n", "0000"), remote.ErrRejected, "",
		},
		"no status":       {"ofs-delta", []any{""}, remote.ErrProtocol, ""},
		"no offsets":      {"report-status", []any{""}, remote.ErrProtocol, ""},
		"nothing":         {caps, []any{""}, remote.ErrUnavailable, ""},
		"no report":       {caps, []any{"0000"}, remote.ErrUnavailable, ""},
		"cut":             {caps, []any{lines("\x01" + lines("unpack ok\n"))}, remote.ErrUnavailable, ""},
		"cut in the band": {caps, banded("unpack ok\n"), remote.ErrUnavailable, ""},
		"no unpack":       {caps, banded("ok refs/heads/main\n", "0000"), remote.ErrProtocol, ""},
		"another ref":     {caps, banded("unpack ok\n", "ok refs/heads/other\n", "0000"), remote.ErrProtocol, ""},
		"nonsense":        {caps, banded("unpack ok\n", "maybe refs/heads/main\n", "0000"), remote.ErrProtocol, ""},
		"an error":        {caps, []any{lines("\x03no "+secret, "0000")}, remote.ErrRejected, ""},
		"an error afterwards": {
			caps, []any{lines("\x01"+lines("unpack ok\n", "ok refs/heads/main\n", "0000"), "\x03late")}, remote.ErrRejected, "",
		},
		"endless report": {caps, []any{endless(lines("\x01" + lines("unpack ok\n")))}, remote.ErrProtocol, ""},
		"endless options": {
			caps, []any{lines("\x01" + lines("unpack ok\n")), endless(lines("\x01" + lines("option x\n")))}, remote.ErrLimit, "",
		},
		"endless progress": {caps, []any{endless(lines("\x02remote: hello\n"))}, remote.ErrLimit, ""},
		"endless, bare": {
			"report-status ofs-delta", []any{lines("unpack ok\n"), endless(lines("option x\n"))}, remote.ErrLimit, "",
		},
	}
	for name, test := range tests {
		far := &farSide{answers: []io.Reader{strings.NewReader(advertise(test.caps)), then(test.answer...)}}
		results, err := far.remote(t).Push(t.Context(), remote.PushRequest{
			Commands: []remote.Command{{Name: "refs/heads/main", New: object.ID{1}}},
			Pack:     func(w io.Writer) error { _, err := io.WriteString(w, "PACK"); return err },
		})
		if test.err != nil {
			far.judge(t, name, err, test.err)
			continue
		}
		if err != nil || len(results) != 1 || results[0].Reason != test.reason {
			t.Errorf("%s: %v, %v", name, results, err)
		}
	}
	far := &farSide{answers: []io.Reader{strings.NewReader(advertise("report-status ofs-delta"))}}
	results, err := far.remote(t).Push(t.Context(),
		remote.PushRequest{Commands: []remote.Command{{Name: "refs/heads/main", Old: object.ID{1}}}})
	if err != nil || len(results) != 1 || !strings.Contains(results[0].Reason, "does not delete") || far.requests != 1 {
		t.Errorf("a far side that does not delete: %v, %v", results, err)
	}
}

// TestRedirects is a far side that redirects us, and our credentials, to another host.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	ad := service + lines(idText+" refs/heads/main\x00caps\n", "0000")
	var posted atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		switch {
		case strings.HasPrefix(r.URL.Path, "/old/"):
			http.Redirect(w, r, strings.Replace(r.URL.String(), "/old/", "/new/", 1), http.StatusMovedPermanently)
		case strings.HasPrefix(r.URL.Path, "/other/"):
			http.Redirect(w, r, other.URL+r.URL.String(), http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/login/"):
			http.Redirect(w, r, "/sign_in", http.StatusFound)
		case r.Method == http.MethodPost:
			posted.Store(r.URL.Path + " " + given)
			w.WriteHeader(http.StatusTeapot)
		default:
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, ad)
		}
	}))
	t.Cleanup(server.Close)
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	at := func(path string) *remote.Remote {
		return &remote.Remote{URL: parseURL(t, server.URL+path), Client: client, Authorize: password("user", secret)}
	}
	ad1 := list(t, at("/old/repo.git"))
	if _, err := at("/old/repo.git").Fetch(t.Context(), ad1, remote.FetchRequest{Wants: []object.ID{{1}}}); err == nil {
		t.Error("a teapot gave a pack")
	}
	if got := posted.Load(); got != "/new/repo.git/git-upload-pack "+secret {
		t.Errorf("posted to %v", got)
	}
	_, err := at("/other/repo.git").Refs(t.Context())
	if refused, ok := errors.AsType[*outbound.RefusedError](err); !ok ||
		!strings.Contains(refused.Why, "another origin") || elsewhere.Load() != 0 {
		t.Errorf("%v, and %d requests elsewhere", err, elsewhere.Load())
	}
	_, err = at("/login/repo.git").Refs(t.Context())
	(&farSide{}).judge(t, "login", err, remote.ErrProtocol)
	for _, raw := range []string{"http://u:p@far.test/", "http://far.test/?x", "http://far.test/#x"} {
		_, err := (&remote.Remote{URL: parseURL(t, raw), Client: client}).Refs(t.Context())
		(&farSide{}).judge(t, raw, err, remote.ErrProtocol)
	}
}

func TestAuthorizeFails(t *testing.T) {
	t.Parallel()
	far := &farSide{}
	r := far.remote(t)
	broken := errors.New("broken")
	r.Authorize = func(context.Context) (string, string, error) { return "", "", broken }
	if _, err := r.Refs(t.Context()); !errors.Is(err, broken) || far.requests != 0 {
		t.Errorf("%v, %d requests", err, far.requests)
	}
}
