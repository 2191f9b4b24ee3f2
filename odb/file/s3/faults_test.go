package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"packhorse/odb/file"
	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
)

type fault = s3test.Fault

var (
	says          = s3test.Says
	reset         = s3test.Reset
	lost          = s3test.Lost
	cut           = s3test.Cut
	short         = s3test.Short
	doneWithError = s3test.DoneWithError
)

// service is a service behind a proxy that a test can disturb.
type service struct {
	options s3.Options
	count   atomic.Int64 // of requests

	mu   sync.Mutex
	next func(*http.Request) fault // of a request; nil lets it through
}

// disturbed returns a service whose requests go through the faults that disturb sets.
func disturbed(t *testing.T, server *s3test.Server) *service {
	t.Helper()
	s := &service{options: server.Options(t)}
	s.options.Endpoint = server.Proxy(t, func(service http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.count.Add(1)
			s.mu.Lock()
			next := s.next
			s.mu.Unlock()
			if next != nil {
				if f := next(r); f != nil {
					f(w, r, service)
					return
				}
			}
			service.ServeHTTP(w, r)
		})
	})
	return s
}

// disturb chooses the faults of the requests from now on.
func (s *service) disturb(next func(*http.Request) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = next
}

// times returns a choice of f for the first count requests that match.
func times(count int64, f fault, match func(*http.Request) bool) func(*http.Request) fault {
	var left atomic.Int64
	left.Store(count)
	return func(r *http.Request) fault {
		if match(r) && left.Add(-1) >= 0 {
			return f
		}
		return nil
	}
}

func every(*http.Request) bool { return true }

func isGet(r *http.Request) bool { return r.Method == http.MethodGet }

// isComplete matches CompleteMultipartUpload.
func isComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

// isPart matches UploadPart.
func isPart(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("partNumber")
}

// isPut matches PutObject.
func isPut(r *http.Request) bool {
	return r.Method == http.MethodPut && !r.URL.Query().Has("partNumber")
}

// sample returns bytes that do not repeat in any two blocks.
func sample(seed uint64, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(data[:min(size, 1<<20)])
	for at := 1 << 20; at < size; at += 1 << 20 {
		copy(data[at:], data[:1<<20])
		copy(data[at:], fmt.Sprintf("block %d of %d", at, seed))
	}
	return data
}

// write seals a file, and returns the error of Seal.
func write(t *testing.T, store file.Store, name string, data []byte) error {
	t.Helper()
	w, err := store.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	return errors.Join(w.Seal(t.Context()), w.Abort())
}

// read returns the bytes of a file.
func read(t *testing.T, store file.Store, name string) ([]byte, error) {
	t.Helper()
	f, err := store.Open(t.Context(), name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(file.NewSectionReader(t.Context(), f, 0, f.Size()))
	return data, errors.Join(err, f.Close())
}

// TestEmptyFile reads an empty file from services that answer in different ways when they are asked
// for its last bytes.
func TestEmptyFile(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	partial := func(span string, body string) fault {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Range", span)
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, body)
		}
	}
	tests := map[string]struct {
		answer fault
		err    error
	}{
		"the range is refused":  {says(416, "InvalidRange"), nil},
		"the range is left out": {func(http.ResponseWriter, *http.Request, http.Handler) {}, nil},
		"a range of nothing":    {partial("bytes 0--1/0", ""), nil},
		"nothing of something":  {partial("bytes 0--1/9", ""), file.ErrUnavailable},
		"nothing, and a body":   {partial("bytes 0--1/0", "x"), file.ErrUnavailable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := disturbed(t, server)
			store := s3test.Open(t, service.options)
			if err := write(t, store, "empty", nil); err != nil {
				t.Fatal(err)
			}
			service.disturb(times(99, test.answer, func(r *http.Request) bool { return isGet(r) && r.Header.Get("Range") != "" }))
			if data, err := read(t, store, "empty"); len(data) != 0 || !errors.Is(err, test.err) {
				t.Errorf("%q, %v", data, err)
			}
		})
	}
}

