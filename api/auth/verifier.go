// Package auth verifies the tokens that organizations sign, and returns the permissions of each.
//
// Start at [Open]: it reads the folder of public keys and follows its changes. [Verifier.Verify]
// turns an Authorization header into a [Grant]; [Mint] makes a token. Tokens are JSON Web Tokens
// (RFC 7519); the registered key decides the algorithm, never the token's header alone.
package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"packhorse/engine/pathpolicy"
	"packhorse/odb/rescue"
	"packhorse/refs"
)

// TokenBytesMax is the largest size of a token.
const TokenBytesMax = 8 << 10

const (
	clockSkew    = 30 * time.Second
	keysTried    = 16 // without a kid
	pollInterval = time.Second
)

// Options configures [Open]. Dir is required.
type Options struct {
	Dir    string           // ORGSDIR: <org>/<kid>.pem and <org>/org.yaml
	Files  fs.FS            // how Dir is read; os.DirFS by default
	Logger *slog.Logger     // slog.Default by default
	Now    func() time.Time // time.Now by default
}

// Verifier verifies tokens. Its methods may be called concurrently.
type Verifier struct {
	now    func() time.Time
	logger *slog.Logger
	parser *jwt.Parser
	orgs   atomic.Pointer[map[string]*organization]
	cache  cache

	keys     atomic.Int64 // counts additions and removals of keys
	refusals refusals
	budgets  budgets

	scanning sync.Mutex // guards folder
	folder   *folder
	unread   atomic.Int64 // paths that the last scan could not read
	scanned  atomic.Int64 // when it ended, in Unix nanoseconds

	stop context.CancelFunc
	done chan struct{}
}

// Open reads the folder of organizations and starts to follow it. A change takes effect within two
// seconds, and a key whose file was removed or changed stops working. The last known state of an
// unreadable path stays in force, see [Verifier.Following]; if the folder itself cannot be read,
// Open fails. Call Close to stop.
func Open(options Options) (*Verifier, error) {
	if info, err := os.Stat(options.Dir); err != nil {
		return nil, fmt.Errorf("open organizations folder: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open organizations folder: %s is not a directory", options.Dir)
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Files == nil {
		options.Files = os.DirFS(options.Dir)
	}
	ctx, stop := context.WithCancel(context.Background())
	v := &Verifier{
		now: options.Now,
		parser: jwt.NewParser(jwt.WithStrictDecoding(), jwt.WithExpirationRequired(), jwt.WithLeeway(clockSkew),
			jwt.WithTimeFunc(options.Now)),
		logger: options.Logger,
		cache:  newCache(), refusals: newRefusals(), budgets: newBudgets(),
		folder: &folder{
			fsys: options.Files, dir: options.Dir, logger: options.Logger, now: options.Now, told: make(map[string]time.Time),
		},
		stop: stop,
		done: make(chan struct{}),
	}
	v.Reload()
	if err := v.folder.unread[root]; err != nil {
		stop()
		return nil, fmt.Errorf("open organizations folder: %w", err)
	}
	rescue.Beside(func() error { // Close waits for done
		v.poll(ctx, options.Logger)
		return nil
	})
	return v, nil
}

// Close stops following the folder. Verify continues with the last state.
func (v *Verifier) Close() {
	v.stop()
	<-v.done
}

func (v *Verifier) poll(ctx context.Context, log *slog.Logger) {
	defer close(v.done)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			err := rescue.Do(func() error {
				v.Reload()
				return nil
			})
			if err != nil {
				log.ErrorContext(ctx, "organizations folder: failed to read, keeping the last known state", "error", err)
			}
		}
	}
}

// Reload reads the changes in the folder now. When it returns, no removed key verifies anything.
func (v *Verifier) Reload() {
	v.scanning.Lock()
	defer v.scanning.Unlock()
	orgs := v.folder.scan()
	v.unread.Store(int64(len(v.folder.unread)))
	v.scanned.Store(v.now().UnixNano())
	before := v.orgs.Swap(&orgs)
	if before == nil {
		return
	}
	removed, added := false, false
	eachNewKey(orgs, *before, func(org string, key *key) {
		key.removed.Store(true)
		removed = true
		v.logger.Info("key removed", "org", org, "kid", key.id, "fingerprint", key.fingerprint)
	})
	eachNewKey(*before, orgs, func(org string, key *key) {
		added = true
		v.logger.Info("key registered", "org", org, "kid", key.id, "fingerprint", key.fingerprint)
	})
	if removed {
		v.cache.removeKeys()
	}
	if removed || added {
		v.keys.Add(1) // after the keys are in force, see verifyFrom
	}
}

