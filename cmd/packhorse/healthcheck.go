package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// healthcheckCommand asks the server of this machine or container whether it is ready. Its flags
// are those of serve, so that it finds the server by the same environment and configuration file.
type healthcheckCommand struct {
	Listen  string        `help:"Address and port that the server listens on." placeholder:"ADDR" required:"" is:"address"`
	TLSCert string        `help:"Its certificate chain, PEM, if it serves HTTPS." placeholder:"FILE" type:"path" name:"tls-cert" is:"file"`
	Timeout time.Duration `help:"Time to wait for the answer." default:"5s" min:"1ms"`
}

// healthTextMax bounds the answer that is printed, in bytes.
const healthTextMax = 1 << 10

// Run prints what /readyz says. It fails unless the server is ready.
func (c healthcheckCommand) Run(ctx context.Context, to streams) error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return &usageError{fmt.Sprintf("--listen: %v", err)}
	}
	if address := net.ParseIP(host); host == "" || address != nil && address.IsUnspecified() {
		host = "localhost"
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
		if transport.TLSClientConfig, err = pinned(c.TLSCert); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, healthTextMax))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %d: %s", response.StatusCode, strings.TrimSpace(string(text)))
	}
	return to.printf("%s\n", strings.TrimSpace(string(text)))
}

// pinned trusts the first certificate of a file, and no other, by whatever name the server is
// reached.
func pinned(path string) (*tls.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return &tls.Config{
		InsecureSkipVerify: true, // the name is not that of the loopback; the certificate is compared instead
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
				return fmt.Errorf("the server has another certificate than %s", path)
			}
			return nil
		},
	}, nil
}