// TestFaults disturbs requests a few times: every file is stored and read all the same.
func TestFaults(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	tests := map[string]struct {
		write, read func(*http.Request) fault
	}{
		"slow down":               {times(3, says(503, "SlowDown"), every), times(3, says(503, "SlowDown"), every)},
		"internal error":          {times(3, says(500, "InternalError"), every), times(3, says(500, "InternalError"), every)},
		"too many requests":       {times(2, says(429, "TooManyRequests"), every), times(2, says(429, ""), every)},
		"reset with parts":        {times(3, reset, every), times(3, reset, every)},
		"damage on the way":       {times(2, says(400, "BadDigest"), every), nil},
		"lost answers to puts":    {times(2, lost, isPut), nil},
		"lost answers to parts":   {times(2, lost, isPart), nil},
		"lost completion":         {times(1, lost, isComplete), nil},
		"error under 200":         {times(2, says(200, "InternalError"), isComplete), nil},
		"done, error under 200":   {times(1, doneWithError, isComplete), nil},
		"empty 200":               {times(1, func(http.ResponseWriter, *http.Request, http.Handler) {}, isComplete), nil},
		"no conditions":           {times(100, says(501, "NotImplemented"), conditional), nil},
		"conflict of conditions":  {times(2, says(409, "ConditionalRequestConflict"), conditional), nil},
		"reset within bodies":     {nil, times(5, cut, isGet)},
		"bodies cut short":        {nil, times(5, short, isGet)},
		"wrong range":             {nil, times(3, wrongRange("bytes 1-2/3"), isGet)},
		"no range":                {nil, times(3, wrongRange(""), isGet)},
		"an error page, no cause": {nil, times(3, says(502, ""), isGet)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := disturbed(t, server)
			store := s3test.Open(t, service.options)
			sizes := []int{0, 100, 300_000, 16<<20 + 1} // the last one in parts
			if !strings.Contains(name, "parts") && !strings.Contains(name, "complet") && !strings.Contains(name, "200") {
				sizes = sizes[:3]
			}
			for i, size := range sizes {
				name, data := fmt.Sprintf("f%d", i), sample(uint64(i), size)
				service.disturb(test.write)
				if err := write(t, store, name, data); err != nil {
					t.Fatalf("%d bytes: %v", size, err)
				}
				service.disturb(test.read)
				if got, err := read(t, store, name); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes: read %d, %v", size, len(got), err)
				}
			}
		})
	}
}

// damaged changes the last byte of an upload.
func damaged(w http.ResponseWriter, r *http.Request, service http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if len(body) > 0 {
		body[len(body)-1] ^= 1
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	service.ServeHTTP(w, r)
}

// TestChecksums damages uploads on their way: the service notices it by what the request has of its
// content, which over TLS is something else.
func TestChecksums(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			service := disturbed(t, server)
			service.options.Endpoint = strings.Replace(service.options.Endpoint, "http", scheme, 1)
			store := s3test.Open(t, service.options)
			s3.Through(store, func(next s3.RoundTrip) s3.RoundTrip {
				return func(r *http.Request) (*http.Response, error) {
					r.URL.Scheme = "http" // there is no TLS on the way to the test's service
					return next(r)
				}
			})
			if without, err := store.Probe(t.Context(), "a.probe"); without != "" || err != nil {
				t.Errorf("probe: %q, %v", without, err)
			}
			for i, size := range []int{100, 16<<20 + 1} {
				var sums, hashes atomic.Int64
				damage := times(2, damaged, every)
				service.disturb(func(r *http.Request) fault {
					if r.Method != http.MethodPut {
						return nil
					}
					if r.Header.Get("Content-Md5") != "" {
						sums.Add(1)
					}
					if r.Header.Get("X-Amz-Content-Sha256") != "UNSIGNED-PAYLOAD" {
						hashes.Add(1)
					}
					return damage(r)
				})
				name, data := fmt.Sprintf("f%d", i), sample(uint64(i), size)
				if err := write(t, store, name, data); err != nil {
					t.Fatalf("%d bytes: %v", size, err)
				}
				if got, err := read(t, store, name); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes: read %d, %v", size, len(got), err)
				}
				if (sums.Load() == 0) != (scheme == "http") || (hashes.Load() == 0) != (scheme == "https") {
					t.Errorf("%d requests with a sum, %d with a hash", sums.Load(), hashes.Load())
				}
			}
		})
	}
}

func conditional(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" }

// wrongRange answers with a range that was not asked for.
func wrongRange(span string) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
		answer := httptest.NewRecorder()
		service.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.Header().Del("Content-Range")
		if span != "" {
			w.Header().Set("Content-Range", span)
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
}

// TestUnavailable checks the errors of a service that is down: nobody takes them for a missing file
// or for the end of one.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	for name, down := range map[string]fault{
		"slow down": says(503, "SlowDown"), "reset": reset, "cut": cut, "lost": lost, "refused": says(403, "AccessDenied"),
		"no bucket": says(404, "NoSuchBucket"), "page of a proxy": says(404, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := disturbed(t, server)
			store := s3test.Open(t, service.options)
			if err := write(t, store, "there", sample(1, 100_000)); err != nil {
				t.Fatal(err)
			}
			f, err := store.Open(t.Context(), "there")
			if err != nil {
				t.Fatal(err)
			}
			service.disturb(func(r *http.Request) fault {
				if r.Method == http.MethodDelete && name == "lost" {
					return nil // so that it is known what is left
				}
				return down
			})
			_, openErr := store.Open(t.Context(), "there")
			_, readErr := f.ReadAt(t.Context(), make([]byte, 100), 0)
			_, probeErr := store.Probe(t.Context(), "a.probe")
			_, claimErr := store.Claim(t.Context(), "id", "")
			errs := map[string]error{
				"open": openErr, "read": readErr, "probe": probeErr, "claim": claimErr,
				"seal": write(t, store, "new", sample(2, 100)), "seal parts": write(t, store, "parts", sample(2, 17<<20)),
			}
			if name != "lost" {
				errs["delete"] = store.Delete(t.Context(), "there")
			}
			for _, err := range store.List(t.Context()) {
				errs["list"] = err
			}
			for call, err := range errs {
				if name == "cut" && (call == "delete" || call == "seal") && err == nil {
					continue // there is no body to be cut
				}
				if !errors.Is(err, file.ErrUnavailable) || errors.Is(err, file.ErrNotFound) || errors.Is(err, io.EOF) ||
					errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v", call, err)
				}
			}
			service.disturb(nil)
			for call, name := range map[string]string{"seal": "new", "seal parts": "parts"} {
				if _, err := store.Open(t.Context(), name); errs[call] != nil && !errors.Is(err, file.ErrNotFound) {
					t.Errorf("%s failed, and the file is found: %v", call, err)
				}
			}
			// A delete whose answer has no body succeeds where only bodies are cut.
			if n, err := f.ReadAt(t.Context(), make([]byte, 100), 0); name != "cut" && (n != 100 || err != nil) {
				t.Errorf("after it has come back: %d, %v", n, err)
			}
		})
	}
}

