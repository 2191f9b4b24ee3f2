package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files that dev --tls adds to a data folder, below "tls".
const (
	devTLS     = "tls"
	devCA      = "ca.pem" // the certificate that clients trust
	devCAKey   = "ca.key"
	devCert    = "server.pem"
	devCertKey = "server.key"

	devCATime   = 10 * 365 * 24 * time.Hour
	devCertTime = 365 * 24 * time.Hour
	devCertLeft = 30 * 24 * time.Hour // remaining validity below which the certificate is renewed
)

// prepareTLS creates missing files: a certificate authority, and a certificate by it for the hosts.
// It returns the authority's certificate, and the server's with its key.
func prepareTLS(data string, hosts []string, now time.Time) (ca, cert, key string, err error) {
	dir := filepath.Join(data, devTLS)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", "", err
	}
	ca, cert, key = filepath.Join(dir, devCA), filepath.Join(dir, devCert), filepath.Join(dir, devCertKey)
	authority, err := tls.LoadX509KeyPair(ca, filepath.Join(dir, devCAKey))
	if errors.Is(err, fs.ErrNotExist) || err == nil && now.After(authority.Leaf.NotAfter.Add(-devCertTime)) {
		authority, err = issue(nil, &x509.Certificate{
			Subject:  pkix.Name{CommonName: "packhorse dev, made by " + hostname()},
			NotAfter: now.Add(devCATime), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
			KeyUsage: x509.KeyUsageCertSign,
		}, now, ca, filepath.Join(dir, devCAKey))
	}
	if err != nil {
		return "", "", "", err
	}
	if have, err := tls.LoadX509KeyPair(cert, key); err == nil && fits(have.Leaf, authority.Leaf, hosts, now) {
		return ca, cert, key, nil
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "packhorse dev"}, NotAfter: now.Add(devCertTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	_, err = issue(&authority, template, now, cert, key)
	return ca, cert, key, err
}

// fits reports whether a certificate is by the authority, for all of the hosts, and valid for long
// enough.
func fits(cert, authority *x509.Certificate, hosts []string, now time.Time) bool {
	if cert.CheckSignatureFrom(authority) != nil || now.After(cert.NotAfter.Add(-devCertLeft)) {
		return false
	}
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// issue makes a key and a certificate for it, signed by the authority or, without one, self-signed,
// and writes both, the key first.
func issue(
	authority *tls.Certificate, template *x509.Certificate, now time.Time, certFile, keyFile string,
) (tls.Certificate, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template.NotBefore = now.Add(-time.Hour)
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return tls.Certificate{}, err
	}
	parent, signer := template, any(private)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if err := errors.Join(writeWhole(keyFile, key, 0o600), writeWhole(certFile, cert, 0o644)); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// hostname is the machine's name, or localhost.
func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}
