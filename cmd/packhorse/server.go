package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"packhorse/api"
	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/api/console"
	"packhorse/api/githttp"
	"packhorse/api/rest"
	"packhorse/cmd/packhorse/otlp"
	"packhorse/engine"
	"packhorse/engine/organization"
	"packhorse/engine/quota"
	"packhorse/engine/reach"
	"packhorse/odb/kv"
)

// serverFlags are the common flags of dev and serve.
type serverFlags struct {
	TrustedProxies        []string      `help:"Networks of proxies whose X-Forwarded-For names the client: CIDR or address, comma-separated." placeholder:"CIDR" is:"network"`
	CORSOrigin            []string      `help:"Origins whose web pages may use the API and speak git, comma-separated; * for any." placeholder:"ORIGIN" name:"cors-origin" is:"origin"`
	AdminListen           string        `help:"Separate address for metrics and profiles; they are then not served on the public one." placeholder:"ADDR" is:"address"`
	DrainDelay            time.Duration `help:"How long to accept connections after SIGTERM while /readyz reports draining." default:"0s"`
	Drain                 time.Duration `help:"How long running requests may continue after that." default:"30s"`
	IdleWait              time.Duration `help:"How long an idle connection is kept; at most 10s without a valid token." default:"75s" min:"1ms"`
	SecretKey             string        `help:"File of 32 random bytes that encrypts stored credentials; required for credentials." placeholder:"FILE" type:"path" is:"new file"`
	Console               bool          `help:"Serve the console, read-only pages for people, at /console." default:"true"`
	ScrubRate             byteSize      `help:"Bytes per second at which scrubbing rereads the store to find damage; 0 turns it off." default:"4MiB"`
	JSONMax               byteSize      `help:"Maximum size of a JSON body." default:"1MiB" group:"Limits" min:"1KiB"`
	Connections           int           `help:"Maximum number of open connections; 0: half of the open-file limit, or all but 4,096." default:"0" group:"Limits"`
	ConnectionsPerAddress int           `help:"Maximum number of open connections of an IPv4 address or IPv6 /64, except loopback and trusted proxies; 0: a quarter of --connections." default:"0" group:"Limits"`
	HeavyMax              int           `help:"Concurrent heavy computations; one organization gets half of them. 0: three for each core." default:"0" group:"Limits"`
	WorkMax               time.Duration `help:"Maximum computing time of a request: diff, merge, blame, search, last commits, histories." default:"1m" group:"Limits" min:"1ms"`

	Tracing     tracingFlags     `embed:"" group:"Tracing"`
	Upstream    upstreamFlags    `embed:"" group:"Upstreams"`
	Webhook     webhookFlags     `embed:"" prefix:"webhook-" group:"Upstreams"`
	Maintenance maintenanceFlags `embed:"" prefix:"maintenance-" group:"Maintenance"`

	logFlags
	storeFlags
}

// server is the server of a process with all its parts.
type server struct {
	url   string // base URL, with the port that was chosen
	begun time.Time

	flags        serverFlags
	logger       *slog.Logger
	reloader     *reloader
	certificates *certificates // nil without TLS
	audit        *audit.Writer // nil: there is no audit log
	store        *store
	tokens       *auth.Verifier
	api          *api.Server
	listener     net.Listener
	private      []privateListener
	reach        *reach.Watch // of the key-value store
	tracer       *otlp.Tracer // nil: none
}

// privateListener serves an endpoint that is not for clients.
type privateListener struct {
	net.Listener
	http   *http.Server
	cancel context.CancelFunc // cancels its requests
}

// place has the folders of a server, its address and its certificate.
type place struct {
	data, orgs string // folders
	address    string // to listen on
	cert, key  string // files of the certificate; "" for none
	audit      string // where the audit log goes; "" for nowhere
}

