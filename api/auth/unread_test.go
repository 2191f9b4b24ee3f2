package auth_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"packhorse/api/auth"
)

// failing is a folder of which one operation fails.
type failing struct {
	fs.FS
	left int // operations before the one that fails; negative when none does
	err  error
}

// fail counts an operation, and returns the error of the one that fails.
func (f *failing) fail(op, path string) error {
	f.left--
	if f.left == -1 {
		return &fs.PathError{Op: op, Path: path, Err: f.err}
	}
	return nil
}

func (f *failing) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.fail("readdir", name); err != nil {
		return nil, err
	}
	return fs.ReadDir(f.FS, name)
}

func (f *failing) Stat(name string) (fs.FileInfo, error) {
	if err := f.fail("stat", name); err != nil {
		return nil, err
	}
	return fs.Stat(f.FS, name)
}

func (f *failing) Open(name string) (fs.File, error) {
	if err := f.fail("open", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name)
	return failingFile{file, f, name}, err
}

type failingFile struct {
	fs.File
	folder *failing
	name   string
}

func (f failingFile) Read(p []byte) (int, error) {
	if err := f.folder.fail("read", f.name); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

// newFailing returns a fixture with two organizations, one of them by a link, whose reads can be
// made to fail.
func newFailing(t *testing.T) (*fixture, *failing) {
	t.Helper()
	f := newFixture(t)
	f.write(t, "acme/k.pem", p256().public)
	f.write(t, "acme/release.asc", []byte("armored"))
	f.write(t, "acme/org.yaml",
		[]byte("webhooks: [{url: 'https://ci.example/hook', secret: s3cr3t}]\nsigning_keys: [release.asc]\n"))
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "k.pem"), ed().public, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(f.dir, "other")); err != nil {
		t.Fatal(err)
	}
	folder := &failing{FS: os.DirFS(f.dir), left: -1, err: syscall.EIO}
	f.open(t, auth.Options{Files: folder})
	return f, folder
}

// holds checks that everything that newFailing made is in force.
func (f *fixture) holds(t *testing.T) {
	t.Helper()
	other := claims()
	other.Org = "other"
	for org, token := range map[string]string{"acme": mint(t, p256(), claims()), "other": mint(t, ed(), other)} {
		if _, err := f.Verify("Bearer " + token); err != nil {
			t.Errorf("a token of %s: %v", org, err)
		}
	}
	config, ok := f.OrgConfig("acme")
	if !ok || len(config.Webhooks) != 1 || len(config.SigningKeyData) != 1 ||
		string(config.SigningKeyData[0]) != "armored" {
		t.Errorf("the configuration has become %+v, %t", config, ok)
	}
}

// Whatever read of the folder fails, the last known state stays in force, and the failure is
// reported.
func TestFailedReadsKeepWhatIsKnown(t *testing.T) {
	t.Parallel()
	f, folder := newFailing(t)
	grant, err := f.Verify("Bearer " + mint(t, p256(), claims()))
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for ; ; failed++ {
		folder.left = failed
		f.Reload()
		if folder.left >= 0 {
			break // the scan made fewer operations than that
		}
		f.holds(t)
		if err := f.Recheck(grant); err != nil {
			t.Errorf("operation %d failed: a write under way hears %v", failed, err)
		}
		if f.Following() == nil || f.Unread() != 1 {
			t.Errorf("operation %d failed: Following %v, Unread %d", failed, f.Following(), f.Unread())
		}
		folder.left = -1
		f.Reload()
		f.holds(t)
		if f.Following() != nil || f.Unread() != 0 {
			t.Errorf("after operation %d: Following %v, Unread %d", failed, f.Following(), f.Unread())
		}
	}
	if failed < 12 {
		t.Errorf("only %d operations were made to fail", failed)
	}
	if log := f.log.String(); !strings.Contains(log, "level=ERROR") || strings.Contains(log, "key removed") {
		t.Errorf("logged\n%s", log)
	}
}

