package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stranger runs the binary as a user who has no right to some files and folders: as nobody if the
// tests are root's, and else as oneself, with modes that lock oneself out.
type stranger struct {
	t      *testing.T
	dir    string
	bin    string
	isRoot bool
	paths  *strings.Replacer
}

// nobody is the number of a user who owns nothing.
const nobody = 65534

func newStranger(t *testing.T) *stranger {
	t.Helper()
	dir, err := os.MkdirTemp("", "packhorse-rights-")
	if err != nil {
		t.Fatal(err)
	}
	s := &stranger{t: t, dir: dir, bin: filepath.Join(dir, "packhorse"), isRoot: os.Geteuid() == 0}
	t.Cleanup(func() {
		for _, name := range []string{"locked", "readonly", "torn/keys", "orgs/bad", "fixed", "fixed/acme"} {
			_ = os.Chmod(s.at(name), 0o700) // what is not there needs none
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Link(bin, s.bin); err != nil {
		t.Fatal(err)
	}
	closed := fs.FileMode(0) // to oneself
	if s.isRoot {
		closed = 0o700
	}
	for _, name := range []string{"mine", "torn", "torn/keys", "orgs", "orgs/bad", "locked", "readonly", "fixed", "fixed/acme"} {
		s.must(os.Mkdir(s.at(name), 0o755))
	}
	for _, name := range []string{"file", "unreadable", "orgs/bad/k.pem", "fixed/acme/org.yaml"} {
		s.must(os.WriteFile(s.at(name), []byte("# text\n"), 0o644))
	}
	for _, name := range []string{"unreadable", "orgs/bad/k.pem"} {
		s.must(os.Chmod(s.at(name), closed&^0o111))
	}
	if s.isRoot {
		for _, name := range []string{"mine", "torn"} {
			s.must(os.Chown(s.at(name), nobody, nobody))
		}
	}
	for name, mode := range map[string]fs.FileMode{
		".": 0o755, "locked": closed, "torn/keys": closed, "readonly": 0o555, "fixed": 0o555, "fixed/acme": 0o555,
	} {
		s.must(os.Chmod(s.at(name), mode))
	}
	s.paths = strings.NewReplacer("FILE", s.at("file"), "MINE", s.at("mine"), "TORN", s.at("torn"), "ABSENT", s.at("mine/absent"),
		"LOCKED", s.at("locked"), "READONLY", s.at("readonly"), "UNREADABLE", s.at("unreadable"), "BADORGS", s.at("orgs"),
		"FIXED", s.at("fixed"), "SERVER", "--url http://127.0.0.1:1 --org acme", "SHARED", "--keys postgres://127.0.0.1:1/d")
	return s
}

func (s *stranger) at(name string) string { return filepath.Join(s.dir, name) }

func (s *stranger) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// run runs the binary to its end.
func (s *stranger) run(args ...string) (result, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute) // of a server that starts
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bin, args...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.at("mine")}
	if s.isRoot {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(""), &out, &errOut
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return result{}, err
	}
	return result{status: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}, nil
}

// tree is everything in the folder that oneself can see.
func (s *stranger) tree() (all []string) {
	s.t.Helper()
	s.must(filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		all = append(all, fmt.Sprint(path, " ", info.Mode(), " ", info.ModTime()))
		return nil
	}))
	return all
}

