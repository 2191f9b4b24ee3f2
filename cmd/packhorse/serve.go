package main

import (
	"context"
	"log/slog"

	"packhorse/api/audit"
)

// serveCommand is the server for production.
type serveCommand struct {
	Data    string `help:"Data folder; created if missing." placeholder:"DIR" required:"" type:"path" is:"new folder"`
	Listen  string `help:"Address to serve on." placeholder:"ADDR" required:"" is:"address"`
	Orgs    string `help:"Folder of organizations, with their public keys in ORG/KID.pem. Changes take effect within seconds. Required without --keys, whose database has them otherwise: see packhorse org apply." placeholder:"DIR" type:"path" is:"folder"`
	TLSCert string `help:"Certificate chain for HTTPS, PEM." placeholder:"FILE" type:"path" is:"file"`
	TLSKey  string `help:"Private key of the certificate, PEM." placeholder:"FILE" type:"path" is:"file"`

	auditFlags
	serverFlags
}

// What is wrong with flags of serve that are good one by one.
var (
	errHalfTLS = &usageError{"--tls-cert and --tls-key go together"}
	errNoOrgs  = &usageError{"missing flags: --orgs=DIR"}
)

// Run serves until ctx ends. SIGHUP makes it read keys, certificate and log level again, and open
// the audit log again.
func (c serveCommand) Run(ctx context.Context, again reparse, to streams) error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errHalfTLS
	}
	if c.Orgs == "" && !c.shared() {
		return errNoOrgs
	}
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	reload := catchHangup(level, func() (slog.Level, error) {
		now, err := again()
		if err != nil {
			return 0, err
		}
		return now.Serve.LogLevel, nil
	})
	s, err := openServer(ctx, place{c.Data, c.Orgs, c.Listen, c.TLSCert, c.TLSKey, c.Audit}, c.serverFlags, reload, to)
	if err != nil {
		return err
	}
	return s.serve(ctx, func() error {
		if c.Audit == audit.Stdout { // which has nothing but records then
			to.out = to.errOut
		}
		return to.printf("packhorse serves %s\n", s.url)
	})
}
