package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/engine/upstream/remote"
	"packhorse/pack/object"
	"packhorse/refs"
)

const farCapsV2 = "000eversion 2\n000cls-refs\n000afetch\n0000"

// FuzzRemote holds that whatever a far side answers, to a listing, a fetch or a push, ends in a
// result that can be relied on or in an error of a known kind, in bounded memory, and is understood
// in the same way however it arrives.
func FuzzRemote(f *testing.F) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	const caps = "\x00multi_ack_detailed no-done side-band-64k ofs-delta symref=HEAD:refs/heads/main\n"
	for _, seed := range []string{
		"001e# service=git-upload-pack\n0000" + line(id+" HEAD"+caps) + line(id+" refs/tags/v\n") +
			line(id+" refs/tags/v^{}\n") + "0000",
		"001e# service=git-upload-pack\n0000000eversion 1\n" + line(strings.Repeat("0", 40)+" capabilities^{}"+caps) + "0000",
		farCapsV2, line("ERR no\n"),
	} {
		f.Add(uint8(0), []byte(seed))
	}
	f.Add(uint8(1),
		[]byte(line("unborn HEAD symref-target:refs/heads/main\n")+line(id+" refs/tags/v peeled:"+id+"\n")+"0000"))
	f.Add(uint8(2), []byte(line("acknowledgments\n")+line("ACK "+id+"\n")+line("ready\n")+"0001"+line("packfile\n")+
		line("\x02hi")+line("\x01PACK")+"0000"))
	f.Add(uint8(3),
		[]byte(line("ACK "+id+" common\n")+line("ACK "+id+" ready\n")+line("NAK\n")+line("ACK "+id+"\n")+line("\x01PACK")+
			"0000"))
	report := line("unpack ok\n") + line("ng refs/heads/main no\n") + "0000"
	f.Add(uint8(4), []byte(line("\x01"+report)+"0000"))
	f.Add(uint8(5), []byte(report))
	f.Fuzz(func(t *testing.T, mode uint8, data []byte) {
		whole, err := askFarSide(t, mode%6, bytes.NewReader(data))
		slow, slowErr := askFarSide(t, mode%6, iotest.OneByteReader(bytes.NewReader(data)))
		if whole != slow || fmt.Sprint(err) != fmt.Sprint(slowErr) {
			t.Fatalf("at once %q %v, in bytes %q %v", whole, err, slow, slowErr)
		}
	})
}

// askFarSide gives data as the last answer of a conversation, and returns the outcome.
func askFarSide(t *testing.T, mode uint8, data io.Reader) (result string, err error) {
	t.Helper()
	const v0 = "001e# service=git-upload-pack\n0000" +
		"00710123456789abcdef0123456789abcdef01234567 refs/heads/main\x00multi_ack_detailed no-done side-band-64k ofs-delta \n0000"
	receive := func(caps string) string {
		return "001f# service=git-receive-pack\n0000" + fmt.Sprintf("%04x", 4+40+17+len(caps)) + strings.Repeat("0", 40) +
			" capabilities^{}\x00" + caps + "0000"
	}
	conversation := [][]string{
		{},
		{farCapsV2},
		{farCapsV2, "0000"},
		{v0},
		{receive("report-status ofs-delta side-band-64k")},
		{receive("report-status ofs-delta")},
	}[mode]
	r := &remote.Remote{
		URL: &url.URL{
			Scheme: "https", Host: "far.test",
		}, Client: &http.Client{Transport: &scripted{answers: conversation, last: data}},
		Limits: remote.Limits{Refs: 20, AdvertisementBytes: 4 << 10, PackBytes: 1 << 10, ProgressBytes: 1 << 10},
	}
	defer func() {
		if _, ok := errors.AsType[*remote.Error](err); err != nil && !ok {
			t.Errorf("an error of no kind: %v", err)
		}
	}()
	if mode >= 4 {
		results, err := r.Push(t.Context(), remote.PushRequest{
			Commands: []remote.Command{{Name: "refs/heads/main", New: object.ID{1}}}, Pack: func(io.Writer) error { return nil },
		})
		if err == nil && len(results) != 1 {
			t.Errorf("%d results of one command", len(results))
		}
		return fmt.Sprint(results), err
	}
	ad, err := r.Refs(t.Context())
	if err != nil {
		return "", err
	}
	for i, ref := range ad.Refs {
		if refs.CheckName(ref.Name) != nil || ref.ID.IsZero() || i > 0 && ad.Refs[i-1].Name >= ref.Name {
			t.Errorf("ref %d of %d: %v", i, len(ad.Refs), ref)
		}
	}
	if mode < 2 {
		return fmt.Sprint(ad.Refs, ad.Head, ad.Skipped), nil
	}
	stream, err := r.Fetch(t.Context(), ad, remote.FetchRequest{Wants: []object.ID{{1}}, Haves: &oneHave{}})
	if err != nil {
		return "", err
	}
	pack, err := io.ReadAll(stream)
	err = errors.Join(err, stream.Close())
	if len(pack) > 1<<10 {
		t.Errorf("a pack of %d bytes", len(pack))
	}
	if err != nil {
		failed, _ := errors.AsType[*remote.Error](err)
		return "", failed
	}
	return string(pack), nil
}

// scripted answers without a network: the elements of answers, then last, then nothing.
type scripted struct {
	answers []string
	last    io.Reader
}

// RoundTrip gives the next answer.
func (s *scripted) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return nil, err
		}
	}
	body := s.last
	if len(s.answers) > 0 {
		body = strings.NewReader(s.answers[0])
		s.answers = s.answers[1:]
	}
	kind := "application/x-" + request.URL.Query().Get("service") + "-advertisement"
	if request.Method == http.MethodPost {
		kind = strings.Replace(request.Header.Get("Content-Type"), "-request", "-result", 1)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Request: request, ContentLength: -1,
		Body: io.NopCloser(body),
	}, nil
}

// oneHave is a repository with one commit.
type oneHave struct{ told bool }

// Next returns the commit once.
func (h *oneHave) Next(context.Context, int) ([]object.ID, error) {
	if h.told {
		return nil, nil
	}
	h.told = true
	id, err := object.ParseID("0123456789abcdef0123456789abcdef01234567")
	return []object.ID{id}, err
}

// Common is of no interest here.
func (*oneHave) Common(object.ID) {}