// openServer opens the listeners and the stores. Until serve is called every request is answered
// with 503, except /healthz. reload forwards SIGHUP to the server. Nothing is logged or made before
// all is checked that can be.
func openServer(ctx context.Context, at place, flags serverFlags, reload *reloader, to streams) (_ *server, err error) {
	s := &server{begun: time.Now(), flags: flags, logger: flags.loggerAt(to.errOut, reload.level), reloader: reload}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	around := outside{
		open:        divideFiles(api.FilesMax(flags.Connections)),
		maintenance: flags.Maintenance.settings(), signingKeys: func(org string) [][]byte {
			config, ok := s.tokens.OrgConfig(org)
			if !ok {
				return nil
			}
			return config.SigningKeyData
		}, quotas: s.quotas, keepHistory: s.keepHistory, scrub: engine.ScrubOptions{BytesPerSecond: int64(flags.ScrubRate)},
		census: censusEvery,
	}
	if around.webhooks, err = s.webhooks(); err != nil {
		return nil, err
	}
	if around.upstreams, err = s.upstreams(); err != nil {
		return nil, err
	}
	if err := cmp.Or(checkSecret(flags.SecretKey), checkPlace(at.data, flags.sharedFlags), checkForeign(at.data,
		at.orgs, at.cert, at.key, at.audit, flags.SecretKey, flags.Upstream.GithubAppKey)); err != nil {
		return nil, err
	}
	if kv.InUse(filepath.Join(at.data, lockedFolder(flags.sharedFlags))) {
		return nil, fmt.Errorf("%s %w", at.data, errInUse)
	}
	if err := s.listen(ctx, at.address); err != nil {
		return nil, err
	}
	if err := tryAddress(ctx, "--admin-listen", flags.AdminListen); err != nil {
		return nil, err
	}
	var config *tls.Config
	if at.cert != "" {
		if s.certificates, err = followCertificates(at.cert, at.key, s.logger); err != nil {
			return nil, badTLS(at.cert, at.key, err)
		}
		config = s.certificates.config()
	}
	if s.audit, err = openAudit(at.audit, to, s.logger); err != nil {
		return nil, err
	}
	if s.audit != nil {
		around.committed = s.audit.Committed
	}
	if flags.shared() {
		around.openOrgs = func(ctx context.Context, keys kv.Store) (func(), error) { return s.openOrgs(ctx, at.orgs, keys) }
		around.followOrg = func(ctx context.Context, org string, row []byte) error { return s.tokens.Follow(ctx, org, row) }
	} else if s.tokens, err = auth.Open(auth.Options{Dir: at.orgs, Logger: s.logger, Changed: s.orgChanged}); err != nil {
		return nil, err
	}
	early := s.answerEarly(config)
	defer func() { err = errors.Join(err, early.stop()) }()
	if around.secretKey, err = readSecret(flags.SecretKey); err != nil {
		return nil, err
	}
	if s.tracer, err = flags.Tracing.open(ctx, s.logger); err != nil {
		return nil, err
	}
	around.tracer = s.spans()
	if s.store, err = openStore(ctx, at.data, flags.storeFlags, around, s.logger); err != nil {
		return nil, err
	}
	if s.api, err = s.newAPI(config); err != nil {
		return nil, err
	}
	if flags.AdminListen != "" {
		var listen net.ListenConfig
		l, err := listen.Listen(ctx, "tcp", flags.AdminListen)
		if err != nil {
			return nil, listenError("--admin-listen", flags.AdminListen, err)
		}
		s.addPrivate(l, s.api.Admin())
		s.logger.Info("serving metrics and profiles", "url", "http://"+l.Addr().String())
	}
	if l, err := listenAdminSocket(ctx, filepath.Join(at.data, adminSocket)); err != nil {
		s.logger.Warn("failed to open the admin socket: maintenance commands cannot reach this server", "error", err)
	} else {
		s.addPrivate(l, adminHandler(s.store.host, s.tasks(), beatEvery, s.logger, s.audit))
	}
	return s, nil
}

// openOrgs begins to follow the organizations of servers that share their stores: the rows there,
// or as long as there are none a folder, if one is given. shut ends that.
func (s *server) openOrgs(ctx context.Context, folder string, keys kv.Store) (shut func(), err error) {
	version, err := organization.Current(ctx, keys)
	if err != nil {
		return nil, err
	}
	if folder != "" && version != (organization.Version{}) {
		return nil, &usageError{"--orgs: the organizations are in the database of --keys: leave --orgs out, " +
			"and change them with packhorse org apply"}
	}
	if s.tokens, err = auth.Open(auth.Options{
		Dir: folder, Keys: keys, Logger: s.logger, Changed: s.orgChanged,
	}); err != nil {
		return nil, err
	}
	if folder == "" && len(s.tokens.Orgs()) == 0 {
		s.logger.WarnContext(ctx, "there is no organization yet: packhorse org apply stores some in the database")
	}
	return s.tokens.Close, nil
}

// listen opens the listener.
func (s *server) listen(ctx context.Context, address string) (err error) {
	var listen net.ListenConfig
	if s.listener, err = listen.Listen(ctx, "tcp", address); err != nil {
		return listenError("--listen", address, err)
	}
	return nil
}

