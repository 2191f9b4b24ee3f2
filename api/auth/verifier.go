// Package auth verifies the tokens that organizations sign, and returns the permissions of each.
//
// Start at [Open]: it reads the public keys, from a folder or from the rows of package
// organization, and follows their changes. [Verifier.Verify] turns an Authorization header into a
// [Grant]; [Mint] makes a token. Tokens are JSON Web Tokens (RFC 7519); the registered key decides
// the algorithm, never the token's header alone. [ReadFolder] and [Describe] are for the tools that
// change rows.
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

	"packhorse/engine/organization"
	"packhorse/engine/pathpolicy"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/refs"
)

// TokenBytesMax is the largest size of a token.
const TokenBytesMax = 8 << 10

const (
	clockSkew    = 30 * time.Second
	keysTried    = 16 // without a kid
	pollInterval = time.Second
	patience     = 5 * time.Second // with a database
)

// Options configures [Open]. Dir or Keys is required.
type Options struct {
	Dir   string // ORGSDIR: <org>/<kid>.pem and <org>/org.yaml
	Files fs.FS  // how Dir is read; os.DirFS by default
	// Keys is a store whose rows are the organizations. From the moment that there are some, Dir is
	// not looked at. The caller closes it after the verifier.
	Keys   kv.Store
	Logger *slog.Logger     // slog.Default by default
	Now    func() time.Time // time.Now by default
	// Changed, if not nil, is told of each change of the organizations that has come into force since
	// Open, one after the other. It must not call the verifier.
	Changed func(Change)
}

// Verifier verifies tokens. Its methods may be called concurrently.
type Verifier struct {
	now    func() time.Time
	logger *slog.Logger
	parser *jwt.Parser
	orgs   atomic.Pointer[map[string]*issuer]
	cache  cache

	keys     atomic.Int64 // counts additions and removals of keys
	refusals refusals
	budgets  budgets

	scanning sync.Mutex   // guards folder and rows
	folder   *folder      // nil: the organizations are rows
	rows     *rows        // nil: they are in the folder, whatever happens
	unread   atomic.Int64 // paths that the last scan could not read; a database counts as one
	scanned  atomic.Int64 // when it ended, in Unix nanoseconds

	changed func(Change) // Options.Changed; may be nil

	stop context.CancelFunc
	done chan struct{}
}

// Open reads the organizations and starts to follow them. A change takes effect within two seconds,
// and a key whose file was removed or changed stops working. The last known state of what cannot be
// read stays in force, see [Verifier.Following]; if nothing at all can be read, Open fails. Call
// Close to stop.
func Open(options Options) (*Verifier, error) {
	if options.Dir != "" || options.Keys == nil {
		if info, err := os.Stat(options.Dir); err != nil {
			return nil, fmt.Errorf("open organizations folder: %w", err)
		} else if !info.IsDir() {
			return nil, fmt.Errorf("open organizations folder: %s is not a directory", options.Dir)
		}
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
		now: options.Now, parser: newParser(options.Now),
		logger: options.Logger, changed: options.Changed,
		cache: newCache(), refusals: newRefusals(), budgets: newBudgets(),
		stop: stop,
		done: make(chan struct{}),
	}
	if options.Dir != "" {
		v.folder = &folder{
			fsys: options.Files, dir: options.Dir, logger: options.Logger, now: options.Now, told: make(map[string]time.Time),
		}
	}
	if options.Keys != nil {
		v.rows = &rows{keys: options.Keys, logger: options.Logger, now: options.Now}
	}
	v.Reload()
	if v.rows != nil && v.rows.failed != nil {
		stop()
		return nil, v.rows.failed
	}
	if v.folder != nil && v.folder.unread[root] != nil {
		stop()
		return nil, fmt.Errorf("open organizations folder: %w", v.folder.unread[root])
	}
	rescue.Beside(func() error { // Close waits for done
		v.poll(ctx, options.Logger)
		return nil
	})
	return v, nil
}

