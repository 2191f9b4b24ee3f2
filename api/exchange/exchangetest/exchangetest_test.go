package exchangetest_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"packhorse/api/exchange/exchangetest"
)

// Answers that would be cut on a real connection, and resources that would leak, fail a front
// door's test.
func TestFinish(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	write := func(text string, err error) func(context.Context, io.Writer) error {
		return func(_ context.Context, w io.Writer) error {
			_, _ = io.WriteString(w, text)
			return err
		}
	}
	tests := map[string]struct {
		method string
		act    func(x *exchangetest.Exchange)
		body   string
		failed string // part of the error; "" for none
	}{
		"whole":  {"GET", func(x *exchangetest.Exchange) { x.Respond(200, "a/b", []byte("hello")) }, "hello", ""},
		"stream": {"GET", func(x *exchangetest.Exchange) { x.Stream(200, "a/b", write("hello", nil)) }, "hello", ""},
		"sized":  {"GET", func(x *exchangetest.Exchange) { x.StreamSized(200, "a/b", 5, write("hello", nil)) }, "hello", ""},
		"HEAD":   {"HEAD", func(x *exchangetest.Exchange) { x.StreamSized(200, "a/b", 5, write("hello", boom)) }, "", ""},
		"the last one": {"GET", func(x *exchangetest.Exchange) {
			x.Stream(200, "a/b", write("no", boom))
			x.Respond(500, "a/b", []byte("yes"))
		}, "yes", ""},
		"no answer": {"GET", func(*exchangetest.Exchange) {}, "", "did not answer"},
		"failed": {
			"GET", func(x *exchangetest.Exchange) { x.Stream(200, "a/b", write("half", boom)) }, "half", "boom",
		},
		"wrong size": {
			"GET", func(x *exchangetest.Exchange) { x.StreamSized(200, "a/b", 6, write("hello", nil)) }, "hello", "6 announced",
		},
		"slot kept": {
			"GET", func(x *exchangetest.Exchange) { x.Respond(200, "", nil); _, _ = x.Slot(x.Context()) }, "", "1 slots",
		},
		"slot given back": {
			"GET", func(x *exchangetest.Exchange) { x.Respond(200, "", nil); f, _ := x.Slot(x.Context()); f(); f() }, "", "",
		},
		"memory kept": {
			"GET", func(x *exchangetest.Exchange) { x.Respond(200, "", nil); _, _ = x.Reserve(x.Context(), 7) }, "", "7 bytes",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := exchangetest.New(test.method, "/x?a=b", nil)
			test.act(x)
			answer, err := x.Finish()
			if answer != nil && string(answer.Body) != test.body {
				t.Errorf("body %q, want %q", answer.Body, test.body)
			}
			if (err == nil) != (test.failed == "") || err != nil && !strings.Contains(err.Error(), test.failed) {
				t.Errorf("error %v, want %q", err, test.failed)
			}
		})
	}
}