// answerEarly has the listener answered while the stores are opened.
func (s *server) answerEarly(config *tls.Config) *starting {
	scheme := "http"
	if config != nil {
		scheme = "https"
		s.certificates.logLoaded()
	}
	s.url = scheme + "://" + reachable(s.listener.Addr())
	s.logger.Info("opening the stores", "url", s.url)
	return answerStarting(s.listener.(*net.TCPListener), config)
}

// tryAddress returns why an address of a flag cannot be listened on; "" is none.
func tryAddress(ctx context.Context, flag, address string) error {
	if address == "" {
		return nil
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return listenError(flag, address, err)
	}
	return l.Close()
}

// listenError is why an address of a flag cannot be listened on.
func listenError(flag, address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return &usageError{fmt.Sprintf(
			"%s: %s: address already in use; choose another one with %s (127.0.0.1:0 takes any free port)", flag, address, flag)}
	}
	if errors.Is(err, fs.ErrPermission) {
		return &usageError{fmt.Sprintf("%s: %v: this user may not listen on a port below 1024: choose another one, "+
			"or grant the right CAP_NET_BIND_SERVICE (setcap, or AmbientCapabilities of systemd)", flag, err)}
	}
	return &usageError{fmt.Sprintf("%s: %v: expected an address of this machine that is free", flag, err)}
}

// reachable returns the host and port at which this machine reaches a listener, also for one on all
// addresses.
func reachable(address net.Addr) string {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return address.String()
}

func (s *server) addPrivate(l net.Listener, handler http.Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	s.private = append(s.private, privateListener{l, &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}, cancel})
}

// quotas returns the quotas that an organization has now.
func (s *server) quotas(org string) quota.Limits {
	config, ok := s.tokens.OrgConfig(org)
	if !ok {
		return quota.Limits{}
	}
	return quota.Limits{
		Organization: int64(config.Limits.QuotaBytes), Repository: int64(config.Limits.RepositoryQuotaBytes),
	}
}

// keepHistory is [keptHistory] as the server has it now.
func (s *server) keepHistory(org string) (time.Duration, bool) { return keptHistory(s.tokens, org) }

// newAPI joins the doors to the host.
func (s *server) newAPI(config *tls.Config) (*api.Server, error) {
	proxies, err := parseNetworks(s.flags.TrustedProxies)
	if err != nil {
		return nil, &usageError{"--trusted-proxies: " + err.Error()}
	}
	git := githttp.New(githttp.Config{
		Host: s.store.host, Agent: "packhorse/" + version, PackBytesMax: int64(s.flags.Limits.PackMax),
		Recheck: s.tokens.Recheck, OrgConfig: s.tokens.OrgConfig,
	})
	programs := rest.New(rest.Config{
		Host: s.store.host, Recheck: s.tokens.Recheck, OrgConfig: s.tokens.OrgConfig,
		Verify: func(token string) (*auth.Grant, error) { return s.tokens.Verify("Bearer " + token) },
	})
	routes := api.Routes(programs)
	documents, err := api.Documents(routes, version)
	if err != nil {
		return nil, err
	}
	var pages []console.File
	if s.flags.Console {
		if pages, err = console.Files(); err != nil {
			return nil, err
		}
	}
	s.reach = reach.Begin(s.store.host.Reach)
	return api.NewServer(api.Config{
		Tokens: s.tokens,
		Routes: routes, Documents: documents, Console: pages,
		Refuse:   rest.Refuse,
		Git:      api.Git{Serve: git.Serve, Refuse: githttp.Refuse},
		TLS:      config,
		Ready:    func() error { return cmp.Or(s.store.space.Err(), s.reach.Err(), s.store.silent()) },
		Writable: s.store.space.Check, Damage: s.store.damageCount, Figures: slices.Concat(
			s.store.figures(), s.store.sharedFigures(), maintenanceFigures(s.store.host), scrubFigures(s.store.host),
			censusFigures(s.store.host),
			webhookFigures(s.store.host), upstreamFigures(s.store.host), s.certificates.figures(), auditFigures(s.audit),
		),
		Durations:      s.store.sharedDurations(),
		Private:        s.flags.AdminListen != "",
		Audit:          s.audit,
		Tracer:         s.spans(),
		TrustedProxies: proxies,
		Origins:        s.flags.CORSOrigin,
		Limits:         s.limits(),
		Processors:     s.store.processors,
		Logger:         s.logger,
		Version:        version,
	})
}