// TestStorm disturbs requests at random. What Seal has acknowledged is read as it was written, and
// what it has refused is not found.
func TestStorm(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	faults := []fault{
		says(503, "SlowDown"), says(500, "InternalError"), reset, lost, cut, says(200, "InternalError"), doneWithError,
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			service := disturbed(t, server)
			store := s3test.Open(t, service.options)
			random := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex // guards random
			refused := 0
			for i := range 25 {
				size := []int{0, 1000, 300_000, 17 << 20}[min(i%10, 3)%(1+min(i/8, 3))]
				name, data := fmt.Sprintf("f%d", i), sample(uint64(i), size)
				often := []float64{0.3, 0.9}[i%2]
				service.disturb(func(r *http.Request) fault {
					mu.Lock()
					defer mu.Unlock()
					if r.Method == http.MethodDelete || random.Float64() > often {
						return nil
					}
					f := faults[random.IntN(len(faults))]
					if r.Method != http.MethodPost && r.Method != http.MethodGet {
						f = faults[random.IntN(4)] // an error under 200 is for those whose answer has a body
					}
					return f
				})
				err := write(t, store, name, data)
				service.disturb(nil)
				got, readErr := read(t, store, name)
				switch {
				case err == nil && (readErr != nil || !bytes.Equal(got, data)):
					t.Errorf("%s of %d bytes is sealed, and reads %d, %v", name, size, len(got), readErr)
				case err != nil && !errors.Is(readErr, file.ErrNotFound):
					t.Errorf("%s of %d bytes is refused (%v), and found: %v", name, size, err, readErr)
				case err != nil:
					refused++
				}
			}
			if refused == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

// TestCancel ends calls that wait for a service which does not answer.
func TestCancel(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	service := disturbed(t, server)
	store := s3test.Open(t, service.options)
	if err := write(t, store, "there", sample(1, 100_000)); err != nil {
		t.Fatal(err)
	}
	f, err := store.Open(t.Context(), "there")
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(ctx context.Context) error{
		"open":   func(ctx context.Context) error { _, err := store.Open(ctx, "there"); return err },
		"read":   func(ctx context.Context) error { _, err := f.ReadAt(ctx, make([]byte, 10), 0); return err },
		"delete": func(ctx context.Context) error { return store.Delete(ctx, "there") },
		"seal": func(ctx context.Context) error {
			w, err := store.Create(ctx, "new")
			if err != nil {
				return err
			}
			return errors.Join(w.Seal(ctx), w.Abort())
		},
	}
	for name, call := range calls {
		ctx, cancel := context.WithCancel(t.Context())
		service.disturb(func(*http.Request) fault {
			if ctx.Err() != nil {
				return nil // what tidies up
			}
			return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
				cancel()
				<-r.Context().Done()
			}
		})
		if err := call(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, file.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	service.disturb(nil)
	if _, err := store.Open(t.Context(), "new"); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("a file whose Seal was canceled: %v", err)
	}
}

// TestLaggingList hides everything from listings: nothing but List itself notices.
func TestLaggingList(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	service := disturbed(t, server)
	store := s3test.Open(t, service.options)
	service.disturb(func(r *http.Request) fault {
		if !r.URL.Query().Has("list-type") {
			return nil
		}
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			_, _ = io.WriteString(w, "<?xml version=\"1.0\"?><ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>")
		}
	})
	if _, err := store.Claim(t.Context(), "id", ""); err != nil {
		t.Error(err)
	}
	if without, err := store.Probe(t.Context(), "a.probe"); without != "listings" || err != nil {
		t.Errorf("probe: %q, %v", without, err)
	}
	for name := range strings.FieldsSeq("a b c") {
		if err := write(t, store, name, []byte(name)); err != nil {
			t.Error(err)
		}
		if got, err := read(t, store, name); string(got) != name || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for info, err := range store.List(t.Context()) {
		t.Errorf("%v, %v", info, err)
	}
	if err := store.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := store.Open(t.Context(), "a"); !errors.Is(err, file.ErrNotFound) {
		t.Error(err)
	}
}
