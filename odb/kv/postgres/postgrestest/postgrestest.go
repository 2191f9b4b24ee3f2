// Package postgrestest starts PostgreSQL for tests, breaks it, and stands between it and a store.
//
// [Main] runs the tests of a package with one cluster, which [Database] starts when the first test
// asks for a database; every test gets its own. [Schema] is a cheaper place for a store. A test
// that stops or replaces a server starts one of its own with [Start]. [Proxy] delays, cuts and
// freezes connections.
//
// The binaries are those of /usr/lib/postgresql (Debian) or of the PATH. Without them the tests are
// skipped. PACKHORSE_TEST_KEYS names a server where databases may be made, as a URL, which
// [Database] uses instead.
package postgrestest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// environment names a server to use instead of one that is started.
const environment = "PACKHORSE_TEST_KEYS"

// connectionsMax is max_connections of a cluster.
const connectionsMax = 400

// room is what the tests of a binary share.
var room struct {
	mu      sync.Mutex // guards everything below
	folder  string     // of all clusters; empty before the first one
	janitor *janitor
	bins    string // folder of the binaries
	user    *syscall.Credential
	why     string // there are no clusters
	tried   bool
	shared  *Cluster
	made    int // clusters
}

// Main runs the tests of a binary, ends what they started, and returns the status to exit with.
func Main(m *testing.M) int {
	status := m.Run()
	room.mu.Lock()
	defer room.mu.Unlock()
	if room.janitor != nil {
		if err := room.janitor.end(); err != nil {
			fmt.Fprintln(os.Stderr, "postgrestest:", err)
			return max(status, 1)
		}
	}
	return status
}

// Database returns the URL of a new, empty database, which is dropped when the test ends. The test
// is skipped where there is no PostgreSQL.
func Database(tb testing.TB) string {
	tb.Helper()
	return makeDatabase(tb, server(tb))
}

// server returns the URL of the server of this binary.
func server(tb testing.TB) string {
	tb.Helper()
	if named := os.Getenv(environment); named != "" {
		return named
	}
	return sharedCluster(tb).URL("postgres")
}

