package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"strings"
	"time"

	"packhorse/engine/outbound"
	"packhorse/pack/pktline"
)

// answer is the body of an answer as it arrives: with the watchdog beside it, and errors in our
// kinds. It is bounded by [answer.limit].
type answer struct {
	parent context.Context // the caller's: what ends it is no fault of the far side
	ctx    context.Context // the request's
	body   io.ReadCloser
	dog    *watchdog
	op     string
	hide   secrets
	url    *url.URL      // that was answered, after redirects
	waited time.Duration // for the far side, since it was last taken
	left   int64         // bytes that may still come; set by limit
	what   string        // that is limited
}

// limit bounds the bytes read from now on, in bytes.
func (a *answer) limit(bytes int64, what string) { a.left, a.what = bytes, what }

// unlimited lifts the bound where the content of the answer is counted.
func (a *answer) unlimited() { a.limit(math.MaxInt64, "") }

// takeWaited returns the time waited for the far side since the last call.
func (a *answer) takeWaited() time.Duration {
	waited := a.waited
	a.waited = 0
	return waited
}

// Read reads the body. Errors: io.EOF, [*Error], and those of the caller's context.
func (a *answer) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, a.fail(ErrLimit, "more than the %s may have", a.what)
	}
	begun := time.Now()
	a.dog.run()
	n, err := a.body.Read(p[:min(int64(len(p)), a.left)])
	a.dog.rest()
	a.waited += time.Since(begun)
	a.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = a.broken(err)
	}
	return n, err
}

// close ends the exchange. It does not wait for unread data.
func (a *answer) close() error {
	defer a.dog.end()
	return a.body.Close()
}

// finish reads what little may follow the last packet, so that the connection can be used again,
// and closes.
func (a *answer) finish() error {
	a.limit(finishMax, "end of an answer")
	_, err := io.Copy(io.Discard, a)
	return errors.Join(err, a.close())
}

// finishMax bounds the bytes after the last packet.
const finishMax = 4 << 10

// fail makes an error of a kind. Texts of the far side among the arguments are cleaned of secrets.
func (a *answer) fail(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Op: a.op, Text: a.hide.clean(fmt.Sprintf(format, args...))}
}

// broken makes an error of one of net/http: the caller's own end, a refusal, or a far side that is
// not available.
func (a *answer) broken(err error) error {
	if cause := context.Cause(a.parent); cause != nil {
		return fmt.Errorf("remote: %s: %w", a.op, cause)
	}
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return fmt.Errorf("remote: %s: %w", a.op, refused)
	}
	if cause := context.Cause(a.ctx); cause != nil {
		return a.fail(ErrUnavailable, "%v", cause)
	}
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		refused := &outbound.RefusedError{Target: unknown.Name, Why: "no such host", Resolved: true}
		return fmt.Errorf("remote: %s: %w", a.op, refused)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok { // it quotes the URL, which may be a redirect's
		err = outer.Err
	}
	return a.fail(ErrUnavailable, "%v", err)
}

// lineError makes an error of reading a packet.
func (a *answer) lineError(err error) error {
	switch {
	case errors.Is(err, pktline.ErrLength), errors.Is(err, pktline.ErrTooLong), errors.Is(err, io.ErrNoProgress):
		return a.fail(ErrProtocol, "%v", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return a.fail(ErrUnavailable, "the answer ended early")
	}
	return err
}

// text returns the words of a packet, or the error that it reports.
func (a *answer) text(payload []byte) (string, error) {
	text := strings.TrimSuffix(string(payload), "\n")
	if reported, ok := strings.CutPrefix(text, "ERR "); ok {
		return "", a.fail(ErrRejected, "%s", reported)
	}
	return text, nil
}

// next reads a packet and the words in it, which are "" for a packet without data. An error that
// the packet reports is an error.
func (a *answer) next(lines *pktline.Reader) (pktline.Kind, string, error) {
	kind, payload, err := lines.Read()
	if err != nil {
		return kind, "", a.lineError(err)
	}
	text, err := a.text(payload)
	return kind, text, err
}
