package auth_test

import (
	"bytes"
	"crypto/elliptic"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/auth"
	"packhorse/engine/organization"
	"packhorse/odb/kv"
	"packhorse/odb/kv/trips"
	"packhorse/odb/odbtest"
)

// rowsFixture is verifiers over one store, of which each is a server's.
type rowsFixture struct {
	*odbtest.Away
	log bytes.Buffer
	mu  sync.Mutex // guards log
	now time.Time
}

func newRows(t *testing.T) *rowsFixture {
	t.Helper()
	keys := odbtest.OpenKeys(t, vfs.NewMem())
	t.Cleanup(func() {
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rowsFixture{Away: odbtest.NewAway(keys), now: clock}
}

// open opens a verifier that reads when the test says so.
func (f *rowsFixture) open(t *testing.T, options auth.Options) *auth.Verifier {
	t.Helper()
	if options.Keys == nil {
		options.Keys = f.Away
	}
	options.Now = func() time.Time { return f.now }
	options.Logger = slog.New(slog.NewTextHandler(&lockedWriter{mu: &f.mu, buffer: &f.log}, nil))
	v, err := auth.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	v.Close()
	return v
}

// store makes the organizations these; nil files remove one.
func (f *rowsFixture) store(t *testing.T, orgs map[string]organization.Files) {
	t.Helper()
	err := organization.Update(t.Context(), f.Store, func(organization.State) (map[string]organization.Files, error) {
		return orgs, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func acme(files organization.Files) map[string]organization.Files {
	return map[string]organization.Files{"acme": files}
}

// row is the row of an organization as a write finds it.
func (f *rowsFixture) row(t *testing.T) []byte {
	t.Helper()
	row, err := f.Store.Get(t.Context(), organization.Key("acme"))
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		t.Fatal(err)
	}
	return row
}

// TestRowsOfTwoServers changes an organization, and two servers hear of it, each when it looks: at
// its next turn, or when it writes.
func TestRowsOfTwoServers(t *testing.T) {
	t.Parallel()
	f := newRows(t)
	one, two := f.open(t, auth.Options{}), f.open(t, auth.Options{})
	header := "Bearer " + mint(t, p256(), claims())
	refused := func(v *auth.Verifier, when string) {
		t.Helper()
		if _, err := v.Verify(header); err == nil {
			t.Errorf("%s: it still works", when)
		}
	}
	refused(one, "no organization")
	config := []byte("webhooks: [{url: 'https://ci.example/hook', secret: s3cr3t}]\nsigning_keys: [a.asc]\n")
	whole := organization.Files{"k.pem": p256().public, "org.yaml": config, "a.asc": []byte("armored")}
	f.store(t, acme(whole))
	var grants []*auth.Grant
	for _, v := range []*auth.Verifier{one, two} {
		v.Reload()
		grant, err := v.Verify(header)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, grant)
		if config, ok := v.OrgConfig("acme"); !ok || len(config.Webhooks) != 1 || len(config.SigningKeyData) != 1 ||
			string(config.SigningKeyData[0]) != "armored" {
			t.Errorf("configured %+v", config)
		}
	}
	more := organization.Files{"k.pem": p256().public, "l.pem": ed().public}
	f.store(t, acme(more))
	one.Reload()
	if err := one.Recheck(grants[0]); err != nil {
		t.Errorf("a key that has stayed while others came: %v", err)
	}
	if config, _ := one.OrgConfig("acme"); len(config.Webhooks) != 0 {
		t.Errorf("webhooks of an org.yaml that was removed: %+v", config)
	}

	f.store(t, acme(organization.Files{"l.pem": ed().public}))
	one.Reload()
	refused(one, "removed")
	if err := one.Recheck(grants[0]); !errors.Is(err, auth.ErrRevoked) {
		t.Errorf("a write that had begun: %v", err)
	}
	if err := two.Recheck(grants[1]); err != nil {
		t.Fatalf("the other server knows before it has looked: %v", err)
	}
	if err := two.Follow(t.Context(), "acme", f.row(t)); err != nil {
		t.Fatal(err)
	}
	if err := two.Recheck(grants[1]); !errors.Is(err, auth.ErrRevoked) {
		t.Errorf("a write on the other server: %v", err)
	}
	refused(two, "removed, on the other server")

	f.store(t, acme(whole))
	two.Reload()
	grant, err := two.Verify(header)
	if err != nil {
		t.Fatal(err)
	}
	f.store(t, acme(nil))
	if err := errors.Join(two.Follow(t.Context(), "acme", f.row(t)), two.Recheck(grant)); !errors.Is(err, auth.ErrRevoked) {
		t.Errorf("a write of an organization that was removed: %v", err)
	}
	if got := two.Orgs(); len(got) > 0 {
		t.Errorf("organizations %v", got)
	}
	if log := f.log.String(); strings.Count(log, `msg="key removed" org=acme kid=k`) != 3 || strings.Contains(log, "s3cr3t") {
		t.Errorf("logged\n%s", log)
	}
}

// TestRowsTrips counts what following costs: a small read each time, none for a write that finds
// what is known, and reads of no other organization for one that does not.
func TestRowsTrips(t *testing.T) {
	t.Parallel()
	f := newRows(t)
	f.store(t, acme(organization.Files{"k.pem": p256().public}))
	v := f.open(t, auth.Options{Keys: trips.Over(f.Away, 0)})
	ctx, log := trips.Record(t.Context())
	if err := v.Follow(ctx, "acme", f.row(t)); err != nil || log.Count() != 0 {
		t.Errorf("a write that finds what is known: %v, %d trips:\n%s", err, log.Count(), log)
	}
	f.store(t, acme(organization.Files{"k.pem": ed().public}))
	if err := v.Follow(ctx, "acme", f.row(t)); err != nil || log.Count() != 5 {
		t.Errorf("a write after a change: %v, %d trips, want 5:\n%s", err, log.Count(), log)
	}
}

// TestRowsAway has the store go away at each call of a turn. What was known stays in force, and the
// alarm says so; a write that finds another row fails.
func TestRowsAway(t *testing.T) {
	t.Parallel()
	f := newRows(t)
	f.store(t, acme(organization.Files{"k.pem": p256().public}))
	v := f.open(t, auth.Options{})
	header := "Bearer " + mint(t, p256(), claims())
	for calls := 0; ; calls++ {
		f.store(t, acme(organization.Files{"k.pem": p256().public, "org.yaml": []byte("# " + strings.Repeat("x", calls))}))
		f.Leave(calls)
		f.now = f.now.Add(20 * time.Second)
		v.Reload()
		if f.Return() == 0 {
			if calls < 3 {
				t.Errorf("a turn after a change makes %d calls", calls)
			}
			break
		}
		if _, err := v.Verify(header); err != nil {
			t.Errorf("after %d calls: %v", calls, err)
		}
		if v.Following() == nil || v.Unread() != 1 {
			t.Errorf("after %d calls: Following %v, Unread %d", calls, v.Following(), v.Unread())
		}
		f.Leave(calls)
		if err := v.Follow(t.Context(), "acme", f.row(t)); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("after %d calls: a write hears %v", calls, err)
		}
		f.Return()
	}
	if v.Following() != nil || v.Unread() != 0 {
		t.Errorf("when the store is back: Following %v, Unread %d", v.Following(), v.Unread())
	}
	if log := f.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "readable again") ||
		strings.Contains(log, "key removed") {
		t.Errorf("logged\n%s", log)
	}
	f.Leave(0)
	if v, err := auth.Open(auth.Options{Keys: f.Away}); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("opened %v with error %v", v, err)
	}
	f.Return()
}

