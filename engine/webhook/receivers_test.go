package webhook_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"packhorse/engine/webhook"
)

// delivery is an attempt as a receiver sees it.
type delivery struct {
	url, id string
	at      time.Time
	header  http.Header
	body    string
	event   webhook.Event
	taken   bool
}

// String is short, for messages.
func (d delivery) String() string {
	return fmt.Sprintf("%s %s %.2s taken=%t", d.event.Repository.URL, d.event.Ref, d.event.After, d.taken)
}

// receivers are all receivers, in place of the network.
type receivers struct {
	clock *clock

	mu     sync.Mutex // guards the fields below
	heard  []delivery
	answer func(d *delivery) (status int, err error) // nil takes everything
	block  map[string]chan struct{}                  // by URL: blocks its receiver until closed
}

func (r *receivers) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	d := delivery{
		url: request.URL.String(), id: request.Header.Get("X-Pierre-Delivery"), at: r.clock.Now(), header: request.Header,
		body: string(body),
	}
	if err := json.Unmarshal(body, &d.event); err != nil {
		return nil, err
	}
	r.mu.Lock()
	block := r.block[d.url]
	r.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	status := http.StatusNoContent
	if r.answer != nil {
		status, err = r.answer(&d)
	}
	d.taken = err == nil && status/100 == 2
	r.heard = append(r.heard, d)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: request}, nil
}

// with sets how receivers answer.
func (r *receivers) with(answer func(d *delivery) (int, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receivers) attempts() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

// taken describes the events that were taken, as "ref first-byte-of-after", in their order.
func (r *receivers) taken() []string {
	var taken []string
	for _, d := range r.attempts() {
		if d.taken {
			taken = append(taken, d.event.Ref+" "+d.event.After[:2])
		}
	}
	return taken
}
