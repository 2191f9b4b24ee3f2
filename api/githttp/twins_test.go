package githttp_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"packhorse/api/exchange/exchangetest"
	"packhorse/api/githttp"
	"packhorse/fuzz/oracle"
	"packhorse/pack/pktline"
)

// twins are a repository of git's and a remote that holds the same. Both are given the same
// requests, byte for byte.
type twins struct {
	t      *testing.T
	git    *oracle.Repository
	remote *remote
	whole  func() *oracle.Repository // empty: only a pack that is complete in itself can be indexed here
	thin   func() *oracle.Repository // sees every object
}

// twinConfig enables in git's servers the features of the remote.
const twinConfig = `
[uploadpack]
	allowFilter
	allowRefInWant
	allowSidebandAll
	allowAnySHA1InWant
[uploadpackfilter "sparse:oid"]
	allow = false
[receive]
	advertisePushOptions
[pack]
	threads = 1
`

func newTwins(t *testing.T, seed func(git *oracle.Repository)) *twins {
	t.Helper()
	tw := newGitTwin(t)
	tw.remote = serve(t, githttp.Config{})
	seed(tw.git)
	tw.remote.push(tw.git, "refs/*:refs/*")
	return tw
}

// newGitTwin makes the half of the twins that is git's.
func newGitTwin(t *testing.T) *twins {
	t.Helper()
	tw := &twins{t: t, git: oracle.New(t)}
	tw.whole = sync.OnceValue(func() *oracle.Repository { return oracle.New(t) })
	tw.thin = sync.OnceValue(func() *oracle.Repository {
		thin := oracle.New(t)
		appendTo(t, filepath.Join(thin.Dir, "objects", "info", "alternates"), filepath.Join(tw.git.Dir, "objects")+"\n")
		return thin
	})
	appendTo(t, filepath.Join(tw.git.Dir, "config"), twinConfig)
	return tw
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// backend serves git's repository by git http-backend and returns its URL.
func (tw *twins) backend() string {
	tw.t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		tw.t.Fatal(err)
	}
	env := append(oracle.Env(tw.git.Dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_PROJECT_ROOT="+filepath.Dir(tw.git.Dir),
		"REMOTE_USER=tester")
	env = slices.DeleteFunc(env, func(variable string) bool { return strings.HasPrefix(variable, "GIT_DIR=") })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler := cgi.Handler{
			Path: git, Args: []string{"http-backend"}, Env: append(env, "GIT_PROTOCOL="+r.Header.Get("Git-Protocol")),
		}
		handler.Stderr = io.Discard
		if r.ContentLength < 0 {
			body, err := io.ReadAll(r.Body) // net/http/cgi cannot pass chunks on
			if err != nil {
				return
			}
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		}
		handler.ServeHTTP(w, r)
	}))
	tw.t.Cleanup(server.Close)
	return server.URL + "/" + filepath.Base(tw.git.Dir)
}

// The packets without content, among the lines of a request.
const (
	flush = "0000"
	delim = "0001"
)

// request puts lines into packets.
func request(lines ...string) []byte {
	var out []byte
	for _, line := range lines {
		if line == flush || line == delim {
			out = append(out, line...)
			continue
		}
		out = pktline.AppendLine(out, []byte(line+"\n"))
	}
	return out
}

// ours is the remote's answer to a request for objects or refs.
func (tw *twins) ours(version int, body []byte) *transcript {
	tw.t.Helper()
	return readTranscript(tw.t, tw.remote.post("git-upload-pack", version, body))
}

// theirs is git's.
func (tw *twins) theirs(version int, body []byte) *transcript {
	tw.t.Helper()
	return readTranscript(tw.t, tw.run(version, body, "upload-pack", "--stateless-rpc", tw.git.Dir))
}

// run runs a server of git, which may die over the request.
func (tw *twins) run(version int, stdin []byte, args ...string) []byte {
	tw.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(oracle.Env(tw.git.Dir), fmt.Sprintf("GIT_PROTOCOL=version=%d", version))
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tw.t.Fatal(err)
	}
	if exit != nil {
		out = append(out, pktline.AppendLine(nil, []byte("ERR "+lastLine(exit.Stderr)))...)
	}
	return out
}

func lastLine(out []byte) string {
	all := lines(string(out))
	return all[len(all)-1]
}

// post answers a request in memory; the answer must be 200 and complete.
func (r *remote) post(service string, version int, body []byte) []byte {
	r.t.Helper()
	answer, err := r.exchange(service, version, bytes.NewReader(body)).finish()
	if err != nil || answer.Status != 200 {
		r.t.Fatalf("answer %+v, %v", answer, err)
	}
	return answer.Body
}

// pending is an exchange that has been handled, and whose answer has not been written.
type pending struct {
	*exchangetest.Exchange
	err error
}

func (r *remote) exchange(service string, version int, body io.Reader) pending {
	return r.exchangeWith("", service, version, body)
}