// A folder that stays unreadable is logged at once, and again ten minutes later.
func TestUnreadableFolderIsToldSlowly(t *testing.T) {
	t.Parallel()
	f, folder := newFailing(t)
	told := func() int { return strings.Count(f.log.String(), "level=ERROR") }
	for scan, want := range []int{1, 1, 1, 2, 2} {
		folder.left = 0
		f.Reload()
		if got := told(); got != want {
			t.Errorf("scan %d: told %d times, want %d", scan, got, want)
		}
		f.now = f.now.Add(4 * time.Minute)
	}
	folder.left = -1
	f.Reload()
	if !strings.Contains(f.log.String(), "readable again") {
		t.Errorf("the end is not told:\n%s", f.log)
	}
}

// A key that a listing no longer has is removed at once, also while something else cannot be read.
func TestKeysAreRemovedBesideFailures(t *testing.T) {
	t.Parallel()
	f, folder := newFailing(t)
	if err := os.Remove(filepath.Join(f.dir, "acme", "k.pem")); err != nil {
		t.Fatal(err)
	}
	folder.left = 2 // the listings of the folder and of acme succeed
	f.Reload()
	if f.Unread() == 0 {
		t.Error("nothing failed")
	}
	if _, err := f.Verify("Bearer " + mint(t, p256(), claims())); err == nil {
		t.Error("the removed key still verifies")
	}
	if log := f.log.String(); !strings.Contains(log, `msg="key removed" org=acme kid=k fingerprint=`) {
		t.Errorf("the removal is not logged:\n%s", log)
	}
}

// A folder that cannot be read is not opened; keys that cannot be read from the start are not "no
// keys".
func TestUnreadableFromTheStart(t *testing.T) {
	t.Parallel()
	f, folder := newFailing(t)
	folder.left = 0
	if v, err := auth.Open(auth.Options{Dir: f.dir, Files: folder}); !errors.Is(err, syscall.EIO) {
		t.Errorf("opened %v with error %v", v, err)
	}
	folder.left = 1
	f.open(t, auth.Options{Files: folder})
	_, err := f.Verify("Bearer " + mint(t, p256(), claims()))
	refusal, ok := errors.AsType[*auth.Error](err)
	if !ok || refusal.StatusCode() != 503 || refusal.RetryAfter() == 0 {
		t.Errorf("a token of an organization whose keys could never be read: %v", err)
	}
	folder.left = -1
	f.Reload()
	f.holds(t)
}

// An org.yaml that is written in place takes effect once it stays unchanged; one that was renamed
// into place, at once.
func TestOrgConfigWrittenInPlace(t *testing.T) {
	t.Parallel()
	f, _ := newFailing(t)
	path := filepath.Join(f.dir, "acme", "org.yaml")
	hooks := func() int {
		f.Reload()
		config, _ := f.OrgConfig("acme")
		return len(config.Webhooks)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "acme/org.yaml", nil) // as it begins
	if got := hooks(); got != 1 {
		t.Errorf("truncated: %d hooks", got)
	}
	f.write(t, "acme/org.yaml", whole[:30])
	if got := hooks(); got != 1 {
		t.Errorf("half written: %d hooks", got)
	}
	f.write(t, "acme/org.yaml", whole)
	if got := hooks(); got != 1 {
		t.Errorf("written: %d hooks", got)
	}
	f.write(t, "acme/org.yaml", []byte("webhooks: []\n"))
	if got := hooks(); got != 1 {
		t.Errorf("written a moment ago: %d hooks", got)
	}
	if got := hooks(); got != 0 {
		t.Errorf("written, and still the same: %d hooks", got)
	}
	f.write(t, "acme/new", whole)
	if err := os.Rename(filepath.Join(f.dir, "acme", "new"), path); err != nil {
		t.Fatal(err)
	}
	if got := hooks(); got != 1 {
		t.Errorf("renamed into place: %d hooks", got)
	}
}

// Later additions and removals are logged by organization, name and fingerprint.
func TestKeyChangesAreLogged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/k.pem", p256().public)
	f.Reload()
	public, err := auth.ParsePublicKey(p256().public)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint, err := auth.Fingerprint(public)
	if err != nil {
		t.Fatal(err)
	}
	if want := `level=INFO msg="key registered" org=acme kid=k fingerprint=` + fingerprint; !strings.Contains(
		f.log.String(), want,
	) {
		t.Errorf("logged\n%swant %s", f.log, want)
	}
	logged := f.log.Len()
	f.open(t, auth.Options{})
	if f.log.Len() != logged {
		t.Errorf("what is there at the start was logged:\n%s", f.log)
	}
}
