// Package packhorsetest runs the packhorse binary as a process, for tests and benchmarks that want
// the real thing.
//
// Start at [Build] and [Start]. It needs the go command, and nothing of the testing package.
package packhorsetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Org is the organization of every server that [Start] starts.
const Org = "acme"

// Build compiles the binary into dir, with the tags given, and returns its path.
func Build(ctx context.Context, dir string, tags ...string) (string, error) {
	bin := filepath.Join(dir, "packhorse")
	build := exec.CommandContext(ctx, "go", "build", "-tags", strings.Join(tags, ","), "-o", bin,
		"packhorse/cmd/packhorse")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build packhorse: %w\n%s", err, out)
	}
	return bin, nil
}

// Options of [Start]. Bin and Dir are required.
type Options struct {
	Bin    string   // the binary
	Dir    string   // holds everything of the server; a second Start continues with the data of the first
	Flags  []string // more flags of packhorse serve; it logs only warnings by default
	Config string   // the configuration file, "" for none; it then decides the log level
	TLS    bool     // serve HTTPS, with a certificate for 127.0.0.1 from [Server.CACert]
	Env    []string // more of the environment
	Orgs   string   // the Dir of another server, whose organizations this one has; "" for its own
	// Rows is the database of --keys, in which the organizations are stored: see [Server.ApplyOrgs].
	// "" has the server read them from their folder.
	Rows string

	// Log, if not nil, is called with each line that the process prints or logs, before Start returns
	// and after it. It must not block.
	Log func(line string)
}

// Server is a packhorse serve process. Its methods may be called concurrently.
type Server struct {
	URL    string // "http://127.0.0.1:port"
	CACert string // file of the certificate to trust, "" without TLS

	bin    string
	key    string
	tlsKey string
	orgDir string
	rows   string
	cmd    *exec.Cmd
	output output
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

// Start serves on a free port of the loopback, and returns when the server is ready. Stop or Kill
// it.
func Start(ctx context.Context, o Options) (*Server, error) {
	home := cmp.Or(o.Orgs, o.Dir)
	orgs := filepath.Join(home, "orgs")
	s := &Server{
		bin: o.Bin, key: filepath.Join(home, "private.pem"), orgDir: filepath.Join(orgs, Org), rows: o.Rows,
		exited: make(chan struct{}),
	}
	if err := s.register(ctx); err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--data", filepath.Join(o.Dir, "data"), "--listen", "127.0.0.1:0",
		"--min-free", "1MiB", // how full the machine's disk is decides on no test
	}
	if o.Rows == "" {
		args = append(args, "--orgs", orgs)
	} else if err := s.ApplyOrgs(ctx); err != nil {
		return nil, err
	}
	if o.Config != "" {
		args = append(args, "--config", o.Config)
	} else {
		args = append(args, "--log-level", "warn")
	}
	if o.TLS {
		s.CACert = filepath.Join(o.Dir, "tls.pem")
		s.tlsKey = filepath.Join(o.Dir, "tls.key")
		if err := s.NewCertificate(); err != nil {
			return nil, err
		}
		args = append(args, "--tls-cert", s.CACert, "--tls-key", s.tlsKey)
	}
	// The process outlives ctx, which bounds only its start.
	s.cmd = exec.Command(o.Bin, append(args, o.Flags...)...)
	s.cmd.Env = append(os.Environ(), o.Env...)
	s.output.line, s.output.log = make(chan string, 1), o.Log
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.exited)
		s.err = s.cmd.Wait()
	}()
	select {
	case line := <-s.output.line:
		s.URL = line
		return s, nil
	case <-s.exited:
		return nil, fmt.Errorf("packhorse serve: %w\n%s", s.err, s.Output())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.Kill())
	}
}

// register makes the organization's key unless an earlier Start has.
func (s *Server) register(ctx context.Context) error {
	if _, err := os.Stat(s.key); err == nil {
		return nil
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	if err := writePEM(s.key, "PRIVATE KEY", der); err != nil {
		return err
	}
	if der, err = x509.MarshalPKIXPublicKey(private.Public()); err != nil {
		return err
	}
	if err := writePEM(s.public(), "PUBLIC KEY", der); err != nil {
		return err
	}
	return s.AddOrg(ctx, Org)
}

// public is the file of the key that tokens are verified with.
func (s *Server) public() string { return filepath.Join(filepath.Dir(s.key), "public.pem") }

// AddOrg registers another organization, whose tokens are signed with the same key: see
// [Server.KeyFile].
func (s *Server) AddOrg(ctx context.Context, org string) error {
	add := exec.CommandContext(ctx, s.bin, "org", "add", org, "--key", s.public(), "--orgs", filepath.Dir(s.orgDir))
	if out, err := add.CombinedOutput(); err != nil {
		return fmt.Errorf("packhorse org add: %w\n%s", err, out)
	}
	return nil
}

// ApplyOrgs makes the rows of organizations equal to the folder.
func (s *Server) ApplyOrgs(ctx context.Context) error {
	apply := exec.CommandContext(ctx, s.bin, "org", "apply", filepath.Dir(s.orgDir), "--keys", s.rows, "--prune")
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("packhorse org apply: %w\n%s", err, out)
	}
	return nil
}

// Token signs a token for a repository. Flags are flags of packhorse token; by default the token
// may read and write.
func (s *Server) Token(ctx context.Context, repo string, flags ...string) (string, error) {
	args := append([]string{"token", "--org", Org, "--key", s.key, "--repo", repo}, flags...)
	out, err := exec.CommandContext(ctx, s.bin, args...).Output()
	if err != nil {
		return "", fmt.Errorf("packhorse token: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// NewCertificate replaces the certificate and its key.
func (s *Server) NewCertificate() error { return WriteCertificate(s.CACert, s.tlsKey) }

// Rows is the database in which the organizations are stored, "" for a folder.
func (s *Server) Rows() string { return s.rows }

// OrgDir is the folder of the organization's keys and its org.yaml.
func (s *Server) OrgDir() string { return s.orgDir }

// KeyFile is the organization's private key, PEM of PKCS #8.
func (s *Server) KeyFile() string { return s.key }

// PID is the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Output returns everything that the process has printed and logged so far.
func (s *Server) Output() string { return s.output.String() }

// Stop asks for an orderly stop and waits for it. It fails when the process does not exit with
// status 0 within a minute.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exited:
		if s.err != nil {
			return fmt.Errorf("packhorse serve: %w\n%s", s.err, s.Output())
		}
		return nil
	case <-time.After(time.Minute):
		return errors.Join(errors.New("packhorse serve did not stop within a minute of SIGTERM"), s.Kill())
	}
}

// Kill ends the process immediately, as a crash does, and waits for its end.
func (s *Server) Kill() error {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.exited
	return nil
}

// output gathers the output of a process, and extracts its lines and the base URL in one of them.
type output struct {
	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
	seen int  // bytes of text already returned as lines
	told bool // the base URL

	log  func(line string) // may be nil
	line chan string       // has room for one
}

// serving begins the line that packhorse prints when it is ready.
const serving = "packhorse serves "

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	for {
		text, _, ended := bytes.Cut(o.text.Bytes()[o.seen:], []byte("\n"))
		if !ended {
			return len(p), nil
		}
		o.seen += len(text) + 1
		line := string(text)
		if o.log != nil {
			o.log(line)
		}
		if url, ok := strings.CutPrefix(line, serving); ok && !o.told {
			o.told = true
			o.line <- strings.Fields(url)[0]
		}
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
