package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"packhorse/engine/outbound"
)

// The services of a git server.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// request is one request of an operation.
type request struct {
	op      string // as in [Error.Op]
	base    *url.URL
	service string
	version int           // requested protocol version; 0 requests none
	body    []byte        // nil asks for the advertisement
	stream  io.ReadCloser // follows body, and its length is not known; or nil
	long    bool          // the request may take as long as its bytes keep going, and the answer as a push may
}

// gzipMin is the size from which a body is compressed, in bytes, as in git.
const gzipMin = 1 << 10

// send sends a request and returns its answer, which is 200 and of the right type. The caller
// closes it.
//
// A stream is its maker's to close.
func (r *Remote) send(ctx context.Context, q request) (*answer, error) {
	var user, password string
	if r.Authorize != nil {
		var err error
		if user, password, err = r.Authorize(ctx); err != nil {
			return nil, fmt.Errorf("remote: %s: authorize: %w", q.op, err)
		}
	}
	watched, dog := watch(ctx, r.Limits.withDefaults())
	if q.long {
		dog.unhurried()
	}
	a := &answer{parent: ctx, ctx: watched, dog: dog, op: q.op, hide: newSecrets(user, password)}
	if err := r.exchange(a, q, user, password); err != nil {
		dog.end()
		return nil, err
	}
	return a, nil
}

func (r *Remote) exchange(a *answer, q request, user, password string) error {
	request, err := q.build(a.ctx, a.dog)
	if err != nil {
		return a.fail(ErrProtocol, "the URL of the repository: %v", err)
	}
	request.Header.Set("User-Agent", "git/"+r.agent()) // servers look for "git/" to tell git from browsers
	if password != "" {
		request.SetBasicAuth(user, password)
	}
	response, err := r.client().Do(request)
	a.dog.rest()
	if err != nil {
		return a.broken(err)
	}
	a.body, a.url = response.Body, response.Request.URL
	if err := a.check(response, q); err != nil {
		_ = a.body.Close() // nothing of it is of interest
		return err
	}
	return nil
}

// client returns the client with a look at redirects of our own: credentials leave for one origin,
// whichever client is given.
func (r *Remote) client() *http.Client {
	client := *r.Client
	client.Jar = nil
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if !outbound.SameOrigin(next.URL, r.URL) || next.URL.User != nil {
			return &outbound.RefusedError{Target: next.URL.Hostname(), Why: "a redirect to another origin"}
		}
		if r.Client.CheckRedirect != nil {
			return r.Client.CheckRedirect(next, via)
		}
		if len(via) > 3 {
			return &outbound.RefusedError{Target: next.URL.Hostname(), Why: "more than 3 redirects"}
		}
		return nil
	}
	return &client
}

// build makes the HTTP request, without credentials.
func (q request) build(ctx context.Context, dog *watchdog) (*http.Request, error) {
	if q.base.User != nil || q.base.RawQuery != "" || q.base.Fragment != "" {
		return nil, errors.New("it has a user, a query or a fragment")
	}
	if q.body == nil {
		u := q.base.JoinPath("info/refs")
		u.RawQuery = "service=" + q.service
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, errors.New("not a URL")
		}
		request.Header.Set("Accept", "*/*")
		q.setVersion(request)
		return request, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, q.base.JoinPath(q.service).String(), nil)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	request.Header.Set("Content-Type", "application/x-"+q.service+"-request")
	request.Header.Set("Accept", "application/x-"+q.service+"-result")
	q.setVersion(request)
	q.setBody(request, dog)
	return request, nil
}

func (q request) setVersion(request *http.Request) {
	request.Header.Set("Accept-Encoding", "identity")
	if q.version > 0 {
		request.Header.Set("Git-Protocol", "version="+strconv.Itoa(q.version))
	}
}

// setBody gives the request its body: compressed when it is long and we hold all of it, in chunks
// when its length is not known.
func (q request) setBody(request *http.Request, dog *watchdog) {
	body := q.body
	if q.stream != nil {
		request.ContentLength = -1
		request.Body = &watchedBody{&joined{io.MultiReader(bytes.NewReader(body), q.stream), q.stream}, dog, q.long}
		return
	}
	if len(body) >= gzipMin && q.service == uploadPack {
		var small bytes.Buffer
		w := gzip.NewWriter(&small)
		_, _ = w.Write(body) // to memory
		_ = w.Close()
		body = small.Bytes()
		request.Header.Set("Content-Encoding", "gzip")
	}
	request.ContentLength = int64(len(body))
	request.GetBody = func() (io.ReadCloser, error) {
		return &watchedBody{io.NopCloser(bytes.NewReader(body)), dog, q.long}, nil
	}
	request.Body, _ = request.GetBody()
}

// joined reads from one and closes another.
type joined struct {
	io.Reader
	io.Closer
}

// check checks the head of an answer.
func (a *answer) check(response *http.Response, q request) error {
	kind := "result"
	if q.body == nil {
		kind = "advertisement"
	}
	want := "application/x-" + q.service + "-" + kind
	got, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // "" when there is none
	switch {
	case response.StatusCode != http.StatusOK:
		text := fmt.Sprintf("HTTP status %d", response.StatusCode)
		if name := http.StatusText(response.StatusCode); name != "" {
			text += " (" + name + ")"
		}
		return &Error{
			Kind: kindOf(response.StatusCode), Op: a.op, Text: text, Status: response.StatusCode,
			RetryAfter: retryAfter(response),
		}
	case got != want && q.body == nil:
		return a.fail(ErrProtocol, "no smart HTTP git server: content type %.100q", got)
	case got != want:
		return a.fail(ErrProtocol, "content type %.100q, want %q", got, want)
	case response.Uncompressed, encoded(response):
		return a.fail(ErrProtocol, "the answer is compressed, which was not asked for")
	}
	return nil
}

func encoded(response *http.Response) bool {
	encoding := response.Header.Get("Content-Encoding")
	return encoding != "" && !strings.EqualFold(encoding, "identity")
}

// retryAfter reads the header of that name, in seconds or as a date, up to a day.
func retryAfter(response *http.Response) time.Duration {
	value := response.Header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), 24*time.Hour)
}
