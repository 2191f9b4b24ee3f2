package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"packhorse/api/code"
	"packhorse/api/problem"
)

// starting answers while the stores are opened, which takes as long as the replay of the log after
// a crash: the process is alive, and not ready. It passes its listener on.
type starting struct {
	listener *net.TCPListener
	http     *http.Server
	ended    chan error
}

// startingRetry is the time after which a client may try again.
const startingRetry = time.Second

// answerStarting answers on l until stop. config makes it speak TLS.
func answerStarting(l *net.TCPListener, config *tls.Config) *starting {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "starting", http.StatusServiceUnavailable)
	})
	refusal := problem.Problem{
		Status: http.StatusServiceUnavailable, Code: code.Unavailable, Message: "the server is starting",
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", problem.ContentType)
		w.Header().Set("Retry-After", fmt.Sprint(int(startingRetry/time.Second)))
		w.WriteHeader(refusal.Status)
		_, _ = w.Write(refusal.JSON()) // else the client has gone
	})
	s := &starting{listener: l, ended: make(chan error, 1), http: &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 only
	}}
	s.http.SetKeepAlivesEnabled(false) // the next request is for the server itself
	var from net.Listener = kept{l}
	if config != nil {
		from = tls.NewListener(from, config)
	}
	go func() { s.ended <- s.http.Serve(from) }() // bare: it accepts, and has no work of its own
	return s
}

// stop ends the answering, and leaves the listener to its next user. Connections that have not sent
// a request are cut.
func (s *starting) stop() error {
	drain, cancel := context.WithTimeout(context.Background(), startingRetry)
	defer cancel()
	if s.http.Shutdown(drain) != nil {
		_ = s.http.Close()
	}
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return s.listener.SetDeadline(time.Time{})
}

// kept is a listener that ends an Accept when it is closed, and stays open.
type kept struct{ *net.TCPListener }

func (k kept) Close() error { return k.SetDeadline(time.Now()) }
