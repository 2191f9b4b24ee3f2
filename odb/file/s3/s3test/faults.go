package s3test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
)

// Fault answers a request in the place of the service, or lets it through.
type Fault func(w http.ResponseWriter, r *http.Request, service http.Handler)

// Says returns a fault that answers with an error of the protocol.
func Says(status int, code string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>injected</Message></Error>", code)
	}
}

// Reset cuts the connection before the service hears of the request.
func Reset(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// Lost lets the service do its work and cuts the connection in the place of the answer.
func Lost(_ http.ResponseWriter, r *http.Request, service http.Handler) {
	service.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// Cut sends the header of an answer and half of its body.
func Cut(w http.ResponseWriter, r *http.Request, service http.Handler) {
	answer := httptest.NewRecorder()
	service.ServeHTTP(answer, r)
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
	panic(http.ErrAbortHandler)
}

// Short sends half of the body, and claims that this is all of it.
func Short(w http.ResponseWriter, r *http.Request, service http.Handler) {
	answer := httptest.NewRecorder()
	service.ServeHTTP(answer, r)
	maps.Copy(w.Header(), answer.Header())
	w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()/2))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
}

// DoneWithError lets the service do its work and reports an error under status 200.
func DoneWithError(w http.ResponseWriter, r *http.Request, service http.Handler) {
	service.ServeHTTP(httptest.NewRecorder(), r)
	Says(http.StatusOK, "InternalError")(w, r, service)
}
