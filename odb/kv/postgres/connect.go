package postgres

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"packhorse/odb/rescue"
)

const (
	// idleMax and lifeMax bound how long a connection stays: idle, and at all, so that connections
	// spread over servers that came back.
	idleMax = 10 * time.Minute
	lifeMax = time.Hour
	// lingerMax bounds how long a connection is kept that was given up.
	lingerMax = 5 * time.Minute
)

// keepAlive finds dead hosts behind connections on which nothing is said.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 4}

// sessionKey is the place of a *session in pgconn.PgConn.CustomData.
const sessionKey = "packhorse session"

// session is what belongs to one connection. Who has the connection uses it.
type session struct {
	link    *link
	rewinds uint64   // of the store when it was connected
	fence   [16]byte // the key of its row in kv_fence
	number  int64    // of that row, as this side knows it
	warned  bool     // by the server, since the last batch
}

// sessionOf returns the session of a connection of our pools.
func sessionOf(conn *pgx.Conn) *session {
	return conn.PgConn().CustomData()[sessionKey].(*session)
}

// CheckURL returns why address names no database, or nil. The error quotes no password. Nothing is
// connected to.
func CheckURL(address string) error {
	if _, err := pgxpool.ParseConfig(address); err != nil {
		return explainURL(address, err)
	}
	return nil
}

// openPools makes the pools. They connect when they are used.
func (s *Store) openPools(ctx context.Context, address string, conns int) error {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return explainURL(address, err)
	}
	s.place = placeOf(config)
	config.MaxConnIdleTime, config.MaxConnLifetime, config.MaxConnLifetimeJitter = idleMax, lifeMax, lifeMax/10
	config.MinConns, config.MinIdleConns = 0, 0
	// A dead connection is found by the call that uses it, and costs living ones no round trip.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	if mode := config.ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeCacheDescribe {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // answers are binary
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = s.deadline / 3 // of one host
	}
	parameters := config.ConnConfig.RuntimeParams
	if parameters["application_name"] == "" {
		parameters["application_name"] = "packhorse"
	}
	// A server that cancels a statement while its commit waits for a standby calls it done.
	parameters["statement_timeout"], parameters["lock_timeout"] = "0", "0"

	reading := config.Copy()
	reading.MaxConns = int32(conns - conns/2)
	reading.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	reading.BeforeConnect, reading.AfterConnect = s.beforeConnect(&s.readers), s.check
	s.readers.max = int(reading.MaxConns)
	writing := config.Copy()
	writing.MaxConns = int32(conns / 2)
	writing.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	writing.BeforeConnect, writing.AfterConnect = s.beforeConnect(&s.writers), s.checkWriter
	s.writers.max = int(writing.MaxConns)
	s.reads, err = pgxpool.NewWithConfig(ctx, reading)
	if err != nil {
		return translate(err)
	}
	s.writes, err = pgxpool.NewWithConfig(ctx, writing)
	if err != nil {
		s.reads.Close()
		return translate(err)
	}
	return nil
}

// placeOf names hosts and database of a configuration for messages.
func placeOf(config *pgxpool.Config) string {
	c := config.ConnConfig
	hosts := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
	for _, fallback := range c.Fallbacks {
		host := net.JoinHostPort(fallback.Host, strconv.Itoa(int(fallback.Port)))
		if host != hosts[len(hosts)-1] { // the same one without TLS
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, ",") + "/" + c.Database
}

// explainURL says what is wrong with a URL, as far as that does not show its password.
func explainURL(address string, err error) error {
	parsed, parseErr := url.Parse(address)
	if parseErr != nil || parsed.Scheme == "" {
		return errors.New("the URL of the database is none that PostgreSQL understands")
	}
	cause := errors.Unwrap(err)
	if cause == nil {
		cause = errors.New("it is none that PostgreSQL understands")
	}
	text := describe(cause)
	for _, secret := range secretsOf(parsed) {
		if strings.Contains(text, secret) {
			text = "it is none that PostgreSQL understands"
		}
	}
	return fmt.Errorf("the URL of the database %s: %s", parsed.Host+parsed.Path, text)
}

// secretsOf returns the passwords of a URL as it has them, and decoded.
func secretsOf(parsed *url.URL) []string {
	var secrets []string
	if password, ok := parsed.User.Password(); ok {
		secrets = append(secrets, password, url.QueryEscape(password), url.PathEscape(password))
	}
	for _, name := range []string{"password", "sslpassword"} {
		for _, value := range parsed.Query()[name] {
			secrets = append(secrets, value, url.QueryEscape(value))
		}
	}
	return slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" })
}

// beforeConnect returns a function that puts a link below a connection that is about to be made,
// and a session beside it.
func (s *Store) beforeConnect(kin *lingering) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, config *pgx.ConnConfig) error {
		s.prepareLink(config, kin)
		return nil
	}
}

