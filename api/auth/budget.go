package auth

import (
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"packhorse/api/code"
)

// The budget of an address for bad tokens. A unit is one verification with a key, so about 0.1 ms
// with P-256 and 2.4 ms with P-521.
const (
	budgetBurst     = 100
	budgetPerSecond = 10
	budgetPlaces    = 16384       // addresses remembered in each of two generations, 100 bytes each
	goodFor         = time.Minute // an address with a good token this recently is not limited
)

// budgets limit the bad tokens of addresses. An address with good tokens in use is not limited:
// others may share it.
type budgets struct {
	mu     sync.Mutex
	places generations[netip.Prefix, *budget] // guarded by mu, as are the budgets
}

type budget struct {
	left float64
	at   time.Time // of left
	good time.Time // the last good token
}

func newBudgets() budgets {
	return budgets{places: generations[netip.Prefix, *budget]{max: budgetPlaces}}
}

// placeOf returns the network that counts as one address: for IPv6 the network of one customer.
func placeOf(address netip.Addr) netip.Prefix {
	bits := 32
	if address.Is6() {
		bits = 64
	}
	place, _ := address.Prefix(bits) // the zero prefix for an invalid address, which is a place too
	return place
}

// take spends a unit, or reports how long to wait for one.
func (b *budgets) take(address netip.Addr, now time.Time) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.placeLocked(address, now)
	if p.left < 1 && (p.good.IsZero() || now.Sub(p.good) >= goodFor) {
		return time.Duration(math.Ceil((1 - p.left) / budgetPerSecond * float64(time.Second)))
	}
	p.left = max(p.left-1, -budgetBurst)
	return 0
}

// spend takes units beyond the budget, too: they become a debt.
func (b *budgets) spend(address netip.Addr, units int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.placeLocked(address, now)
	p.left = max(p.left-float64(units), -budgetBurst)
}

// good records a good token, and returns the units that were taken for it.
func (b *budgets) good(address netip.Addr, units int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.placeLocked(address, now)
	p.left = min(budgetBurst, p.left+float64(units))
	p.good = now
}

// placeLocked returns the budget of an address, refilled for the time since its last use.
func (b *budgets) placeLocked(address netip.Addr, now time.Time) *budget {
	place := placeOf(address)
	p, ok := b.places.get(place)
	if !ok {
		p = &budget{left: budgetBurst}
		b.places.put(place, p)
	} else if since := now.Sub(p.at); since > 0 {
		p.left = min(budgetBurst, p.left+since.Seconds()*budgetPerSecond)
	}
	p.at = now
	return p
}

// errSpent is the refusal of an address that has spent its budget.
func errSpent(wait time.Duration) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Code: code.TooManyBadTokens, Retry: wait,
		Message: "too many bad tokens from this address", reason: reasonSpent,
	}
}
