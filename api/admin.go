package api

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/problem"
)

const textPlain = "text/plain; charset=utf-8"

// health are the endpoints without a token.
func (s *Server) health() []*endpoint {
	all := []*endpoint{openEndpoint("/healthz", s.healthz), openEndpoint("/readyz", s.readyz)}
	if !s.private {
		all = append(all, openEndpoint("/metrics", s.metricsText))
	}
	return all
}

// openEndpoint is GET of a path that needs no token.
func openEndpoint(path string, handler Handler) *endpoint {
	return &endpoint{Route: Route{Method: http.MethodGet, Path: path, Handler: handler}, label: path, open: true}
}

func (s *Server) healthz(x exchange.Exchange, _ *auth.Grant) error {
	x.Respond(http.StatusOK, textPlain, []byte("ok\n"))
	return nil
}

func (s *Server) readyz(x exchange.Exchange, _ *auth.Grant) error {
	status, text := s.readiness()
	x.Respond(status, textPlain, []byte(text))
	return nil
}

// readiness reports whether the server should get new requests. It stays ready while only writes
// are refused, since reads work, and while some stored data is damaged.
func (s *Server) readiness() (status int, text string) {
	if s.isLeaving() {
		return http.StatusServiceUnavailable, "draining\n"
	}
	if err := s.ready(); err != nil {
		s.logger.Warn("not ready", "error", err)
		if p := problem.From(err); p.Away {
			return http.StatusServiceUnavailable, "not ready: " + p.Message + "\n"
		}
		return http.StatusServiceUnavailable, "not ready\n"
	}
	var but []string
	if err := s.writable(); err != nil {
		but = append(but, "nothing can be written: "+problem.From(err).Message)
	}
	if err := s.tokens.Following(); err != nil {
		but = append(but, err.Error()+": what was known of them is in force")
	}
	if n := s.damage(); n > 0 {
		but = append(but, fmt.Sprintf("%d stored things were found damaged: the log and packhorse fsck name them", n))
	}
	if len(but) > 0 {
		return http.StatusOK, "ready, but " + strings.Join(but, "; ") + "\n"
	}
	return http.StatusOK, "ready\n"
}

// Readiness returns whether the server should get new requests, and what /readyz answers.
func (s *Server) Readiness() (ready bool, text string) {
	status, text := s.readiness()
	return status == http.StatusOK, strings.TrimSpace(text)
}

func (s *Server) metricsText(x exchange.Exchange, _ *auth.Grant) error {
	families, err := s.registry.Gather()
	if err != nil {
		return err
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, format)
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return err
		}
	}
	x.Respond(http.StatusOK, string(format), text.Bytes())
	return nil
}

// Admin is the handler for a private listener: metrics, health, the console to look at both, and
// the profiles of net/http/pprof.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status, text := s.readiness()
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	})
	for i := range s.console {
		mux.HandleFunc("GET "+s.console[i].Path, consoleHandler(&s.console[i]))
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
