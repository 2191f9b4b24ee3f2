package rest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestUndoBodies asks for undos that are well-formed, and for some that are not.
func TestUndoBodies(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	undo := func(body string) answer {
		return c.call(c.door.Undo, http.MethodPost, "/", strings.NewReader(body))
	}
	for name, test := range map[string]struct {
		body   string
		status int
		says   string
	}{
		"nothing":             {`{}`, 400, "one of to and sequence"},
		"both":                {`{"to":"seq:1","sequence":1}`, 400, "to and sequence exclude each other"},
		"no number":           {`{"to":"seq:x"}`, 400, "to: expected a time"},
		"a negative number":   {`{"to":"seq:-1"}`, 400, "to: expected a time"},
		"seq:0":               {`{"to":"seq:0"}`, 404, "before the repository was created"},
		"no time":             {`{"to":"yesterday"}`, 400, "to: expected a time"},
		"a date":              {`{"to":"2026-01-01"}`, 400, "to: expected a time"},
		"empty":               {`{"to":""}`, 400, "to: expected a time"},
		"sequence 0":          {`{"sequence":0}`, 400, "from 1 on"},
		"a negative sequence": {`{"sequence":-1}`, 400, `field "sequence": expected a number that is not negative, got -1`},
		"a broken sequence":   {`{"sequence":1.5}`, 400, `field "sequence": expected a whole number, got 1.5`},
		"a large sequence":    {`{"sequence":18446744073709551616}`, 400, "expected a number of 64 bits, got 18446744073709551616"},
		"a text for a number": {`{"sequence":"1"}`, 400, "sequence"},
		"a bad pattern":       {`{"to":"seq:1","refs":["a*b"]}`, 400, "refs: "},
		"an empty pattern":    {`{"to":"seq:1","refs":["a",""]}`, 400, "refs: "},
		"an unknown guard":    {`{"to":"seq:1","expected_head_sha":"x"}`, 400, "expected_head_sha"},
		"a position to come":  {`{"to":"seq:99"}`, 400, "99"},
		"a time to come":      {`{"to":"2126-01-01T00:00:00Z"}`, 400, "has not come"},
		"before the creation": {`{"to":"2006-01-01T00:00:00Z"}`, 404, "before the repository was created"},
		"nothing to undo":     {`{"sequence":1}`, 400, "changed no ref"},
		"to come":             {`{"sequence":999}`, 400, "999 was asked for, the last one is 1"},
		"the next one":        {`{"sequence":2}`, 400, "2 was asked for, the last one is 1"},
		"now":                 {`{"to":"seq:1"}`, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &client{t: t, door: c.door, grant: c.grant}
			got := c.call(c.door.Undo, http.MethodPost, "/", strings.NewReader(test.body)).want(test.status)
			if test.says != "" {
				got.refused(test.status, test.says)
			}
		})
	}
	var told struct {
		To   uint64 `json:"to_sequence"`
		Refs []struct{ Ref, Before, After string }
	}
	undo(`{"to":"seq:1"}`).want(http.StatusOK).decode(&told)
	if told.To != 1 || told.Refs == nil || len(told.Refs) != 0 {
		t.Errorf("told %+v", told)
	}
	var missed struct{ Unmatched []string }
	undo(`{"to":"seq:1","refs":["mian","refs/tags/*"],"dry_run":true}`).want(http.StatusOK).decode(&missed)
	if !slices.Equal(missed.Unmatched, []string{"mian", "refs/tags/*"}) {
		t.Errorf("unmatched are %q", missed.Unmatched)
	}
	c.as("nope").call(c.door.Undo, http.MethodPost, "/", strings.NewReader(`{"to":"seq:1"}`)).
		refused(http.StatusNotFound, "nope")
}
