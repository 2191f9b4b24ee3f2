package auth_test

import (
	"crypto/elliptic"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"packhorse/api/auth"
)

// badTokens returns a function that makes a new token in each call, signed by a stranger's key.
func badTokens(t *testing.T) func() string {
	t.Helper()
	stranger, n := newECPair(elliptic.P256()), 0
	return func() string {
		c := claims()
		c.Subject = fmt.Sprint(n)
		n++
		return "Bearer " + mint(t, stranger, c)
	}
}

// status is that of the refusal, 0 for a grant.
func status(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	refusal, ok := errors.AsType[*auth.Error](err)
	if !ok {
		t.Fatalf("%v is no refusal", err)
	}
	if (refusal.StatusCode() == 429) != (refusal.RetryAfter() > 0) {
		t.Errorf("%v: retry after %s", err, refusal.RetryAfter())
	}
	return refusal.StatusCode()
}

// An address may try so many bad tokens, then so many a second. Its refusals do not affect other
// addresses, nor itself while it has good tokens in use.
func TestBadTokensHaveABudget(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/k.pem", p256().public)
	f.Reload()
	bad, good := badTokens(t), "Bearer "+mint(t, p256(), claims())
	attacker, other := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")
	try := func(address netip.Addr, token string) int {
		_, err := f.VerifyFrom(address, token)
		return status(t, err)
	}
	first := bad()
	tried := 0
	for token := first; try(attacker, token) == 401; token = bad() {
		tried++
	}
	if tried != 100 {
		t.Errorf("%d bad tokens were verified", tried)
	}
	if got := try(attacker, first); got != 401 {
		t.Errorf("a bad token that is known: %d", got)
	}
	if got := try(attacker, good); got != 429 {
		t.Errorf("a token that is not known, beyond the budget: %d", got)
	}
	if got := try(other, bad()); got != 401 {
		t.Errorf("another address: %d", got)
	}
	f.now = f.now.Add(time.Second)
	for tried = 0; try(attacker, bad()) == 401; {
		tried++
	}
	if tried != 10 {
		t.Errorf("%d bad tokens were verified a second later", tried)
	}
	if got := try(other, good); got != 0 {
		t.Errorf("a good token of another address: %d", got)
	}
	if got := try(attacker, good); got != 0 {
		t.Errorf("a good token that is known, beyond the budget: %d", got)
	}
	for range 200 { // whose address has good tokens in use is served
		if got := try(attacker, bad()); got != 401 {
			t.Fatalf("a bad token beside a good one: %d", got)
		}
	}
	fresh := claims()
	fresh.Subject = "fresh"
	if got := try(attacker, "Bearer "+mint(t, p256(), fresh)); got != 0 {
		t.Errorf("a good token that is not known, beside one that is: %d", got)
	}
	f.now = f.now.Add(time.Minute)
	for tried = 0; try(attacker, bad()) == 401; {
		tried++
	}
	if tried > 101 {
		t.Errorf("%d bad tokens were verified a minute after the last good one", tried)
	}
}

// Each key that is tried counts, and an IPv6 network is one address.
func TestBudgetCountsKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 10 {
		f.write(t, fmt.Sprintf("acme/%d.pem", i), newECPair(elliptic.P256()).public)
	}
	f.Reload()
	bad := badTokens(t)
	verified := 0
	for i := range 100 {
		address := netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))
		if _, err := f.VerifyFrom(address, bad()); status(t, err) == 401 {
			verified++
		}
	}
	if verified != 10 {
		t.Errorf("%d tokens were held against 10 keys each", verified)
	}
}

// A refusal is not remembered beyond the keys under which it was decided, nor when time alone
// changes it.
func TestRefusalsAreForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/other.pem", ed().public)
	f.Reload()
	token := "Bearer " + mint(t, p256(), claims())
	if _, err := f.Verify(token); status(t, err) != 401 {
		t.Fatalf("before its key is registered: %v", err)
	}
	f.write(t, "acme/k.pem", p256().public)
	f.Reload()
	if _, err := f.Verify(token); err != nil {
		t.Errorf("after its key was registered: %v", err)
	}
	f.now = f.now.Add(48 * time.Hour)
	token = "Bearer " + mint(t, p256(), claims())
	if _, err := f.Verify(token); err == nil {
		t.Fatal("the token has expired")
	}
	f.now = clock // the clock was wrong
	if _, err := f.Verify(token); err != nil {
		t.Errorf("with the clock set right: %v", err)
	}
}
