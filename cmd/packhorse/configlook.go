package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/odb/space"
)

// certificateLeft is the validity below which a certificate is odd.
const certificateLeft = 14 * 24 * time.Hour

// look looks at what the flags name, as serve does before it opens anything, and at what they say
// together. It leaves out what is in bad. running says that a server has the data folder open.
func (c *configCheckCommand) look(ctx context.Context, bad map[string]bool, found *findings) (running bool) {
	good := func(names ...string) bool {
		for _, name := range names {
			if bad[name] {
				return false
			}
		}
		return true
	}
	if good("tls-cert", "tls-key") {
		c.lookAtTLS(time.Now(), found)
	}
	if good("keys", "files", "orgs") {
		c.lookAtOrgs(found)
	}
	if good("upstream-allow", "github-app-id", "github-app-key", "github-api") {
		_, err := (&server{flags: c.serverFlags}).upstreams()
		found.fail(err)
	}
	if good("secret-key") {
		found.fail(checkSecret(c.SecretKey))
		lookAtSecret("--secret-key", c.SecretKey, found)
	}
	if good("audit") && c.Audit == audit.Syslog {
		found.fail(tryAudit(ctx, c.Audit))
	}
	if good("data") {
		found.fail(cmp.Or(checkDataFolder(c.Data), checkRestored(c.Data), checkForeign(c.Data,
			c.Orgs, c.TLSCert, c.TLSKey, c.Audit, c.SecretKey, c.Upstream.GithubAppKey)))
		if good("keys", "files") {
			found.fail(c.check(c.Data))
		}
		running = c.lookAtData(ctx, good("min-free"), found)
	}
	if good("listen", "admin-listen") && !running {
		c.tryAddresses(ctx, found)
	}
	c.lookAtSizes(found)
	return running
}

// lookAtTLS looks at the certificate and its key.
func (c *configCheckCommand) lookAtTLS(now time.Time, found *findings) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		found.fail(errHalfTLS)
	}
	if c.TLSCert == "" || c.TLSKey == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		found.fail(badTLS(c.TLSCert, c.TLSKey, err))
		return
	}
	if left := pair.Leaf.NotAfter.Sub(now); left < 0 {
		found.add("--tls-cert: %s ended on %s", c.TLSCert, moment(pair.Leaf.NotAfter, now))
	} else if left < certificateLeft {
		found.warn("--tls-cert: %s ends on %s", c.TLSCert, moment(pair.Leaf.NotAfter, now))
	}
	lookAtSecret("--tls-key", c.TLSKey, found)
}

// lookAtSecret warns of a file that other users can read.
func lookAtSecret(flag, path string, found *findings) {
	if path == "" {
		return
	}
	const others = 0o007
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&others != 0 {
		found.warn("%s: other users of this machine can read %s: run chmod 600", flag, path)
	}
}

// lookAtOrgs reads the organizations of the folder as a server does.
func (c *configCheckCommand) lookAtOrgs(found *findings) {
	if c.Orgs == "" {
		if !c.shared() {
			found.fail(errNoOrgs)
		}
		return
	}
	heard := &complaints{}
	orgs, err := auth.Open(auth.Options{Dir: c.Orgs, Logger: slog.New(heard)})
	if err != nil {
		found.add("--orgs: %v", err)
		return
	}
	defer orgs.Close()
	for _, text := range heard.all() {
		found.add("--orgs: %s", text)
	}
	if len(orgs.Orgs()) == 0 {
		found.warn("--orgs: %s has no organization yet: packhorse org generate makes one", c.Orgs)
	}
}

// complaints are the warnings and errors about a folder of organizations.
type complaints struct {
	slog.Handler // nil: With is not called

	mu    sync.Mutex // guards texts
	texts []string
}

// Enabled implements [slog.Handler].
func (c *complaints) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

// Handle keeps the path and the reason of a record.
func (c *complaints) Handle(_ context.Context, record slog.Record) error {
	path, reason := "", record.Message
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "path":
			path = a.Value.String() + ": "
		case "reason", "error":
			reason = a.Value.String()
		}
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts = append(c.texts, path+oneLine(errors.New(reason)))
	return nil
}

func (c *complaints) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.texts
}

// tryAudit connects to the syslog of the machine, and writes nothing.
func tryAudit(ctx context.Context, name string) error {
	w, err := openAudit(name, streams{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return closeAudit(ctx, w)
}

// lookAtData looks at who can read the data folder, at its disk, and for a server.
func (c *configCheckCommand) lookAtData(ctx context.Context, withMinFree bool, found *findings) (running bool) {
	folder := c.Data
	info, err := os.Stat(folder)
	for errors.Is(err, fs.ErrNotExist) && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
		info, err = os.Stat(folder)
	}
	if err != nil {
		found.add("--data: %v", err)
		return false
	}
	if folder == c.Data && info.Mode().Perm()&othersMode != 0 {
		found.warn("--data: other users of this machine can read %s: run chmod 700", c.Data)
	}
	if withMinFree {
		lookAtDisk(folder, c.MinFree, found)
	}
	var dial net.Dialer
	conn, err := dial.DialContext(ctx, "unix", filepath.Join(c.Data, adminSocket))
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was said
	return true
}

// lookAtDisk warns of a disk on which writes would be refused.
func lookAtDisk(folder string, minFree byteSize, found *findings) {
	var disk unix.Statfs_t
	if unix.Statfs(folder, &disk) != nil {
		return // the server finds out
	}
	free, total := disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize)
	least := uint64(minFree)
	if least == 0 {
		least = space.MinFree(total)
	}
	if free < least {
		found.warn("--min-free: writes are refused below %s, and %s are free on the disk of %s",
			space.Size(least), space.Size(free), folder)
	}
}

// tryAddresses listens on the addresses of the server, all at once, and serves nobody.
func (c *configCheckCommand) tryAddresses(ctx context.Context, found *findings) {
	for _, at := range []struct{ flag, address string }{{"--listen", c.Listen}, {"--admin-listen", c.AdminListen}} {
		if at.address == "" {
			continue
		}
		var listen net.ListenConfig
		l, err := listen.Listen(ctx, "tcp", at.address)
		if err != nil {
			found.fail(listenError(at.flag, at.address, err))
			continue
		}
		defer func() { _ = l.Close() }()
	}
}

// lookAtSizes looks for sizes and numbers that do not fit each other or the machine.
func (c *configCheckCommand) lookAtSizes(found *findings) {
	if limit, ok := controlGroupMemory(os.ReadFile); ok && c.Memory > limit {
		found.warn("--memory: %s is more than the %s of the control group", c.Memory, limit)
	}
	if c.IngestMemory > c.Memory {
		found.warn("--ingest-memory: %s for one pack is more than --memory, %s for all", c.IngestMemory, c.Memory)
	}
	if requests := byteSize(c.share(requestsShare)); c.JSONMax > requests {
		found.warn("--json-max: a body of %s is more than requests get of --memory, %s", c.JSONMax, requests)
	}
	if c.Limits.ObjectMax > c.Limits.InflatedMax {
		found.warn("--object-max: no push brings an object of %s, which is more than --inflated-max, %s",
			c.Limits.ObjectMax, c.Limits.InflatedMax)
	}
	if c.Connections > 0 && c.ConnectionsPerAddress > c.Connections {
		found.warn("--connections-per-address: %d is more than --connections, %d", c.ConnectionsPerAddress, c.Connections)
	}
	var open syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &open) == nil && uint64(c.Connections) > open.Max {
		found.warn("--connections: %d is more than the open files that this process may have, %d", c.Connections, open.Max)
	}
}
