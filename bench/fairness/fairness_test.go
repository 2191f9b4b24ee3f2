package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
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

// TestMeasurement sums up two rounds.
func TestMeasurement(t *testing.T) {
	t.Parallel()
	var m measurement
	for _, round := range []struct{ alone, beside int }{{1000, 300}, {3000, 1500}} {
		alone := sample{count: round.alone, took: time.Second, cpu: 2 * time.Second}
		beside := sample{count: round.beside, took: time.Second, cpu: time.Second, times: []time.Duration{1}}
		m.addRound(alone, beside)
	}
	if m.alone.goodput() != 2000 || m.alone.cores() != 2 || len(m.beside.times) != 2 {
		t.Errorf("alone %v/s with %v cores, %d times", m.alone.goodput(), m.alone.cores(), len(m.beside.times))
	}
	for _, got := range []struct {
		name        string
		value, want float64
	}{
		{"of half", m.ofHalf(), 0.9}, // 900 of 1000
		{"of half the CPU time", m.ofHalfCPU(), 1.8},
		{"uncertainty", m.uncertainty(), 0.2}, // of 0.6 and 1.0
	} {
		if math.Abs(got.value-got.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", got.name, got.value, got.want)
		}
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

// TestExchange reads answers as servers send them.
func TestExchange(t *testing.T) {
	t.Parallel()
	const ended = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	for _, test := range []struct {
		name, answer string
		ok, keep     bool
	}{
		{"whole", "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", true, true},
		{"empty", "HTTP/1.1 204 No Content\r\n\r\n", true, true},
		{
			"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
				"2\r\nok\r\nA\r\n0123456789\r\n0\r\nX-Trailer: t\r\n\r\n", true, true,
		},
		{"last of the connection", ended, true, false},
		{"refusal", "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy", false, true},
		{"cut body", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", false, false},
		{"cut chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", false, false},
		{"no size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", false, false},
		{"no length", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", false, false},
		{"no status", "HTTP/1.1 OK\r\n\r\n", false, false},
		{"nothing", "", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			near, far := net.Pipe()
			go func() {
				_, _ = far.Read(make([]byte, 10))
				_, _ = io.WriteString(far, test.answer)
				_ = far.Close()
			}()
			c := client{conn: near, in: bufio.NewReader(near)}
			defer c.close()
			ok, keep := c.exchange([]byte("request"))
			if ok != test.ok || keep != test.keep {
				t.Errorf("carried out: %t, connection kept: %t; want %t, %t", ok, keep, test.ok, test.keep)
			}
			if keep && c.in.Buffered() != 0 {
				t.Errorf("%d bytes are left of the answer", c.in.Buffered())
			}
		})
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
