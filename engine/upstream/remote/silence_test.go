package remote_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"packhorse/engine/upstream/remote"
	"packhorse/pack/object"
)

// silent serves an advertisement, and to each POST what begin has, and then nothing for as long as
// the client is there.
func silent(t *testing.T, read bool, begin string) *remote.Remote {
	t.Helper()
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query().Get("service")
		switch {
		case asked == "git-receive-pack":
			w.Header().Set("Content-Type", "application/x-git-receive-pack-advertisement")
			_, _ = io.WriteString(w,
				lines("# service=git-receive-pack\n", "0000", idText+" refs/heads/x\x00report-status ofs-delta\n", "0000"))
			return
		case asked != "" && begin != noAdvertisement:
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, service+lines(head, "0000"))
			return
		}
		if read {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		if begin != "" && asked == "" {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			_, _ = io.WriteString(w, begin)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-over: // a server that reads no body does not see its client go
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	return &remote.Remote{URL: parseURL(t, server.URL), Client: client, Limits: remote.Limits{Idle: 50 * time.Millisecond}}
}

// noAdvertisement begins with silence.
const noAdvertisement = "no advertisement"

// TestSilence is a far side that says no more. However slow the machine is, waiting for it ends.
func TestSilence(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		begin string
	}{
		"no advertisement": {noAdvertisement},
		"no head":          {""},
		"no body":          {" "},
		"no pack":          {lines("NAK\n")},
		"half a pack":      {lines("NAK\n", "\x01PACK")},
		"half a packet":    {lines("NAK\n") + "00ff\x01"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := silent(t, true, test.begin)
			ad, err := r.Refs(t.Context())
			if err == nil {
				var stream io.ReadCloser
				if stream, err = r.Fetch(t.Context(), ad, remote.FetchRequest{Wants: []object.ID{{1}}}); err == nil {
					_, err = io.Copy(io.Discard, stream)
					err = errors.Join(err, stream.Close())
				}
			}
			if !errors.Is(err, remote.ErrUnavailable) || !strings.Contains(err.Error(), "silent") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestSilenceOfPush is a far side that takes no more of a pack, and one that takes it and does not
// answer.
func TestSilenceOfPush(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]bool{"takes nothing": false, "does not answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := silent(t, read, "")
			r.Limits.Receive = time.Second // bounds the time to answer; 50 ms are for each part of the pack
			left := 32 << 20
			_, err := r.Push(t.Context(), remote.PushRequest{
				Commands: []remote.Command{{Name: "refs/heads/main", New: object.ID{1}}},
				Pack: func(w io.Writer) error {
					for chunk := make([]byte, 64<<10); left > 0; left -= len(chunk) {
						if _, err := w.Write(chunk); err != nil {
							return err
						}
					}
					return nil
				},
			})
			if !errors.Is(err, remote.ErrUnavailable) {
				t.Errorf("error %v, and %d bytes were not taken", err, left)
			}
		})
	}
}

// TestDrip is a far side that says a byte now and then, for ever.
func TestDrip(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, err := io.WriteString(w, service)
		line := lines(idText + " HEAD\x00caps\n")
		for i := 0; err == nil && r.Context().Err() == nil; i = (i + 1) % len(line) {
			_, err = io.WriteString(w, line[i:i+1])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	t.Cleanup(server.Close)
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	r := &remote.Remote{
		URL: parseURL(t, server.URL), Client: client, Limits: remote.Limits{Answer: 300 * time.Millisecond},
	}
	if _, err := r.Refs(t.Context()); !errors.Is(err, remote.ErrUnavailable) ||
		!strings.Contains(err.Error(), "too long") {
		t.Errorf("error %v", err)
	}
}

// TestDripOfPack is a pack of which a byte comes now and then.
func TestDripOfPack(t *testing.T) {
	t.Parallel()
	for name, caps := range map[string]string{"side-band": "side-band-64k", "bare": "ofs-delta"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				_, _ = io.WriteString(w, service+lines(idText+" refs/heads/main\x00"+caps+"\n", "0000"))
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			_, err := io.WriteString(w, lines("NAK\n"))
			part := lines("\x01P")
			if name == "bare" {
				part = "P"
			}
			for err == nil && r.Context().Err() == nil {
				_, err = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond)
			}
		}))
		client := server.Client()
		r := &remote.Remote{URL: parseURL(t, server.URL), Client: client}
		ad := list(t, r) // without a limit: here the far side is neither silent nor slow
		r.Limits = remote.Limits{Idle: 300 * time.Millisecond, PackRate: 1 << 40}
		stream, err := r.Fetch(t.Context(), ad, remote.FetchRequest{Wants: []object.ID{{1}}})
		if err == nil {
			_, err = io.Copy(io.Discard, stream)
			err = errors.Join(err, stream.Close())
		}
		if !errors.Is(err, remote.ErrUnavailable) { // a machine that sleeps may find it silent, too
			t.Errorf("%s: error %v", name, err)
		}
		client.CloseIdleConnections()
		server.Close()
	}
}

// TestCancelled is the caller's own end, which is no fault of the far side.
func TestCancelled(t *testing.T) {
	t.Parallel()
	r := silent(t, true, lines("NAK\n", "\x01PACK"))
	r.Limits.Idle = time.Hour
	ad := list(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := r.Fetch(ctx, ad, remote.FetchRequest{Wants: []object.ID{{1}}})
	if err != nil {
		t.Fatal(err)
	}
	begin := make([]byte, 4)
	if _, err := io.ReadFull(stream, begin); err != nil || string(begin) != "PACK" {
		t.Fatalf("%q, %v", begin, err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, stream); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	_ = stream.Close() // a body whose request was cancelled may say so again
}