func (s *Store) prepareLink(config *pgx.ConnConfig, kin *lingering) {
	var connected atomic.Bool
	dialer := &net.Dialer{KeepAliveConfig: keepAlive}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			// The driver wants to cancel the statement of a connection that it gave up. A commit that waits
			// for a standby would then be shown without it.
			return nil, net.ErrClosed
		}
		if kin.isFull(address) {
			return nil, errSilent
		}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		made := &link{Conn: conn, kin: kin, address: address}
		made.setSilence(s.deadline / 2)
		return made, nil
	}
	config.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
		connected.Store(true)
		state := &session{link: linkBelow(conn.Conn())}
		state.link.ready.Store(true)
		_, _ = rand.Read(state.fence[:]) // never fails
		conn.CustomData()[sessionKey] = state
		return nil
	}
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		state, ok := conn.CustomData()[sessionKey].(*session)
		if ok && severityOf((*pgconn.PgError)(notice)) == severityWarning {
			state.warned = true
			s.logger.Warn("kv: the database warns", "message", notice.Message, "detail", notice.Detail)
		}
	}
}

// linkBelow returns the link below a connection. The driver dials in the background, too, to cancel
// what it gave up.
func linkBelow(conn net.Conn) *link {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return conn.(*link)
}

// settingsSQL asks for the settings that promises of the store rest on, and tells the planner of
// PostgreSQL that every statement goes by the primary key. Its own choice on small tables is to
// read them as a whole, which makes serializable transactions conflict with all others; and on
// large arrays to compare each with each. A session keeps the synchronous_commit that it was found
// with, also when the server is reloaded with another.
const settingsSQL = `SELECT
	coalesce(current_setting('synchronous_commit', true), 'on'),
	coalesce(current_setting('fsync', true), 'on'),
	coalesce(current_setting('transaction_read_only', true), 'off'),
	coalesce(current_setting('in_hot_standby', true), 'off'),
	version(),
	CASE WHEN version() LIKE 'PostgreSQL %' THEN concat(
		set_config('synchronous_commit', current_setting('synchronous_commit'), false),
		set_config('enable_seqscan', 'off', false),
		set_config('enable_bitmapscan', 'off', false),
		set_config('enable_nestloop', 'off', false),
		set_config('enable_mergejoin', 'off', false),
		set_config('jit', 'off', false),
		set_config('plan_cache_mode', 'force_generic_plan', false)) END`

// settings is what a server says of itself.
type settings struct {
	synchronous, fsync, readOnly, standby, version string
}

// isPostgreSQL reports whether the server is PostgreSQL itself or a build of its sources.
func (s *settings) isPostgreSQL() bool { return strings.HasPrefix(s.version, "PostgreSQL ") }

// ask reads the settings of a connection and refuses those under which the store cannot keep its
// promises.
func (s *Store) ask(ctx context.Context, conn *pgx.Conn) (settings, error) {
	var found settings
	var planner *string
	err := s.trip(conn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, settingsSQL).Scan(
			&found.synchronous, &found.fsync, &found.readOnly, &found.standby, &found.version, &planner)
	})
	if err != nil {
		return found, err
	}
	return found, found.check()
}

// check refuses settings with a line that says how to mend them.
func (s *settings) check() error {
	switch {
	case s.standby == "on":
		return refuse("the server is a standby, which takes no writes: " +
			"give the primary, or all servers with target_session_attrs=read-write in the URL")
	case s.readOnly == "on":
		return refuse("the server takes no writes: set default_transaction_read_only = off for the role and the database")
	case s.fsync != "on":
		return refuse("fsync is %s, so a loss of power would damage the database: "+
			"set fsync = on in postgresql.conf and reload the server", s.fsync)
	case s.synchronous != "on" && s.synchronous != "remote_apply":
		return refuse("synchronous_commit is %s, so a crash would lose answered commits: "+
			"set synchronous_commit = on for the server, the database and the role", s.synchronous)
	default:
		return nil
	}
}

