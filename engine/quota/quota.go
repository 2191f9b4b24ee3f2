// Package quota counts the bytes that organizations and their repositories store, and refuses
// writes that would pass a quota.
//
// Start at [Ledger.Begin], which opens a [Hold] for one write. What arrives is held by
// [Hold.Grow], so that two writes do not pass a quota together. [Hold.Stage] holds exactly what the
// batch adds, and [Hold.Settle] moves that to what is stored. account.go adds up layers.
//
// A repository stores its own layers. An organization stores the layers that its repositories use,
// each once: those that forks borrow from a deleted base, too.
//
// The figures are in memory, and are read from the stores when an organization with a quota writes
// for the first time. A quota is a limit and no invariant: the figures have the writes of this
// process, and those of another one when they are read again. So locks may guard them.
package quota

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"packhorse/odb"
	"packhorse/odb/space"
)

// Limits are quotas in bytes; 0 is none.
type Limits struct {
	Organization int64 // of all repositories together
	Repository   int64 // of each repository
}

// ErrExceeded says that a write would pass a quota.
var ErrExceeded = errors.New("quota: exceeded")

// ExceededError is [ErrExceeded] with its evidence, in bytes.
type ExceededError struct {
	Of  string // "organization" or "repository"
	Max int64
	// Used is stored, or held by other writes. Needed is the size of the refused write so far.
	Used, Needed int64
}

func (e *ExceededError) Error() string {
	setting := "quota_bytes"
	if e.Of == ofRepository {
		setting = "repository_quota_bytes"
	}
	return fmt.Sprintf("quota exceeded: the %s may store %s (limits.%s in org.yaml), %s are used, and this write needs %s",
		e.Of, space.Size(uint64(e.Max)), setting, space.Size(uint64(max(e.Used, 0))), space.Size(uint64(e.Needed)))
}

// Is reports whether target is [ErrExceeded].
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

const (
	ofOrganization = "organization"
	ofRepository   = "repository"
)

// Config is the configuration of a ledger.
type Config struct {
	Objects *odb.Store
	// Limits returns the quotas of an organization, at the time of the call; nil: there are none.
	Limits func(org string) Limits
	// Repositories walks the repositories of an organization.
	Repositories func(ctx context.Context, org string) iter.Seq2[Repository, error]
}

// Repository is a repository whose bytes are counted.
type Repository struct {
	Org  string
	Pool odb.PoolID
	// Exists reports whether the repository has not gone for good.
	Exists func(ctx context.Context) (bool, error)
}

// Ledger holds the accounts of the organizations that have quotas. Its methods may be called
// concurrently.
type Ledger struct {
	config Config

	mu       sync.Mutex
	accounts map[string]*account // guarded by mu
	count    atomic.Int64        // of accounts
}

// NewLedger returns a ledger without accounts.
func NewLedger(config Config) *Ledger {
	if config.Limits == nil {
		config.Limits = func(string) Limits { return Limits{} }
	}
	return &Ledger{config: config, accounts: make(map[string]*account)}
}

// account returns the account of an organization, nil if it has no quota.
func (l *Ledger) account(org string) (*account, Limits) {
	limits := l.config.Limits(org)
	if limits == (Limits{}) && l.count.Load() == 0 {
		return nil, limits
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[org]
	switch {
	case limits == (Limits{}): // writes are not counted from now on
		delete(l.accounts, org)
		a = nil
	case a == nil:
		a = newAccount(l.config, org)
		l.accounts[org] = a
	}
	l.count.Store(int64(len(l.accounts)))
	return a, limits
}

// Begin opens a hold for a write to a repository, nil if there is no quota. The caller releases it.
// The first write of an organization waits until its layers have been counted.
func (l *Ledger) Begin(ctx context.Context, repo Repository) (*Hold, error) {
	return l.begin(ctx, repo, false)
}

// BeginFork opens a hold for the creation of a fork of base, nil if there is no quota. The caller
// releases it.
func (l *Ledger) BeginFork(ctx context.Context, base Repository) (*Hold, error) {
	return l.begin(ctx, base, true)
}

// BeginNew opens a hold for the first write to a repository that this write creates, nil if there
// is no quota. The caller releases it, or calls [Hold.SettleNew].
func (l *Ledger) BeginNew(ctx context.Context, repo Repository) (*Hold, error) {
	a, limits := l.account(repo.Org)
	if a == nil {
		return nil, nil
	}
	hold := a.open(repo, true)
	hold.isNew = true
	if limits.Organization != 0 {
		if err := a.knowAll(ctx); err != nil {
			hold.Release()
			return nil, fmt.Errorf("count what organization %s stores: %w", repo.Org, err)
		}
	}
	return hold, nil
}

func (l *Ledger) begin(ctx context.Context, repo Repository, forks bool) (*Hold, error) {
	a, limits := l.account(repo.Org)
	if a == nil {
		return nil, nil
	}
	if err := a.know(ctx, repo, limits); err != nil {
		return nil, fmt.Errorf("count what organization %s stores: %w", repo.Org, err)
	}
	return a.open(repo, forks), nil
}

// Changed counts the layers of a pool anew: maintenance has rewritten some.
func (l *Ledger) Changed(ctx context.Context, pool odb.PoolID) error {
	for _, a := range l.all() {
		if err := a.again(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// Deleted stops counting a repository of an organization that has gone for good.
func (l *Ledger) Deleted(ctx context.Context, org string, pool odb.PoolID) error {
	l.mu.Lock()
	a := l.accounts[org]
	l.mu.Unlock()
	if a == nil {
		return nil
	}
	return a.drop(ctx, pool)
}

// all returns the accounts.
func (l *Ledger) all() []*account {
	if l.count.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*account, 0, len(l.accounts))
	for _, a := range l.accounts {
		all = append(all, a)
	}
	return all
}

// SizedLayer is a layer of a repository, and its size.
type SizedLayer struct {
	odb.PoolLayer
	odb.Size
}

// Usage is what a repository stores.
type Usage struct {
	Layers []SizedLayer
	Limits Limits
	// OrganizationBytes are those of the organization, if it has a quota.
	OrganizationBytes int64
}

// Usage returns what a repository stores. It takes a step for each layer; without a quota also for
// each object of the hot layers.
func (l *Ledger) Usage(ctx context.Context, repo Repository) (Usage, error) {
	a, limits := l.account(repo.Org)
	if a == nil {
		layers, err := measure(ctx, l.config.Objects, repo.Pool)
		return Usage{Layers: layers}, err
	}
	if err := a.know(ctx, repo, limits); err != nil {
		return Usage{}, err
	}
	layers, bytes := a.usage(repo.Pool)
	return Usage{Layers: layers, Limits: limits, OrganizationBytes: bytes}, nil
}