// TestWithoutRights has each flag and each argument that names a file or a folder name one to which
// the user has no right. Each command is refused with status 2 and one line that says how to mend
// that, and changes nothing.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	if got, err := s.run("version"); err != nil || got.status != 0 {
		t.Skipf("another user cannot run %s: %v %+v", s.bin, err, got)
	}
	before := s.tree()
	advice := "belongs to root: run the command as its owner, or change its owner or mode"
	if !s.isRoot {
		advice = ": change that with chmod"
	}
	const serve = "serve --listen 127.0.0.1:0 "
	for _, test := range []struct{ args, says string }{
		{serve + "--orgs MINE --data READONLY/x", "--data: open READONLY: permission denied: expected a folder that this user can write to; READONLY"},
		{serve + "--orgs MINE --data READONLY", "--data: open READONLY: permission denied: expected"},
		{serve + "--orgs MINE --data LOCKED", "--data: open LOCKED: permission denied: expected"},
		{serve + "--orgs MINE --data LOCKED/x/y", "--data: stat LOCKED/x/y: permission denied: expected a folder that this user can write to; LOCKED"},
		{serve + "--orgs MINE --data TORN", "--data: open TORN/keys: permission denied: expected a folder that this user can write to; TORN/keys"},
		{serve + "--data ABSENT --orgs LOCKED", "--orgs: open LOCKED: permission denied"},
		{serve + "--data ABSENT --orgs MINE --audit READONLY/a", "--audit: open READONLY: permission denied: expected a folder"},
		{serve + "--data ABSENT --orgs MINE --audit LOCKED/a", "--audit: open LOCKED/a: permission denied: expected a file"},
		{serve + "--data ABSENT --orgs MINE --audit UNREADABLE", "--audit: open UNREADABLE: permission denied: expected a file"},
		{serve + "--data ABSENT --orgs MINE --tls-cert FILE --tls-key UNREADABLE", "--tls-key: open UNREADABLE: permission denied"},
		{serve + "--data ABSENT --orgs MINE --tls-cert LOCKED/c --tls-key FILE", "--tls-cert: stat LOCKED/c: permission denied"},
		{serve + "--data ABSENT --orgs MINE --secret-key UNREADABLE", "--secret-key: open UNREADABLE: permission denied"},
		{serve + "--data ABSENT --orgs MINE --secret-key LOCKED/s", "--secret-key: stat LOCKED/s: permission denied"},
		{serve + "--data ABSENT --orgs MINE --github-app-id 7 --github-app-key UNREADABLE", "--github-app-key: open UNREADABLE"},
		{serve + "--data ABSENT --orgs MINE --config UNREADABLE", "--config: open UNREADABLE: permission denied"},
		{serve + "--data ABSENT --orgs MINE --config LOCKED/c", "--config: stat LOCKED/c: permission denied"},
		{"dev --listen 127.0.0.1:0 --data READONLY/x", "--data: open READONLY: permission denied"},
		{"dev --listen 127.0.0.1:0 --data ABSENT --secret-key READONLY/s", "--secret-key: READONLY/s is to be made: open READONLY"},
		{"dev --listen 127.0.0.1:0 --data ABSENT --secret-key UNREADABLE", "--secret-key: open UNREADABLE"},
		{"dev --listen 127.0.0.1:0 --data ABSENT --audit READONLY/a", "--audit: open READONLY"},
		{"config check --listen 127.0.0.1:0 --orgs FIXED --data READONLY/x", "--data: open READONLY"},
		{"config check --listen 127.0.0.1:0 --orgs FIXED --data TORN", "--data: open TORN/keys"},
		{"status --data LOCKED", "--data: open LOCKED"},
		{"org generate acme --orgs MINE --key READONLY/k", "--key: open READONLY"},
		{"org generate acme --orgs READONLY --key ABSENT", "--orgs: open READONLY"},
		{"org generate acme --orgs READONLY/x --key ABSENT", "--orgs: open READONLY"},
		{"org add acme --orgs MINE --key UNREADABLE", "--key: open UNREADABLE"},
		{"org add acme --orgs READONLY --key FILE", "--orgs: open READONLY"},
		{"org apply LOCKED SHARED", "<dir>: open LOCKED"},
		{"org export READONLY/x SHARED", "<dir>: open READONLY"},
		{"org list --orgs LOCKED", "--orgs: open LOCKED"},
		{"org show acme --orgs LOCKED", "--orgs: open LOCKED"},
		{"org remove acme --orgs FIXED", "--orgs: open FIXED: permission denied: expected a folder that this user can write to"},
		{"token sign --org acme --key UNREADABLE", "--key: open UNREADABLE"},
		{"token inspect a.b.c --key UNREADABLE", "--key: open UNREADABLE"},
		{"token inspect a.b.c --orgs LOCKED", "--orgs: open LOCKED"},
		{"credential get --url http://127.0.0.1:1 --org acme --key UNREADABLE", "--key: open UNREADABLE"},
		{"repos list SERVER --key UNREADABLE", "--key: open UNREADABLE"},
		{"import FILE SERVER --key UNREADABLE", "--key: open UNREADABLE"},
		{"import MINE SERVER --key FILE --github-token-file UNREADABLE", "--github-token-file: open UNREADABLE"},
		{"import LOCKED SERVER --key FILE", "<source>: open LOCKED: permission denied"},
		{"import @UNREADABLE SERVER --key FILE", "<source>: open UNREADABLE: permission denied"},
		{"export a READONLY/x SERVER --key FILE", "<dir>: open READONLY"},
		{"gc --data LOCKED", "--data: open LOCKED"},
		{"gc --data READONLY", "--data: open READONLY: permission denied: expected a folder that this user can write to"},
		{"gc --data MINE --orgs LOCKED", "--orgs: open LOCKED"},
		{"gc --data MINE --audit READONLY/a", "--audit: open READONLY"},
		{"fsck --data LOCKED", "--data: open LOCKED"},
		{"fsck --data TORN", "--data: open TORN/keys"},
		{"webhooks list --data LOCKED", "--data: open LOCKED"},
		{"webhooks retry --data LOCKED", "--data: open LOCKED"},
		{"backup take READONLY/x --data MINE", "<dest>: open READONLY"},
		{"backup take ABSENT --data LOCKED", "--data: open LOCKED"},
		{"backup list LOCKED", "<dir>: open LOCKED"},
		{"backup check LOCKED", "<dir>: open LOCKED"},
		{"backup forget READONLY --keep-last 1", "<dir>: open READONLY"},
		{"restore LOCKED --data ABSENT", "<src>: open LOCKED"},
		{"restore MINE --data READONLY/x", "--data: open READONLY"},
		{"restore MINE --data READONLY", "--data: open READONLY"},
		{"migrate --data READONLY SHARED --files s3://bucket", "--data: open READONLY"},
		{"migrate --data MINE SHARED --files s3://bucket --orgs LOCKED", "--orgs: open LOCKED: permission denied"},
		{"migrate --data ABSENT --back SHARED --files s3://bucket --orgs READONLY/x", "--orgs: open READONLY"},
		{"healthcheck --listen 127.0.0.1:1 --tls-cert UNREADABLE", "--tls-cert: open UNREADABLE"},
		{"man READONLY/x", "<dir>: open READONLY"},
	} {
		args, says := strings.Fields(s.paths.Replace(test.args)), s.paths.Replace(test.says)
		got, err := s.run(args...)
		if err != nil {
			t.Fatal(err)
		}
		complaint := ""
		for line := range strings.Lines(got.errOut) {
			if !strings.HasPrefix(line, "packhorse: warning: ") { // of config check
				complaint += line
			}
		}
		if got.status != 2 || got.out != "" || strings.Count(complaint, "\n") != 1 || !strings.HasPrefix(complaint, "packhorse: ") ||
			!strings.Contains(complaint, says) || !strings.Contains(got.errOut, advice) {
			t.Errorf("%s: status %d, %s%s\nwant one line with %s ... %s", test.args, got.status, got.out, got.errOut, says, advice)
		}
		if after := s.tree(); !slices.Equal(after, before) {
			t.Fatalf("%s: there is\n%s\nand was\n%s", test.args, strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
	}
	got, err := s.run(strings.Fields(s.paths.Replace("org show bad --orgs BADORGS"))...)
	if want := s.paths.Replace("BADORGS/bad/k.pem: want a file that this user can read"); err != nil || got.status != 2 ||
		!strings.Contains(got.errOut, want) {
		t.Errorf("a key that cannot be read: %v, %+v, want %s", err, got, want)
	}
}

// TestWithoutPort has a user listen on a port for which a right is needed.
func TestWithoutPort(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	if first, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil &&
		strings.TrimSpace(string(first)) == "0" {
		t.Skip("every user may listen on every port of this machine")
	}
	got, err := s.run(strings.Fields(s.paths.Replace("serve --listen 127.0.0.1:1 --data ABSENT --orgs MINE"))...)
	if err != nil {
		t.Skipf("another user cannot run %s: %v", s.bin, err)
	}
	if got.status != 2 || strings.Count(got.errOut, "\n") != 1 || !strings.Contains(got.errOut, "CAP_NET_BIND_SERVICE") {
		t.Errorf("%+v", got)
	}
}
