package s3

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/odb/file"
)

// RoundTrip sends a request.
type RoundTrip func(r *http.Request) (*http.Response, error)

// Do implements [s3.HTTPClient].
func (f RoundTrip) Do(r *http.Request) (*http.Response, error) { return f(r) }

// Through has all requests of a store go through what wrap returns.
func Through(s *Store, wrap func(next RoundTrip) RoundTrip) {
	options := s.client.Options()
	options.HTTPClient = wrap(options.HTTPClient.Do)
	s.client = s3.New(options)
}

// Behind returns how many goroutines count that send parts of a file, when they have ended.
func Behind(w file.Writer) int {
	writer := w.(*writer)
	writer.sending.Wait()
	return writer.behind
}

// Key returns the key of a file.
func Key(s *Store, name string) string { return s.key(name) }

// What the tests tell apart and callers only print.
var (
	ErrLocation = errLocation
	ErrForeign  = errForeign
	ErrBare     = errBare
	ErrVersion  = errVersion
	ErrProbe    = errProbe
)