// eachNewKey calls f with the keys that are in b and not in a.
func eachNewKey(a, b map[string]*organization, f func(org string, key *key)) {
	for name, org := range b {
		before := a[name]
		if before == org {
			continue
		}
		for id, key := range org.keys {
			if before == nil || before.keys[id] != key {
				f(name, key)
			}
		}
	}
}

// staleAfter is how long a scan may take before the folder counts as one that is not followed.
const staleAfter = 30 * time.Second

// Following returns why the state in force may be older than the folder: nil when the last scan
// could read everything. It does not block, and names no organization.
func (v *Verifier) Following() error {
	if unread := v.unread.Load(); unread > 0 {
		return fmt.Errorf("parts of the folder of organizations cannot be read (%d)", unread)
	}
	if age := time.Duration(v.now().UnixNano() - v.scanned.Load()); age > staleAfter {
		return fmt.Errorf("the folder of organizations has not been read for %s", age.Round(time.Second))
	}
	return nil
}

// Unread returns how many paths of the folder could not be read by the last scan.
func (v *Verifier) Unread() int { return int(v.unread.Load()) }

// OrgConfig returns the configuration of an organization, and whether there is such an
// organization.
func (v *Verifier) OrgConfig(org string) (*OrgConfig, bool) {
	o := (*v.orgs.Load())[org]
	if o == nil {
		return nil, false
	}
	return o.config, true
}

// Orgs returns the names of the organizations in order.
func (v *Verifier) Orgs() []string {
	orgs := *v.orgs.Load()
	names := make([]string, 0, len(orgs))
	for name := range orgs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Verify returns the grant of the token in the values of the request's Authorization headers. It
// does not check the repository and the scope of the request.
//
// Errors wrap an [*Error], which is for the client: [ErrMissing] without a header, [ErrDuplicate]
// with several, others with status 401.
func (v *Verifier) Verify(authorization ...string) (*Grant, error) {
	return v.verifyFrom(nil, authorization)
}

// VerifyFrom is Verify for a client at an address. Each address has a small budget for bad tokens.
// When that is spent, unknown tokens are refused with status 429, unless the address has good
// tokens in use.
func (v *Verifier) VerifyFrom(address netip.Addr, authorization ...string) (*Grant, error) {
	return v.verifyFrom(&address, authorization)
}

func (v *Verifier) verifyFrom(address *netip.Addr, authorization []string) (*Grant, error) {
	switch {
	case len(authorization) == 0 || len(authorization) == 1 && authorization[0] == "":
		return nil, ErrMissing
	case len(authorization) > 1:
		return nil, ErrDuplicate
	}
	hash := cacheKey(sha256.Sum256([]byte(authorization[0])))
	now := v.now()
	if grant := v.cache.get(hash); grant != nil && !grant.key.removed.Load() {
		if !now.Before(grant.Expires.Add(clockSkew)) {
			v.cache.remove(hash)
			return nil, errExpired
		}
		if address != nil {
			v.budgets.good(*address, 0, now)
		}
		return grant, nil
	}
	token, err := credentials(authorization[0])
	if err != nil {
		return nil, err
	}
	// Loaded first, so that a result for older keys is not cached for newer ones.
	keys := v.keys.Load()
	if err := v.refusals.get(hash, keys, now); err != nil {
		return nil, err
	}
	if address != nil {
		if wait := v.budgets.take(*address, now); wait > 0 {
			return nil, errSpent(wait)
		}
	}
	grant, computed, err := v.verify(token)
	if err != nil {
		if address != nil && computed > 1 {
			v.budgets.spend(*address, computed-1, now)
		}
		if !errors.Is(err, errUnread) && !errors.Is(err, errNotYet) {
			v.refusals.put(hash, seenRefusal{err, keys, now})
		}
		return nil, err
	}
	if address != nil {
		v.budgets.good(*address, 1, now)
	}
	v.cache.put(hash, grant)
	return grant, nil
}

// Recheck checks, before a write's batch, that the key that verified the grant is still registered.
// A token that expires during its request does not end the request. Errors: [ErrRevoked].
func (v *Verifier) Recheck(grant *Grant) error {
	if grant.key == nil || grant.key.removed.Load() {
		return ErrRevoked
	}
	return nil
}

// credentials returns the token of a Basic or Bearer header.
func credentials(header string) (string, error) {
	scheme, value, _ := strings.Cut(header, " ")
	value = strings.Trim(value, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
	case strings.EqualFold(scheme, "Basic"):
		pair, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return "", errScheme
		}
		_, password, ok := strings.Cut(string(pair), ":")
		if !ok {
			return "", errScheme
		}
		value = password
	default:
		return "", errScheme
	}
	switch {
	case value == "":
		return "", ErrMissing
	case len(value) > TokenBytesMax:
		return "", errTooLong
	}
	return value, nil
}