// Schema returns a URL whose tables lie in a new, empty schema of a database that others use, which
// is dropped when the test ends. It costs a tenth of [Database]. The test is skipped where there is
// no PostgreSQL.
func Schema(tb testing.TB) string {
	tb.Helper()
	database, name := server(tb), newName()
	run(tb, database, "CREATE SCHEMA "+name)
	tb.Cleanup(func() { run(tb, database, "DROP SCHEMA "+name+" CASCADE") })
	parsed, err := url.Parse(database)
	if err != nil {
		tb.Fatal("the URL of the server is none")
	}
	query := parsed.Query()
	query.Set("search_path", name)
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// newName returns the name of a database or of a schema.
func newName() string {
	var random [6]byte
	_, _ = rand.Read(random[:])
	return fmt.Sprintf("packhorse_test_%x", random)
}

// makeDatabase makes a database on the server of a URL.
func makeDatabase(tb testing.TB, server string) string {
	tb.Helper()
	name := newName()
	run(tb, server, "CREATE DATABASE "+name)
	tb.Cleanup(func() { run(tb, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	return withDatabase(tb, server, name)
}

// withDatabase returns the URL with another database.
func withDatabase(tb testing.TB, server, name string) string {
	tb.Helper()
	parsed, err := url.Parse(server)
	if err != nil {
		tb.Fatal("the URL of the server is none")
	}
	parsed.Path = "/" + name
	return parsed.String()
}

// run executes statements over a connection of its own.
func run(tb testing.TB, server string, statements ...string) {
	tb.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		tb.Errorf("connect: %v", err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			tb.Errorf("%s: %v", sql, err)
		}
	}
}

// Exec runs statements in the database of a URL.
func Exec(tb testing.TB, database string, statements ...string) {
	tb.Helper()
	run(tb, database, statements...)
}

// sharedCluster returns the cluster of this binary.
func sharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	room.mu.Lock()
	defer room.mu.Unlock()
	if room.shared == nil {
		room.shared = start(tb, nil)
	}
	return room.shared
}

// Cluster is a PostgreSQL server of a test. Its methods are for one goroutine at a time.
type Cluster struct {
	folder string // has the folder of the data and that of the socket
	server *exec.Cmd
	output *bytes.Buffer
}

// Start returns a new cluster with additional lines for postgresql.conf, which ends with the test.
func Start(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	room.mu.Lock()
	defer room.mu.Unlock()
	c := start(tb, settings)
	tb.Cleanup(func() { c.remove(tb) })
	return c
}

// start makes and starts a cluster. The caller holds room.mu.
func start(tb testing.TB, settings []string) *Cluster {
	tb.Helper()
	prepare(tb)
	c := newCluster(tb)
	template := filepath.Join(room.folder, "template")
	if _, err := os.Stat(template); err != nil {
		command(tb, "initdb", "--pgdata="+template, "--username=postgres", "--auth=trust", "--encoding=UTF8",
			"--locale=C", "--no-sync")
	}
	command(tb, "/bin/cp", "-a", template, c.data())
	c.configure(tb, append([]string{
		"listen_addresses = ''", "unix_socket_directories = '" + c.folder + "'",
		"max_connections = " + strconv.Itoa(connectionsMax), "shared_buffers = 64MB",
		"dynamic_shared_memory_type = mmap", "fsync = on", "synchronous_commit = on", "wal_level = replica", "max_wal_senders = 5", "max_wal_size = 256MB", "autovacuum_naptime = 5s",
	}, settings...))
	c.boot(tb)
	return c
}

// newCluster returns a cluster with an empty folder.
func newCluster(tb testing.TB) *Cluster {
	tb.Helper()
	room.made++
	c := &Cluster{folder: filepath.Join(room.folder, strconv.Itoa(room.made))}
	if err := os.Mkdir(c.folder, 0o700); err != nil {
		tb.Fatal(err)
	}
	own(tb, c.folder)
	return c
}

func (c *Cluster) data() string { return filepath.Join(c.folder, "data") }

// configure adds lines to postgresql.conf.
func (c *Cluster) configure(tb testing.TB, lines []string) {
	tb.Helper()
	file, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.WriteString(file, strings.Join(lines, "\n")+"\n")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Configure changes settings of a cluster that runs, as lines of postgresql.conf.
func (c *Cluster) Configure(tb testing.TB, lines ...string) {
	tb.Helper()
	c.configure(tb, lines)
	if err := c.server.Process.Signal(syscall.SIGHUP); err != nil {
		tb.Fatal(err)
	}
}

// URL returns the address of a database of the cluster, over its socket.
func (c *Cluster) URL(database string) string {
	return "postgres://postgres@/" + database + "?host=" + url.QueryEscape(c.folder)
}

// Socket returns the path of the socket, for a proxy.
func (c *Cluster) Socket() string { return filepath.Join(c.folder, ".s.PGSQL.5432") }

// Database makes a database on the cluster and returns its name. It goes with the cluster.
func (c *Cluster) Database(tb testing.TB) string {
	tb.Helper()
	run(tb, c.URL("postgres"), "CREATE DATABASE packhorse")
	return "packhorse"
}

// Crash stops the server at once, as pg_ctl stop -m immediate does: what it had in memory is lost.
func (c *Cluster) Crash(tb testing.TB) {
	tb.Helper()
	c.stop(tb, syscall.SIGQUIT)
}

// Restart starts a server that Crash has stopped, and returns when it answers.
func (c *Cluster) Restart(tb testing.TB) {
	tb.Helper()
	c.boot(tb)
}

// stop ends the server with a signal.
func (c *Cluster) stop(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if c.server == nil {
		return
	}
	if err := c.server.Process.Signal(signal); err != nil {
		tb.Error(err)
	}
	_ = c.server.Wait() // its status tells of the signal
	c.server = nil
}

// remove ends the cluster and deletes its folder.
func (c *Cluster) remove(tb testing.TB) {
	tb.Helper()
	c.stop(tb, syscall.SIGQUIT)
	if tb.Failed() && c.output != nil {
		tb.Logf("the server said:\n%s", c.output)
	}
	if err := os.RemoveAll(c.folder); err != nil {
		tb.Error(err)
	}
}

// Standby returns a synchronous standby of the cluster, which from now on answers no commit before
// the standby has it.
func (c *Cluster) Standby(tb testing.TB) *Cluster {
	tb.Helper()
	standby := c.sibling(tb)
	tb.Cleanup(func() { standby.remove(tb) })
	standby.Follow(tb, c)
	return standby
}

// Follow makes a synchronous standby of another cluster, as [Cluster.Standby] does, of one that has
// crashed. What it held is deleted.
func (c *Cluster) Follow(tb testing.TB, primary *Cluster) {
	tb.Helper()
	if err := os.RemoveAll(c.data()); err != nil {
		tb.Fatal(err)
	}
	command(tb, "pg_basebackup", "--pgdata="+c.data(), "--host="+primary.folder, "--username=postgres",
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	c.configure(tb, []string{"unix_socket_directories = '" + c.folder + "'"})
	c.boot(tb)
	primary.Configure(tb, "synchronous_standby_names = '*'")
	primary.await(tb, "SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')")
}

// sibling returns a cluster with an empty folder.
func (c *Cluster) sibling(tb testing.TB) *Cluster {
	tb.Helper()
	room.mu.Lock()
	defer room.mu.Unlock()
	return newCluster(tb)
}

// Promote makes a primary of a standby.
func (c *Cluster) Promote(tb testing.TB) {
	tb.Helper()
	c.configure(tb, []string{"synchronous_standby_names = ''"})
	command(tb, "pg_ctl", "promote", "--pgdata="+c.data(), "--wait")
}

// await waits until a question is answered with true. The time limit is for servers that never
// will.
func (c *Cluster) await(tb testing.TB, question string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		var yes bool
		conn, err := pgx.Connect(ctx, c.URL("postgres"))
		if err == nil {
			err = conn.QueryRow(ctx, question).Scan(&yes)
			_ = conn.Close(ctx)
		}
		if yes {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("the server does not come so far: %v\n%s", err, c.output)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// boot starts the server and returns when it answers.
func (c *Cluster) boot(tb testing.TB) {
	tb.Helper()
	c.output = new(bytes.Buffer)
	c.server = exec.Command(filepath.Join(room.bins, "postgres"), "-D", c.data())
	c.server.Stdout, c.server.Stderr = c.output, c.output
	c.server.SysProcAttr = &syscall.SysProcAttr{Credential: room.user, Setpgid: true}
	c.server.Dir = c.folder
	if err := c.server.Start(); err != nil {
		tb.Fatal(err)
	}
	c.await(tb, "SELECT true")
}

// prepare finds the binaries and makes the folder, or skips the test. The caller holds room.mu.
func prepare(tb testing.TB) {
	tb.Helper()
	if !room.tried {
		room.tried = true
		room.bins = findBinaries()
		if room.bins == "" {
			room.why = "PostgreSQL is not installed"
		} else if err := settle(); err != nil {
			room.why = err.Error()
		}
	}
	if room.why != "" {
		tb.Skip("no PostgreSQL to test with: " + room.why)
	}
}

// findBinaries returns the folder of the newest PostgreSQL.
func findBinaries() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	return ""
}

func version(path string) int {
	number, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return number
}

// settle makes the folder of all clusters and starts the janitor. PostgreSQL refuses to run as
// root, so root runs it as somebody else.
func settle() error {
	if os.Geteuid() == 0 {
		for _, name := range []string{"postgres", "nobody"} {
			if found, err := user.Lookup(name); err == nil {
				uid, _ := strconv.Atoi(found.Uid)
				gid, _ := strconv.Atoi(found.Gid)
				room.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
				break
			}
		}
		if room.user == nil {
			return errors.New("there is no user postgres or nobody")
		}
	}
	folder, err := os.MkdirTemp(place(), "packhorse-pg") // short: the path of a socket has at most 107 bytes
	if err != nil {
		return err
	}
	room.folder = folder
	if room.user != nil {
		if err := os.Chown(folder, int(room.user.Uid), int(room.user.Gid)); err != nil {
			return err
		}
	}
	room.janitor, err = hire(folder)
	return err
}

// memory is a folder in memory, and memoryBytesMin what clusters may need there. A crash of a
// server loses nothing of it, so tests are as strict there and do not wait for a disk.
const (
	memory         = "/dev/shm"
	memoryBytesMin = 2 << 30
)

// place returns where the folder of all clusters is made: where TMPDIR says, or else in memory if
// there is enough.
func place() string {
	var free syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &free) != nil || free.Bavail*uint64(free.Bsize) < memoryBytesMin {
		return ""
	}
	return memory
}

// own gives a folder to the user of the servers.
func own(tb testing.TB, folder string) {
	tb.Helper()
	if room.user == nil {
		return
	}
	if err := os.Chown(folder, int(room.user.Uid), int(room.user.Gid)); err != nil {
		tb.Fatal(err)
	}
}

// command runs a program of PostgreSQL, or of an absolute path, as its user.
func command(tb testing.TB, name string, args ...string) {
	tb.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(room.bins, name)
	}
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: room.user}
	cmd.Dir = room.folder
	if output, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", name, err, output)
	}
}

// janitor is a process that ends all servers below a folder, and removes it, when this process ends
// in whatever way: when the pipe to it is closed.
type janitor struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

// janitorScript gets the folder as $0. A process counts as a server of ours if its arguments name
// the folder.
const janitorScript = `
read -r _
for file in "$0"/*/data/postmaster.pid; do
	[ -f "$file" ] || continue
	pid=$(head -n 1 "$file")
	ps -p "$pid" -o args= | grep -qF "$0" || continue
	kill -QUIT "$pid"
	while ps -p "$pid" -o stat= | grep -q '^[^Z]'; do sleep 0.05; done
done
rm -rf "$0"`

// hire starts a janitor, in a process group of its own, so that an interrupt of the tests does not
// reach it.
func hire(folder string) (*janitor, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript, folder)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: room.user, Setpgid: true}
	cmd.Dir = "/"
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &janitor{cmd: cmd, pipe: pipe}, cmd.Start()
}

// end lets the janitor do its work, and waits for it.
func (j *janitor) end() error { return errors.Join(j.pipe.Close(), j.cmd.Wait()) }

// Hosts returns the URL of a database that is on one of several clusters, the one that takes
// writes.
func Hosts(database string, clusters ...*Cluster) string {
	var folders []string
	for _, c := range clusters {
		folders = append(folders, c.folder)
	}
	return "postgres://postgres@/" + database + "?target_session_attrs=read-write&host=" +
		url.QueryEscape(strings.Join(folders, ","))
}
