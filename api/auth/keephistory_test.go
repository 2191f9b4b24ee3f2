package auth_test

import (
	"errors"
	"testing"
	"time"

	"packhorse/api/auth"
)

func TestOrgConfigKeepHistory(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": -1, "keep_history: 36h": 36 * time.Hour, "keep_history: 90d": 90 * 24 * time.Hour, "keep_history: 0d": 0,
		"keep_history: 0s": 0, `keep_history: "1h30m"`: 90 * time.Minute, "keep_history: 99999999d": 100_000 * 24 * time.Hour,
	} {
		config, err := auth.ParseOrgConfig([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := time.Duration(-1)
		if config.KeepHistory != nil {
			got = time.Duration(*config.KeepHistory)
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"-1d", "-1h", "90", "d", "1.5d", "1w", "9d9d", "[]", "99999999999999999999d", "9999999h"} {
		if _, err := auth.ParseOrgConfig([]byte("keep_history: " + text)); !errors.Is(err, auth.ErrOrgConfig) {
			t.Errorf("%s: %v, want ErrOrgConfig", text, err)
		}
	}
}

// TestUnreadOrgConfig tells an org.yaml that was never understood from none.
func TestUnreadOrgConfig(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/org.yaml", []byte("keep_history: {"))
	f.write(t, "plain/k.pem", ed().public)
	f.Reload()
	for org, want := range map[string]bool{"acme": true, "plain": false} {
		if config, ok := f.OrgConfig(org); !ok || config.Unread != want || !config.CustomNotesRefs {
			t.Errorf("%s: %+v, %t", org, config, ok)
		}
	}
	f.write(t, "acme/org.yaml", []byte("keep_history: 2d"))
	f.Reload() // it may be being written
	f.Reload()
	f.write(t, "acme/org.yaml", []byte("keep_history: {"))
	f.Reload()
	f.Reload()
	if config, _ := f.OrgConfig("acme"); config.Unread || config.KeepHistory == nil {
		t.Errorf("the one before is in force: %+v", config)
	}
}