func (r *remote) exchangeWith(variant, service string, version int, body io.Reader) pending {
	x := exchangetest.New(http.MethodPost, "/"+repoName+variant+".git/"+service, body)
	x.RequestHeaders.Set("Content-Type", "application/x-"+service+"-request")
	x.RequestHeaders.Set("Git-Protocol", "version="+strconv.Itoa(version))
	return pending{x, r.handle(x)}
}

// finish writes the answer, which contains an error of the handler.
func (p pending) finish() (*exchangetest.Answer, error) {
	if p.err != nil {
		githttp.Refuse(p.Exchange, p.err)
	}
	return p.Finish()
}

// transcript is an answer taken apart.
type transcript struct {
	lines    []string // and the packets between them
	pack     []byte
	progress string
	fatal    string // the error band, or an ERR line
}

func readTranscript(tb testing.TB, answer []byte) *transcript {
	tb.Helper()
	out := &transcript{}
	in := pktline.NewReader(bytes.NewReader(answer))
	packing := false
	for at := 0; ; {
		if bytes.HasPrefix(answer[at:], []byte("PACK")) {
			out.pack = answer[at:]
			return out
		}
		kind, payload, err := in.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatalf("answer %.200q at %d: %v", answer, at, err)
		}
		at += 4 + len(payload)
		switch {
		case kind == pktline.Flush:
			out.lines = append(out.lines, flush)
		case kind == pktline.Delim:
			out.lines = append(out.lines, delim)
		case kind != pktline.Data:
			tb.Fatalf("a packet of kind %s", kind)
		case len(payload) > 0 && payload[0] == pktline.BandProgress:
			out.progress += string(payload[1:])
		case len(payload) > 0 && payload[0] == pktline.BandError:
			out.fatal += string(payload[1:])
		case bytes.HasPrefix(payload, []byte("ERR ")):
			out.fatal += string(payload[4:])
		case len(payload) == 1 && payload[0] == pktline.BandData: // keeps the connection alive
		case len(payload) > 0 && payload[0] == pktline.BandData && (packing || bytes.HasPrefix(payload[1:], []byte("PACK"))):
			packing = true
			out.pack = append(out.pack, payload[1:]...)
		default:
			out.lines = append(out.lines, strings.TrimSuffix(strings.TrimPrefix(string(payload), "\x01"), "\n"))
		}
	}
}

// sections gives the sections of a version 2 answer their documented order, in which git 2.39 does
// not send them, and sorts lines that come in the order of a hash table and at times twice.
func (a *transcript) sections() []string {
	var order [][]string
	for _, line := range a.lines {
		if n := len(order); n == 0 || order[n-1][len(order[n-1])-1] == delim {
			order = append(order, nil)
		}
		order[len(order)-1] = append(order[len(order)-1], line)
	}
	for i, section := range order {
		if section[0] == "shallow-info" {
			slices.Sort(section[1 : len(section)-1])
		}
		order[i] = slices.Compact(section)
	}
	rank := []string{"acknowledgments", "shallow-info", "wanted-refs", "packfile"}
	slices.SortStableFunc(order, func(a, b []string) int {
		return cmp.Compare(slices.Index(rank, a[0]), slices.Index(rank, b[0]))
	})
	return slices.Concat(order...)
}

// legacyLines sorts the boundary, as sections does.
func (a *transcript) legacyLines() []string {
	if at := slices.Index(a.lines, flush); at > 0 && strings.Contains(a.lines[0], "shallow ") {
		slices.Sort(a.lines[:at])
		return slices.Compact(a.lines)
	}
	return a.lines
}

// singleACK leaves only the first ACK, which is all that the protocol allows without multi_ack. Git
// adds those of the first one's parents.
func singleACK(lines []string) []string {
	seen := false
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		again := seen && strings.HasPrefix(line, "ACK ")
		seen = seen || strings.HasPrefix(line, "ACK ")
		return again
	})
}

// knownFaults are those of real histories, which are let in.
const knownFaults = "zeroPaddedFilemode=ignore,badTimezone=ignore,missingSpaceBeforeDate=ignore"

