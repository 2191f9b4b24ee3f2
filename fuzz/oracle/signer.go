package oracle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Signer makes git sign with one key.
type Signer struct {
	Public []byte   // its public key, as it would be registered
	Args   []string // of git, before its command; the command itself asks for the signature, as with -S
}

// SSHSigner makes a key of a kind that ssh-keygen knows. Without ssh-keygen the test is skipped.
func SSHSigner(tb testing.TB, kind string) Signer {
	tb.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		tb.Skip("skipped: no ssh-keygen here")
	}
	path := filepath.Join(tb.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "test", "-f", path).
		CombinedOutput(); err != nil {
		tb.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	public, err := os.ReadFile(path + ".pub")
	if err != nil {
		tb.Fatal(err)
	}
	return Signer{public, []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + path}}
}

// PGPSigner makes a key of a kind that gpg knows, in a folder of its own. Without gpg the test is
// skipped.
func PGPSigner(tb testing.TB, kind string) Signer {
	tb.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		tb.Skip("skipped: no gpg here")
	}
	home, err := os.MkdirTemp("", "gpg") // short: a socket lies in it
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() // its agent may have gone
		if err := os.RemoveAll(home); err != nil {
			tb.Error(err)
		}
	})
	gpg := func(args ...string) []byte {
		tb.Helper()
		cmd := exec.Command("gpg", append(
			[]string{"--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""}, args...,
		)...)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		if err != nil {
			tb.Fatalf("gpg %q: %v\n%s", args, err, errOut.Bytes())
		}
		return out
	}
	gpg("--quick-generate-key", "Signer <signer@example.com>", kind, "sign", "never")
	program := filepath.Join(home, "gpg.sh")
	WriteScript(tb, program, "#!/bin/sh\nexec gpg --homedir "+home+" --batch \"$@\"\n")
	return Signer{
		gpg("--armor", "--export"), []string{"-c", "gpg.program=" + program, "-c", "user.signingkey=signer@example.com"},
	}
}
