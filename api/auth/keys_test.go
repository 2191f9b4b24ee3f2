package auth_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"packhorse/api/auth"
)

// pair is a key pair in PEM.
type pair struct {
	private, public []byte
	signer          crypto.Signer
}

func newPair(signer crypto.Signer, err error) pair {
	if err != nil {
		panic(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		panic(err)
	}
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		panic(err)
	}
	return pair{
		private: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		public:  pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		signer:  signer,
	}
}

func newECPair(curve elliptic.Curve) pair { return newPair(ecdsa.GenerateKey(curve, rand.Reader)) }

// Keys that every test may use.
var (
	rsa2048 = sync.OnceValue(func() pair { return newPair(rsa.GenerateKey(rand.Reader, 2048)) })
	p256    = sync.OnceValue(func() pair { return newECPair(elliptic.P256()) })
	p384    = sync.OnceValue(func() pair { return newECPair(elliptic.P384()) })
	p521    = sync.OnceValue(func() pair { return newECPair(elliptic.P521()) })
	ed      = sync.OnceValue(func() pair {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return newPair(private, err)
	})
)

// clock is the time of the tests.
var clock = time.Unix(1_700_000_000, 0)

// fixture is a verifier over a folder of its own.
type fixture struct {
	*auth.Verifier
	dir string
	log *bytes.Buffer // written by Reload only
	now time.Time     // the present time for the verifier
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), log: &bytes.Buffer{}, now: clock}
	f.open(t, auth.Options{})
	return f
}

// open opens the folder again.
func (f *fixture) open(t *testing.T, options auth.Options) {
	t.Helper()
	var mu sync.Mutex
	options.Dir, options.Now = f.dir, func() time.Time { return f.now }
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(&lockedWriter{mu: &mu, buffer: f.log}, nil))
	}
	v, err := auth.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	v.Close() // the test says when to read the folder
	f.Verifier = v
}

type lockedWriter struct {
	mu     *sync.Mutex
	buffer *bytes.Buffer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buffer.Write(p)
}

// write puts a file into the folder without the verifier's noticing.
func (f *fixture) write(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// claims are those of a token that nothing is wrong with.
func claims() auth.Claims {
	return auth.Claims{
		Org: "acme", Subject: "ci", Repo: "team/project", Scopes: []string{"git:read", "git:write"},
		IssuedAt: clock, Expires: clock.Add(time.Hour),
	}
}

func mint(t *testing.T, key pair, c auth.Claims) string {
	t.Helper()
	token, err := auth.Mint(key.private, c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