// verify also returns with how many keys it has verified the token.
func (v *Verifier) verify(token string) (*Grant, int, error) {
	var c claims
	t := trial{}
	var unfit error
	_, err := v.parser.ParseWithClaims(token, &c, func(parsed *jwt.Token) (any, error) {
		t.SigningMethod, t.candidates, unfit = v.candidates(parsed.Header, c.Issuer)
		parsed.Method = &t
		if t.SigningMethod == nil {
			return nil, unfit
		}
		return nil, nil
	})
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed), errors.Is(err, errMalformed):
		return nil, t.computed, errMalformed
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return nil, t.computed, errNoExpiry
	case errors.Is(err, jwt.ErrTokenExpired):
		return nil, t.computed, errExpired.with("of %s, at %s", nameOf(c.Issuer), c.ExpiresAt.UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return nil, t.computed, errNotYet
	case err != nil:
		if org := (*v.orgs.Load())[c.Issuer]; org != nil && org.blind {
			return nil, t.computed, errUnread.with("%s", c.Issuer)
		}
		if unfit == nil {
			unfit = fmt.Errorf("%d keys of %s do not fit", len(t.candidates), nameOf(c.Issuer))
		}
		return nil, t.computed, errSignature.with("%v", unfit)
	}
	policy, err := refs.ParsePolicy(c.refs, c.ops)
	if err != nil {
		return nil, t.computed, errBadPolicy
	}
	paths, err := pathpolicy.Parse(c.paths)
	if err != nil {
		return nil, t.computed, errBadPaths.with("%v", err)
	}
	grant := &Grant{
		Org: c.Issuer, Subject: c.Subject, Repo: c.repo, Policy: policy, Paths: paths, Unenforced: c.unenforced,
		KeyID: t.found.id, Expires: c.ExpiresAt.Time, key: t.found,
	}
	for _, name := range c.scopes {
		grant.Scopes |= scopeNames[name]
	}
	return grant, t.computed, nil
}

// nameOf quotes the name of an organization or a key from a token, for the log.
func nameOf(text string) string {
	if !ValidName(text) {
		return "(not a name)"
	}
	return text
}

// candidates returns the signing method for a token with this header and the keys that may have
// signed it: those of its issuer for that algorithm, or of these the one that the token names. The
// error explains why there are none; if a method is returned with it the token is verified
// nevertheless, see decoy.
func (v *Verifier) candidates(header map[string]any, issuer string) (jwt.SigningMethod, []*key, error) {
	if typ, ok := header["typ"]; ok {
		if name, ok := typ.(string); !ok || !strings.EqualFold(name, "JWT") {
			return nil, nil, errMalformed
		}
	}
	if _, ok := header["crit"]; ok { // RFC 7515, 4.1.11: refuse unknown critical parameters; the server knows none
		return nil, nil, errMalformed
	}
	alg, _ := header["alg"].(string)
	method, ok := methods[alg]
	if !ok {
		return nil, nil, errors.New("unknown algorithm")
	}
	org := (*v.orgs.Load())[issuer]
	if org == nil {
		return method, nil, fmt.Errorf("there is no organization %s", nameOf(issuer))
	}
	keys := org.sorted
	if id, ok := header["kid"]; ok {
		name, _ := id.(string)
		named := org.keys[name]
		if named == nil {
			return method, nil, fmt.Errorf("%s has no key %s", issuer, nameOf(name))
		}
		keys = []*key{named}
	}
	var fitting []*key
	for _, key := range keys {
		if len(fitting) < keysTried && slices.Contains(key.algs, alg) {
			fitting = append(fitting, key)
		}
	}
	return method, fitting, nil
}
