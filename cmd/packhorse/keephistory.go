package main

import (
	"context"
	"log/slog"
	"math"
	"time"

	"packhorse/api/auth"
	"packhorse/engine/organization"
	"packhorse/odb/kv"
)

// keptHistory returns for how long an organization has its repositories kept as they were, false
// for the default. While its org.yaml is not understood, nothing is given up.
func keptHistory(tokens *auth.Verifier, org string) (time.Duration, bool) {
	config, ok := tokens.OrgConfig(org)
	switch {
	case !ok:
		return 0, false
	case config.Unread:
		return math.MaxInt64, true
	case config.KeepHistory == nil:
		return 0, false
	}
	return time.Duration(*config.KeepHistory), true
}

// organizations are those whose settings bind maintenance without a server.
type organizations struct {
	tokens *auth.Verifier // nil when nothing is known of them
	logger *slog.Logger
	shared bool
	grace  bool // otherwise the default binds them
}

// openOrgs reads the folder of organizations, if one is given.
func (c gcCommand) openOrgs(to streams) (*organizations, error) {
	return c.organizations(c.Orgs, c.Grace != nil, to)
}

// organizations reads a folder of organizations, unless that is "". grace is whether the default
// binds organizations of which nothing is known.
func (f taskFlags) organizations(folder string, grace bool, to streams) (_ *organizations, err error) {
	o := &organizations{logger: f.logger(to.errOut), shared: f.shared(), grace: grace}
	if folder != "" {
		o.tokens, err = auth.Open(auth.Options{Dir: folder, Logger: o.logger})
	}
	return o, err
}

func (o *organizations) close() {
	if o.tokens != nil {
		o.tokens.Close()
	}
}

// follow reads the organizations that are rows of the database, which then count alone.
func (o *organizations) follow(ctx context.Context, keys kv.Store) (shut func(), err error) {
	shut = func() {}
	if o.shared {
		version, err := organization.Current(ctx, keys)
		if err != nil {
			return nil, err
		}
		if version != (organization.Version{}) {
			o.close()
			if o.tokens, err = auth.Open(auth.Options{Keys: keys, Logger: o.logger}); err != nil {
				return nil, err
			}
			return func() { o.close(); o.tokens = nil }, nil
		}
	}
	if o.tokens == nil && !o.grace {
		o.logger.WarnContext(ctx, "no history is given up: without --orgs it is not known how long organizations keep it")
	}
	return shut, nil
}

// config returns the settings of an organization, false if they are not known.
func (o *organizations) config(org string) (*auth.OrgConfig, bool) {
	if o.tokens == nil {
		return nil, false
	}
	return o.tokens.OrgConfig(org)
}

// history returns for how long an organization has its repositories kept as they were.
func (o *organizations) history(org string) (time.Duration, bool) {
	switch {
	case o.tokens != nil:
		return keptHistory(o.tokens, org)
	case o.grace:
		return 0, false
	}
	return math.MaxInt64, true
}
