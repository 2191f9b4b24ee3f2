package main

import (
	"context"
	"crypto/tls"
)

// serveCommand serves for real.
type serveCommand struct {
	Data    string `help:"Folder of the repositories; it is made if it does not exist." placeholder:"DIR" required:"" type:"path"`
	Listen  string `help:"Address to serve on." placeholder:"ADDR" required:""`
	Orgs    string `help:"Folder of organizations: ORG/KID.pem are their public keys. Changes count while serving." placeholder:"DIR" required:"" type:"path"`
	TLSCert string `help:"Certificate chain to serve HTTPS with: PEM." placeholder:"FILE" type:"path"`
	TLSKey  string `help:"Its private key: PEM." placeholder:"FILE" type:"path"`

	serverFlags
}

// Run serves until ctx ends.
func (c serveCommand) Run(ctx context.Context, to streams) error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return &usageError{"--tls-cert and --tls-key go together"}
	}
	var config *tls.Config
	if c.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return err
		}
		config = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	s, err := openServer(ctx, c.Data, c.Listen, c.Orgs, config, c.serverFlags, to)
	if err != nil {
		return err
	}
	return s.serve(ctx, func() error { return to.printf("packhorse serves %s\n", s.url) })
}