// check looks at a new connection.
func (s *Store) check(ctx context.Context, conn *pgx.Conn) error {
	found, err := s.ask(ctx, conn)
	if err != nil || !found.isPostgreSQL() {
		return err
	}
	return s.noteHistory(ctx, conn)
}

// checkWriter looks at a new connection and gives it a fence.
func (s *Store) checkWriter(ctx context.Context, conn *pgx.Conn) error {
	if err := s.check(ctx, conn); err != nil {
		return err
	}
	fence := sessionOf(conn).fence[:]
	return s.trip(conn, func(conn *pgx.Conn) error {
		raised, err := conn.Exec(ctx, raiseFenceSQL, fence, s.tenure.Load())
		if err == nil && raised.RowsAffected() == 0 {
			return errOusted
		}
		return err
	})
}

// lingering is the connections of a pool that were given up because nothing was said. The database
// may still be at work for them, such as on a commit that waits for a standby, and it must not be
// told to stop. They are kept until it has ended, and their number at each server is bounded, so
// that one that is merely slow does not get ever more of them.
type lingering struct {
	running sync.WaitGroup
	max     int

	mu     sync.Mutex          // guards everything below
	conns  map[net.Conn]string // with the address of the server
	closed bool
}

// isFull reports whether a server has so many of them that it gets no further connection.
func (g *lingering) isFull(address string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	count := 0
	for _, other := range g.conns {
		if other == address {
			count++
		}
	}
	return count >= g.max
}

// keep waits for the end of a connection, in the background.
func (g *lingering) keep(conn net.Conn, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = conn.Close()
		return
	}
	if g.conns == nil {
		g.conns = make(map[net.Conn]string)
	}
	g.conns[conn] = address
	rescue.Go(&g.running, func() error {
		if err := conn.SetDeadline(time.Now().Add(lingerMax)); err == nil {
			_, _ = conn.Read(make([]byte, 1)) // the answer, or the end
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, conn)
		return conn.Close()
	}, func(error) {}) // the connection is closed in any case
}

// close ends all of them.
func (g *lingering) close() {
	g.mu.Lock()
	g.closed = true
	for conn := range g.conns {
		_ = conn.Close()
	}
	g.mu.Unlock()
	g.running.Wait()
}

// link is a network connection that fails when the other side says nothing for too long.
type link struct {
	net.Conn
	kin     *lingering
	address string
	ready   atomic.Bool  // the database has taken the connection
	silence atomic.Int64 // nanoseconds
	left    atomic.Bool  // to kin
	limited atomic.Bool  // the driver has set a deadline of its own, to end a call
}

// setSilence sets how long a read or a write may take.
func (l *link) setSilence(d time.Duration) { l.silence.Store(int64(d)) }

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) {
	if l.left.Load() {
		return 0, net.ErrClosed
	}
	l.arm(l.SetReadDeadline)
	n, err := l.Conn.Read(p)
	return n, l.check(err)
}

// Write implements net.Conn.
func (l *link) Write(p []byte) (int, error) {
	if l.left.Load() {
		return 0, net.ErrClosed
	}
	l.arm(l.SetWriteDeadline)
	n, err := l.Conn.Write(p)
	return n, l.check(err)
}

// Close implements net.Conn.
func (l *link) Close() error {
	if l.left.Load() {
		return nil
	}
	return l.Conn.Close()
}

// SetDeadline implements net.Conn.
func (l *link) SetDeadline(t time.Time) error {
	if l.left.Load() {
		return net.ErrClosed
	}
	l.limited.Store(!t.IsZero())
	return l.Conn.SetDeadline(t)
}

// arm begins to wait, unless the driver has a deadline of its own, or sets one meanwhile.
func (l *link) arm(set func(time.Time) error) {
	if l.limited.Load() {
		return
	}
	_ = set(time.Now().Add(time.Duration(l.silence.Load()))) // fails where the read or write does
	if l.limited.Load() {
		_ = set(time.Unix(1, 0))
	}
}

// check leaves a connection on which nothing was said to its kin, and closes it after any other
// error. The driver would otherwise go on to talk to it for 15 seconds, and keep its place in the
// pool.
func (l *link) check(err error) error {
	switch {
	case err == nil:
	case isSilence(err) && !l.limited.Load() && l.ready.Load():
		if !l.left.Swap(true) {
			l.kin.keep(l.Conn, l.address)
		}
	default:
		_ = l.Close()
	}
	return err
}