// newParser returns the parser of a verifier.
func newParser(now func() time.Time) *jwt.Parser {
	return jwt.NewParser(
		jwt.WithStrictDecoding(), jwt.WithExpirationRequired(), jwt.WithLeeway(clockSkew), jwt.WithTimeFunc(now),
	)
}

// Close stops following the organizations. Verify continues with the last state.
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
				v.reloadWithin(ctx)
				return nil
			})
			if err != nil {
				log.ErrorContext(ctx, "organizations: failed to read, keeping the last known state", "error", err)
			}
		}
	}
}

// Reload reads the changes now. When it returns, no removed key verifies anything, unless the
// change could not be read.
func (v *Verifier) Reload() { v.reloadWithin(context.Background()) }

func (v *Verifier) reloadWithin(ctx context.Context) {
	v.scanning.Lock()
	defer v.scanning.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v.reload(ctx)
}

// Follow makes sure that what is in force of an organization is as new as the row at
// [organization.Key] that a caller has read, nil for none. That takes no time unless the row has
// changed since. Errors: those of the store that has the rows.
func (v *Verifier) Follow(ctx context.Context, org string, row []byte) error {
	version, err := organization.ParseVersion(row)
	if err != nil || v.rows == nil || v.knows(org, version) {
		return err
	}
	v.scanning.Lock()
	defer v.scanning.Unlock()
	if v.knows(org, version) {
		return nil
	}
	v.reload(ctx)
	if v.rows.failed != nil {
		return fmt.Errorf("read organization: %w", v.rows.failed)
	}
	return nil
}

// knows reports whether an organization is in force with that version.
func (v *Verifier) knows(org string, version organization.Version) bool {
	known := (*v.orgs.Load())[org]
	if known == nil {
		return version == organization.Version{}
	}
	return known.version == version
}

// scan reads the rows, or as long as there are none the folder.
func (v *Verifier) scan(ctx context.Context) map[string]*issuer {
	unread := 0
	if v.rows != nil {
		orgs := v.rows.scan(ctx)
		if v.rows.failed != nil {
			unread++
		}
		if v.folder != nil && v.rows.present() {
			v.folder = nil
			v.logger.WarnContext(ctx, "the organizations are in the database now: the folder is not used any more")
		}
		if v.folder == nil {
			v.unread.Store(int64(unread))
			return orgs
		}
	}
	orgs := v.folder.scan()
	v.unread.Store(int64(unread + len(v.folder.unread)))
	return orgs
}

func (v *Verifier) reload(ctx context.Context) {
	orgs := v.scan(ctx)
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
	if v.changed != nil {
		eachChange(*before, orgs, v.changed)
	}
}

// eachNewKey calls f with the keys that are in b and not in a.
func eachNewKey(a, b map[string]*issuer, f func(org string, key *key)) {
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

// staleAfter is how long a scan may take before the organizations count as not followed.
const staleAfter = 30 * time.Second

// Following returns why the state in force may be older than what is stored: nil when the last scan
// could read everything. It does not block, and names no organization.
func (v *Verifier) Following() error {
	source := "the folder of organizations"
	if v.rows != nil {
		source = "the organizations"
	}
	if unread := v.unread.Load(); unread > 0 {
		return fmt.Errorf("parts of %s cannot be read (%d)", source, unread)
	}
	if age := time.Duration(v.now().UnixNano() - v.scanned.Load()); age > staleAfter {
		return fmt.Errorf("%s: not read for %s", source, age.Round(time.Second))
	}
	return nil
}

// Unread returns how many paths of the folder could not be read by the last scan; the rows of a
// database count as one.
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

// OrgCount returns the number of organizations.
func (v *Verifier) OrgCount() int { return len(*v.orgs.Load()) }

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
		KeyID: t.found.id, TokenHash: hashOf(token), Expires: c.ExpiresAt.Time, key: t.found,
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
