package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestWriteHistory(t *testing.T) {
	t.Parallel()
	var first, again bytes.Buffer
	paths := writeHistory(&first)
	writeHistory(&again)
	if len(paths) != fileCount || !bytes.Equal(first.Bytes(), again.Bytes()) {
		t.Errorf("%d files; the same history: %t", len(paths), bytes.Equal(first.Bytes(), again.Bytes()))
	}
}

func TestMedians(t *testing.T) {
	t.Parallel()
	if got := medians([]figures{{3, 1}, {1, 9}, {2, 5}}); got != (figures{2, 5}) {
		t.Errorf("the medians are %v", got)
	}
}

// TestRun checks that the clients count answers, keep their connections, and treat one that ends as
// a refusal.
func TestRun(t *testing.T) {
	t.Parallel()
	conns := make(chan net.Conn, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Query().Get("path"), "refused"):
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasSuffix(r.URL.Query().Get("path"), "cut"):
			panic(http.ErrAbortHandler)
		}
	}))
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns <- c
		}
	}
	server.Start()
	defer server.Close()
	o := order{
		Address: server.Listener.Addr().String(),
		Kind:    "reads",
		Clients: 1,
		Files:   []string{"good", "refused", "cut", "good"},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done, refused int
	err := o.run(ctx, func(_ time.Duration, ok bool) {
		if ok {
			done++
		} else {
			refused++
		}
		if done+refused == 8 {
			cancel()
		}
	})
	if err != nil || done+refused != 8 || done == 0 || refused == 0 {
		t.Errorf("%d done, %d refused, %v", done, refused, err)
	}
	if len(conns) > 4 {
		t.Errorf("%d connections for 8 requests", len(conns))
	}
}

// TestAttack gives an aggressor its order, and ends it.
func TestAttack(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	text, err := json.Marshal(order{
		Address: server.Listener.Addr().String(), Kind: "reads", Clients: 2, Files: []string{"f"},
	})
	if err != nil {
		t.Fatal(err)
	}
	in, feed := io.Pipe()
	told, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- attack(t.Context(), in, out) }()
	if _, err := feed.Write(text); err != nil {
		t.Fatal(err)
	}
	if _, err := told.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
