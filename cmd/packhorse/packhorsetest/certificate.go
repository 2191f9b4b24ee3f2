package packhorsetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"time"
)

// WriteCertificate makes a certificate for the loopback that signs itself, good for a day.
func WriteCertificate(certFile, keyFile string) error {
	now := time.Now()
	return WriteCertificateOf(now.Add(-time.Hour), now.Add(24*time.Hour), certFile, keyFile)
}

// WriteCertificateOf is WriteCertificate for one that is good from one time until another.
func WriteCertificateOf(from, until time.Time, certFile, keyFile string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "packhorse test"},
		NotBefore:             from,
		NotAfter:              until,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:              []string{"localhost"},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return err
	}
	if err := writePEM(certFile, "CERTIFICATE", cert); err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	return writePEM(keyFile, "PRIVATE KEY", key)
}
