package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/api"
	"packhorse/odb/rescue"
)

// certificates is a certificate that follows its two files. New connections get the last pair that
// was read and matches.
type certificates struct {
	certFile, keyFile string
	logger            *slog.Logger
	current           atomic.Pointer[tls.Certificate]

	mu      sync.Mutex // guards the fields below
	inForce string     // content of the files of current
	broken  string     // content that did not match at the last look
	told    bool       // the log, of broken

	stop    context.CancelFunc
	running sync.WaitGroup
}

// certificatesEvery is the interval at which the files are checked.
const certificatesEvery = time.Second

// followCertificates reads a chain and its private key, both PEM, and follows their changes until
// close. It logs the changes.
func followCertificates(certFile, keyFile string, logger *slog.Logger) (*certificates, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile, logger: logger}
	if err := c.look(true); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	rescue.Keep(ctx, &c.running, certificatesEvery, func(ctx context.Context) error {
		ticker := time.NewTicker(certificatesEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				_ = c.look(false) // look logs the error
			}
		}
	}, func(err error) { logger.Error("failed to watch the certificate files", "error", err) })
	return c, nil
}

// badTLS is why two files are no certificate and its key.
func badTLS(certFile, keyFile string, err error) error {
	return &usageError{fmt.Sprintf("--tls-cert and --tls-key: %s and %s: %v", certFile, keyFile, err)}
}

func (c *certificates) close() {
	c.stop()
	c.running.Wait()
}

// config serves the certificate that is current when a connection begins.
func (c *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.current.Load(), nil
	}}
}

// look reads the files. A pair that does not match leaves the previous one in force. It is logged
// as an error at the second look, because one file may be replaced a moment before the other, or at
// once with atOnce.
func (c *certificates) look(atOnce bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cert, certErr := os.ReadFile(c.certFile)
	key, keyErr := os.ReadFile(c.keyFile)
	held := strings.Join([]string{string(cert), string(key)}, "\x00")
	err := errors.Join(certErr, keyErr)
	if err == nil {
		if held == c.inForce {
			c.broken, c.told = "", false
			return nil
		}
		var pair tls.Certificate
		if pair, err = tls.X509KeyPair(cert, key); err == nil {
			c.current.Store(&pair)
			c.inForce, c.broken, c.told = held, "", false
			if !atOnce { // else the server may yet be refused
				c.logLoaded()
			}
			return nil
		}
	}
	if held += "\x00" + err.Error(); held != c.broken {
		c.broken, c.told = held, false
		if !atOnce {
			return err
		}
	}
	if !c.told && c.current.Load() != nil {
		c.told = true
		c.logger.Error("failed to load the certificate, keeping the previous one", "cert", c.certFile, "key", c.keyFile,
			"error", err)
	}
	return err
}

// logLoaded logs which certificate is in force.
func (c *certificates) logLoaded() {
	leaf := c.current.Load().Leaf
	c.logger.Info("certificate loaded", "file", c.certFile, "names", leaf.DNSNames, "not_after", leaf.NotAfter)
}

// figures has the end of the current certificate. A nil c has none.
func (c *certificates) figures() []api.Figure {
	if c == nil {
		return nil
	}
	return []api.Figure{{
		Name: "tls_certificate_end_seconds", Help: "End of the current certificate, in seconds since 1970.",
		Value: func() float64 { return float64(c.current.Load().Leaf.NotAfter.Unix()) },
	}}
}