// TestRowsAreFollowed has the verifier look by itself.
func TestRowsAreFollowed(t *testing.T) {
	t.Parallel()
	f := newRows(t)
	f.store(t, acme(organization.Files{"k.pem": p256().public}))
	v, err := auth.Open(auth.Options{Keys: f.Store, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	header := "Bearer " + mint(t, p256(), claims())
	if _, err := v.Verify(header); err != nil {
		t.Error(err)
	}
	f.store(t, acme(organization.Files{"k.pem": ed().public}))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := v.Verify(header); err != nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("a removed key works a minute later")
		}
	}
}

// TestFolderUntilRows hands a running server over from its folder to rows.
func TestFolderUntilRows(t *testing.T) {
	t.Parallel()
	f, folder := newRows(t), newFixture(t)
	folder.write(t, "acme/k.pem", p256().public)
	v := f.open(t, auth.Options{Dir: folder.dir})
	works := func(key pair, want bool) {
		t.Helper()
		if _, err := v.Verify("Bearer " + mint(t, key, claims())); (err == nil) != want {
			t.Errorf("%v, want it to work: %t", err, want)
		}
	}
	works(p256(), true)
	if err := v.Follow(t.Context(), "acme", f.row(t)); err != nil {
		t.Error(err)
	}
	f.Leave(0)
	v.Reload()
	f.Return()
	if v.Unread() != 1 {
		t.Errorf("while the store is away: %d unread", v.Unread())
	}
	works(p256(), true)
	f.store(t, acme(organization.Files{"k.pem": ed().public}))
	if err := v.Follow(t.Context(), "acme", f.row(t)); err != nil {
		t.Error(err)
	}
	works(p256(), false)
	works(ed(), true)
	folder.write(t, "acme/new.pem", newECPair(elliptic.P256()).public)
	f.store(t, acme(nil))
	v.Reload()
	works(ed(), false)
	if v.Unread() != 0 || len(v.Orgs()) != 0 {
		t.Errorf("%d unread, organizations %v", v.Unread(), v.Orgs())
	}
	if n := strings.Count(f.log.String(), "the folder is not used any more"); n != 1 {
		t.Errorf("told %d times:\n%s", n, &f.log)
	}
}

// TestOtherRows reads what a newer release may have stored: what is not understood is left out, and
// an org.yaml leaves the one before in force.
func TestOtherRows(t *testing.T) {
	t.Parallel()
	f := newRows(t)
	config := []byte("custom_notes_refs: false\n")
	f.store(t, acme(organization.Files{"k.pem": p256().public, "org.yaml": config}))
	v := f.open(t, auth.Options{})
	f.store(t, acme(organization.Files{
		"k.pem": p256().public, "l.pem": []byte("new"), "m.key": []byte("new"), "org.yaml": []byte("new: true\n"),
	}))
	v.Reload()
	if _, err := v.Verify("Bearer " + mint(t, p256(), claims())); err != nil {
		t.Error(err)
	}
	if config, _ := v.OrgConfig("acme"); config.CustomNotesRefs {
		t.Error("the configuration before is not in force")
	}
	if log := f.log.String(); strings.Count(log, "invalid entry") != 2 {
		t.Errorf("logged\n%s", log)
	}
	_, err := v.Verify("Bearer " + mint(t, ed(), claims()))
	if refusal, ok := errors.AsType[*auth.Error](err); !ok || refusal.StatusCode() != http.StatusUnauthorized {
		t.Errorf("another key: %v", err)
	}
}