// objects returns the IDs of the objects of a pack, in order. A pack that is not thin must be
// complete in itself; a thin one must be complete together with the repository.
func (tw *twins) objects(pack []byte, thin bool) []string {
	tw.t.Helper()
	if len(pack) < 12 {
		tw.t.Fatalf("a pack of %d bytes", len(pack))
	}
	count := int(binary.BigEndian.Uint32(pack[8:]))
	if count == 0 {
		return nil
	}
	git, args := tw.whole, []string{"index-pack", "--stdin"}
	if thin {
		git, args = tw.thin, append(args, "--fix-thin", "--strict="+knownFaults)
	}
	into := git()
	_, name, _ := strings.Cut(strings.TrimSpace(string(into.Input(pack, args...))), "\t")
	index, err := os.ReadFile(filepath.Join(into.Dir, "objects", "pack", "pack-"+name+".idx"))
	if err != nil {
		tw.t.Fatal(err)
	}
	type entry struct {
		offset int
		id     string
	}
	var entries []entry
	for _, line := range lines(string(into.Input(index, "show-index"))) {
		words := strings.Fields(line)
		offset, err := strconv.Atoi(words[0])
		if err != nil {
			tw.t.Fatal(err)
		}
		entries = append(entries, entry{offset, words[1]})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.offset, b.offset) })
	ids := make([]string, 0, count)
	for _, e := range entries[:count] { // later entries were added to complete the pack
		ids = append(ids, e.id)
	}
	slices.Sort(ids)
	return ids
}

// compare gives both a request, and wants the same answer: the same lines, and a pack of the same
// objects.
func (tw *twins) compare(version int, body []byte) {
	tw.t.Helper()
	got, want := tw.ours(version, body), tw.theirs(version, body)
	if (got.fatal == "") != (want.fatal == "") {
		tw.t.Fatalf("request %q fails with %q, of git with %q", body, got.fatal, want.fatal)
	}
	if want.fatal != "" {
		return
	}
	var gotLines, wantLines []string
	switch {
	case version == 2:
		gotLines, wantLines = got.sections(), want.sections()
	case !bytes.Contains(body, []byte("multi_ack")):
		gotLines, wantLines = singleACK(got.legacyLines()), singleACK(want.legacyLines())
	default:
		gotLines, wantLines = got.legacyLines(), want.legacyLines()
	}
	if !slices.Equal(gotLines, wantLines) {
		tw.t.Fatalf("request %q\nis answered\n%s\nand by git\n%s", body, strings.Join(gotLines, "\n"),
			strings.Join(wantLines, "\n"))
	}
	if (got.pack == nil) != (want.pack == nil) {
		tw.t.Fatalf("request %q is answered with %d bytes of pack, by git with %d", body, len(got.pack), len(want.pack))
	}
	if want.pack != nil {
		thin := bytes.Contains(body, []byte("thin-pack"))
		got, want := tw.objects(got.pack, thin), tw.objects(want.pack, thin)
		more, less := without(got, want), without(want, got)
		if len(more)+len(less) > 0 {
			has := tw.clientHas(body)
			less = without(tw.withoutTagsOf(less, has), has)
			// The delta bases of a thin pack of git's are not sent, nor, to a shallow client, anything that
			// the edge contains.
			if thin || bytes.Contains(body, []byte("shallow ")) {
				more = without(more, has)
			}
		}
		if len(more)+len(less) > 0 {
			tw.t.Fatalf("request %q is answered with %d objects, by git with %d\ntoo many: %s\ntoo few: %s",
				body, len(got), len(want), tw.describe(more), tw.describe(less))
		}
	}
}

// withoutTagsOf removes from a list the tags of objects that the client has: git sends such a tag
// along if it sends the target once more.
func (tw *twins) withoutTagsOf(ids, has []string) []string {
	tw.t.Helper()
	return slices.DeleteFunc(ids, func(id string) bool {
		if tw.git.Git("cat-file", "-t", id) != "tag" {
			return false
		}
		_, found := slices.BinarySearch(has, tw.git.Git("rev-parse", id+"^{}"))
		return found
	})
}

// clientHas returns the objects that the client of a request has: those reachable from its haves
// and its shallow commits in a history that is cut at the latter. Git sends some of them
// nevertheless, where the search would take it too long.
func (tw *twins) clientHas(body []byte) []string {
	tw.t.Helper()
	var shallow, haves []byte
	in := pktline.NewReader(bytes.NewReader(body))
	for {
		_, line, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if id, ok := bytes.CutPrefix(line, []byte("shallow ")); ok {
			shallow, haves = append(shallow, id...), append(haves, id...)
		}
		if id, ok := bytes.CutPrefix(line, []byte("have ")); ok {
			haves = append(haves, id...)
		}
	}
	file := filepath.Join(tw.t.TempDir(), "shallow")
	if err := os.WriteFile(file, shallow, 0o600); err != nil {
		tw.t.Fatal(err)
	}
	ids := lines(string(tw.git.Input(haves, "--shallow-file", file, "rev-list", "--objects", "--no-object-names",
		"--ignore-missing", "--stdin")))
	slices.Sort(ids)
	return ids
}

// without returns the elements of a that are not in b; both are sorted.
func without(a, b []string) []string {
	var only []string
	for _, id := range a {
		if _, found := slices.BinarySearch(b, id); !found {
			only = append(only, id)
		}
	}
	return only
}

// describe returns the types and names of objects.
func (tw *twins) describe(ids []string) string {
	return string(tw.git.Input([]byte(strings.Join(ids, "\n")), "cat-file", "--batch-check"))
}
