package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"packhorse/engine/organization"
	"packhorse/odb/kv"
)

// rows reads organizations from a key-value store. It is used by one goroutine at a time.
type rows struct {
	keys   kv.Store
	logger *slog.Logger
	now    func() time.Time
	state  organization.State // as of the last read that succeeded
	orgs   map[string]*issuer
	failed error     // of the last read
	told   time.Time // when a failure was logged
}

// present reports whether organizations are rows: whether there has ever been one.
func (r *rows) present() bool { return r.state.Version != (organization.Version{}) }

// scan reads what has changed, which is one row if nothing has, and returns the organizations by
// name. After a failure they are those of before.
func (r *rows) scan(ctx context.Context) map[string]*issuer {
	before := r.failed
	r.failed = r.read(ctx)
	switch now := r.now(); {
	case r.failed == nil && before != nil:
		r.logger.InfoContext(ctx, "organizations in the database: readable again")
	case r.failed != nil && now.Sub(r.told) >= alarmEvery && !errors.Is(ctx.Err(), context.Canceled):
		r.told = now
		r.logger.ErrorContext(ctx, "organizations in the database: failed to read, keeping the last known state",
			"error", r.failed)
	}
	return r.orgs
}

func (r *rows) read(ctx context.Context) error {
	version, err := organization.Current(ctx, r.keys)
	if err != nil || version == r.state.Version && r.orgs != nil {
		return err
	}
	state, err := organization.Load(ctx, r.keys, r.state)
	if err != nil {
		return err
	}
	orgs := make(map[string]*issuer, len(state.Orgs))
	for name, stored := range state.Orgs {
		before := r.orgs[name]
		if before == nil || before.version != stored.Version {
			before = r.understand(name, stored, before)
		}
		orgs[name] = before
	}
	r.state, r.orgs = state, orgs
	return nil
}

// understand reads the files of an organization as those of its folder are read: what was stored by
// a release that knows more is left out and logged, and an org.yaml leaves the previous one in
// force. A key whose bytes are the same is the same.
func (r *rows) understand(name string, stored organization.Organization, before *issuer) *issuer {
	org := &issuer{keys: make(map[string]*key), config: defaultOrgConfig(), version: stored.Version}
	was := r.state.Orgs[name].Files
	complain := func(file string, err error) {
		r.logger.Warn("organizations in the database: invalid entry", "path", path.Join(name, file), "reason", err)
	}
	for _, file := range slices.Sorted(maps.Keys(stored.Files)) {
		id, isKey := strings.CutSuffix(file, keyExtension)
		if !isKey {
			continue
		}
		if before != nil && before.keys[id] != nil && bytes.Equal(was[file], stored.Files[file]) {
			org.add(before.keys[id])
		} else if key, err := newKey(id, stored.Files[file]); err != nil {
			complain(file, err)
		} else {
			org.add(key)
		}
	}
	data, found := stored.Files[configName]
	if !found {
		return org
	}
	config, err := configOf(data, stored.Files)
	switch {
	case config != nil:
		org.config = config
	case before != nil:
		org.config = before.config
	default:
		org.config = unreadOrgConfig()
	}
	if err != nil {
		complain(configName, err)
	}
	return org
}

// add registers another key. Keys are added in the order of their files.
func (o *issuer) add(key *key) {
	o.keys[key.id] = key
	o.sorted = append(o.sorted, key)
}

// configOf reads an org.yaml beside other files of the organization. The configuration is not nil
// if only a signing key is missing. Errors: [ErrOrgConfig].
func configOf(data []byte, files organization.Files) (*OrgConfig, error) {
	config, err := ParseOrgConfig(data)
	if err != nil {
		return nil, err
	}
	for _, signer := range config.SigningKeys {
		if files[signer] == nil {
			err = fmt.Errorf("%w: signing_keys: %s is missing", ErrOrgConfig, signer)
		}
		config.SigningKeyData = append(config.SigningKeyData, files[signer])
	}
	return config, err
}
