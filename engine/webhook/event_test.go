package webhook_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/engine/webhook"
)

func TestSign(t *testing.T) {
	t.Parallel()
	// The hex digits are what openssl dgst -sha256 -hmac SECRET says to "1700000000." and the body.
	tests := map[string]struct{ secret, body, want string }{
		"in ASCII":          {"key", "{}", "9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae"},
		"a secret in UTF-8": {"schl\u00fcssel", "{}", "929e7e1d389e9030e20f8d15b91e103a794f030bbabaafa55b6b0a2645773aae"},
		"a body of bytes":   {"key", "\x00\xff", "354e2350d35b94134c55b5af61743f5b06cfe60df21fdcb2a8808d0d23caf0bb"},
	}
	for name, test := range tests {
		want := "t=1700000000,sha256=" + test.want
		if got := webhook.Sign(test.secret, time.Unix(1700000000, 999), []byte(test.body)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// An event is sent as the contract says, to the byte.
func TestDelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.create(7)
	w.d.Start()
	w.set(repo, 0xab, "refs/heads/main")
	w.set(repo, 0xcd, "refs/heads/main", "refs/notes/commits")
	w.set(repo, 0, "refs/heads/main")
	w.set(repo, 0x12, "refs/namespaces/ephemeral/refs/heads/x")
	w.until("all events are taken", func() bool { return len(w.receivers.taken()) == 4 && w.idle() })

	zero, ab, cd := strings.Repeat("0", 40), "ab"+strings.Repeat("0", 38), "cd"+strings.Repeat("0", 38)
	want := map[string]string{}
	for id, event := range map[string][3]string{
		".2.0": {"refs/heads/main", zero, ab}, ".3.0": {"refs/heads/main", ab, cd}, ".4.0": {"refs/heads/main", cd, zero},
		".5.0": {"refs/namespaces/ephemeral/refs/heads/x", zero, "12" + strings.Repeat("0", 38)},
	} {
		want[repo.String()+id] = `{"repository":{"id":"00000000-0000-0000-0000-000000000007","url":"repo-7"},"ref":"` +
			event[0] +
			`","before":"` + event[1] + `","after":"` + event[2] + `","customer_id":"acme","pushed_at":"2026-03-01T12:00:00Z"}`
	}
	for _, d := range w.receivers.attempts() {
		if d.url != hookURL || d.body != want[d.id] {
			t.Errorf("%s to %s: %s, want %s", d.id, d.url, d.body, want[d.id])
		}
		header := map[string]string{
			"Content-Type": "application/json", "User-Agent": "packhorse/test", "X-Pierre-Event": "push",
			"X-Pierre-Signature": webhook.Sign("s3cret", w.clock.Now(), []byte(d.body)),
		}
		for name, value := range header {
			if got := d.header.Get(name); got != value {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
		delete(want, d.id)
	}
	if len(want) > 0 {
		t.Errorf("not delivered: %v", want)
	}
	if stats := w.d.Stats(); stats != (webhook.Stats{Delivered: 4}) {
		t.Errorf("%+v", stats)
	}
	if rows := w.rows(); rows != 2 { // the name of the hook, and which lane works on it
		t.Errorf("%d rows are left", rows)
	}
}

// Transactions that were committed before the deliverer started, or without a notification, are
// delivered.
func TestCatchesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.create(1), w.create(2)
	w.set(one, 1, "refs/heads/a")
	w.set(two, 2, "refs/heads/b")
	w.set(one, 3, "refs/heads/a")
	w.restart()
	w.until("three events are taken", func() bool { return len(w.receivers.taken()) == 3 })
	taken := w.receivers.taken()
	slices.Sort(taken)
	if !slices.Equal(taken, []string{"refs/heads/a 01", "refs/heads/a 03", "refs/heads/b 02"}) {
		t.Errorf("taken %v", taken)
	}
}
