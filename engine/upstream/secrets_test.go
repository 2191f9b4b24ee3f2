package upstream_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"packhorse/engine/upstream"
	"packhorse/odb/space"
)

// TestSecretsHide writes a secret in the ways in which an upstream may give it back.
func TestSecretsHide(t *testing.T) {
	t.Parallel()
	const secret = "p&ss/wörd+1234"
	secrets := upstream.Secrets{"", secret}
	for name, form := range map[string]string{
		"as it is":              secret,
		"in a query":            url.QueryEscape(secret),
		"in a path":             url.PathEscape(secret),
		"in hexadecimal":        hex.EncodeToString([]byte(secret)),
		"base64":                base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64 behind a name":  base64.StdEncoding.EncodeToString([]byte("x:" + secret)),
		"base64 behind another": base64.StdEncoding.EncodeToString([]byte("ab:" + secret)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := secrets.Hide("it said \"" + form + "\"\n\xff.")
			if strings.Contains(got, form) || !strings.Contains(got, "***") || !strings.HasPrefix(got, "it said ") ||
				!strings.HasSuffix(got, " ?.") {
				t.Errorf("told as %q", got)
			}
		})
	}
}

// TestSecretsExplain shows errors of the upstream, and hides those of the stores.
func TestSecretsExplain(t *testing.T) {
	t.Parallel()
	secrets := upstream.Secrets{"secret"}
	errOwn := errors.New("of the caller")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"the far side": {
			fmt.Errorf("pull: %w", &upstream.FarError{Err: errors.New("no secret here")}), "pull: no *** here",
		},
		"single refs": {
			&upstream.RefsError{Problems: []upstream.Problem{{Ref: "refs/heads/main", Why: "it has diverged"}}},
			"refs/heads/main it has diverged",
		},
		"room":              {space.ErrNoRoom, space.ErrNoRoom.Error()},
		"the caller's kind": {fmt.Errorf("sync: %w", errOwn), "sync: of the caller"},
		"the stores":        {errors.New("pebble: secret row"), "internal error"},
		"a long one": {
			&upstream.FarError{Err: errors.New(strings.Repeat("ä", 600))}, strings.Repeat("ä", 500) + "...",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := secrets.Explain(test.err, errOwn); got != test.want {
				t.Errorf("told as %q, want %q", got, test.want)
			}
		})
	}
}