// parseNetworks reads networks and single addresses.
func parseNetworks(texts []string) ([]netip.Prefix, error) {
	networks := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, addressErr := netip.ParseAddr(text)
			if addressErr != nil {
				return nil, fmt.Errorf("%q is neither a network (10.0.0.0/8) nor an address", text)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}

func (s *server) limits() api.Limits {
	return api.Limits{
		ConnsMax: s.flags.Connections, ConnsPerAddress: s.flags.ConnectionsPerAddress,
		JSONBytes:   int64(s.flags.JSONMax),
		PushBytes:   int64(s.flags.Limits.PackMax),
		IdleWait:    s.flags.IdleWait,
		HeavySlots:  s.flags.HeavyMax,
		WorkMax:     s.flags.WorkMax,
		MemoryBytes: s.flags.share(requestsShare),
	}
}

// serve calls ready, and answers until ctx ends; then it lets running requests finish and closes
// everything.
func (s *server) serve(ctx context.Context, ready func() error) error {
	ended := make(chan error, 1+len(s.private))
	for _, p := range s.private {
		go func() { ended <- p.http.Serve(p.Listener) }() // bare: it accepts, and has no work of its own
	}
	go func() { ended <- s.api.Serve(s.listener) }() // bare: as above
	s.logStart()

	err := ready()
	for stopping := err != nil; !stopping; {
		select {
		case <-ctx.Done():
			s.logger.Info("stopping", "drain_delay", s.flags.DrainDelay, "drain", s.flags.Drain)
			err = s.leave(ended)
			stopping = true
		case err = <-ended:
			err = fmt.Errorf("a listener failed: %w", err)
			stopping = true
		case <-s.reloader.signals:
			s.reloader.start(s)
		}
	}
	for _, p := range s.private {
		p.cancel() // maintenance ends immediately; it can be started again
	}
	stopping := context.WithoutCancel(ctx)
	drain, cancel := context.WithTimeout(stopping, s.flags.Drain)
	defer cancel()
	if drainErr := s.api.Shutdown(drain); drainErr != nil {
		s.logger.Warn("requests were cut off", "error", drainErr)
	}
	err = errors.Join(err, s.close(stopping))
	s.logger.Info("stopped")
	return err
}

// leave reports to readiness checks that the server is about to stop, and continues to serve for
// --drain-delay.
func (s *server) leave(ended <-chan error) error {
	s.api.Leave()
	select {
	case <-time.After(s.flags.DrainDelay):
		return nil
	case err := <-ended:
		return fmt.Errorf("a listener failed: %w", err)
	}
}

// logStart logs the settings in force.
func (s *server) logStart() {
	s.logger.Info("serving", "url", s.url, "version", version, "go", runtime.Version(), "cores", runtime.GOMAXPROCS(0),
		"organizations", len(s.tokens.Orgs()))
	f := s.flags
	s.logger.Info("limits", "memory", f.Memory, "ingest_memory", byteSize(f.ingestMemory()), "object", f.Limits.ObjectMax,
		"pack", f.Limits.PackMax,
		"inflated", f.Limits.InflatedMax, "objects", f.Limits.ObjectsMax, "delta_depth", f.Limits.DeltaDepthMax, "tree_depth",
		f.Limits.TreeDepthMax,
		"commands", f.Limits.CommandsMax, "operations", f.Limits.OperationsMax, "last_commits", f.Limits.LastCommitMax,
		"refs", f.Limits.RefsMax,
		"json", f.JSONMax, "diff_file", f.Limits.DiffFileMax, "merge", f.Limits.MergeMaxBytes)
}

// close closes the listeners and the stores.
func (s *server) close(ctx context.Context) error {
	var errs []error
	for _, p := range s.private {
		p.cancel()
		errs = append(errs, p.http.Shutdown(ctx), closeListener(p)) // Shutdown waits for the handlers, which use the store
	}
	if s.listener != nil {
		errs = append(errs, closeListener(s.listener))
	}
	if s.reach != nil {
		s.reach.Close()
	}
	s.reloader.running.Wait()
	if s.store != nil {
		errs = append(errs, s.store.close(ctx))
	}
	if s.tokens != nil {
		s.tokens.Close()
	}
	if s.certificates != nil {
		s.certificates.close()
	}
	if s.audit != nil { // last, when nobody is left who writes to it
		errs = append(errs, closeAudit(ctx, s.audit))
	}
	s.endTracing(ctx)
	return errors.Join(errs...)
}

// closeListener closes a listener unless it is closed.
func closeListener(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
