package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"packhorse/odb/span"
)

// The headers of a delivery.
const (
	headerEvent     = "X-Pierre-Event"
	headerSignature = "X-Pierre-Signature"
	headerDelivery  = "X-Pierre-Delivery" // see deliveryID
)

// answerBytesMax bounds the part of an answer that is read so that the connection can be reused.
// Only the status counts.
const answerBytesMax = 64 << 10

// statusError says that a receiver rejected an event: it answered with another status than 2xx. No
// status is final, not even 410: operators remove a receiver from the configuration.
type statusError struct{ Status int }

// Error names the status.
func (e *statusError) Error() string {
	return fmt.Sprintf("the receiver answered %d %s", e.Status, http.StatusText(e.Status))
}

// send makes one attempt to deliver an event. Errors: [statusError]; those of the client, without
// the URL, which may hold a secret.
func (d *Deliverer) send(ctx context.Context, hook Hook, it *item) (err error) {
	var cause span.Link
	if d.Cause != nil {
		cause = d.Cause(it.repo, it.at.Sequence)
	}
	ctx, s := span.Begin(span.With(ctx, d.Tracer, cause), "webhook delivery")
	if s != nil {
		s.Text("packhorse.repository.id", it.repo.String())
		s.Count("packhorse.attempt", int64(it.Attempts)+1)
		defer func() { s.End(err) }()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, fmt.Errorf("no answer within %v", d.Timeout))
	defer cancel()
	body, err := it.Event.encode()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is malformed")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", d.Agent)
	request.Header.Set(headerEvent, "push")
	request.Header.Set(headerSignature, Sign(hook.Secret, d.Clock.Now(), body))
	request.Header.Set(headerDelivery, deliveryID(it.repo, it.at))
	// Not sent: it lets the client try again at once when the receiver has closed the connection that
	// it kept.
	request.Header["Idempotency-Key"] = nil
	response, err := d.Client.Do(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if about, ok := errors.AsType[*url.Error](err); ok {
			err = about.Err
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()
	// The status has been said; a body that breaks off takes nothing back.
	_, _ = io.CopyN(io.Discard, response.Body, answerBytesMax)
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return &statusError{Status: response.StatusCode}
	}
	return nil
}
