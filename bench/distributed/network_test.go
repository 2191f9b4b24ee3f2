package distributed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres/postgrestest"
)

// What is injected.
const (
	databaseTrip  = time.Millisecond       // each piece of a request to the database takes that long
	databaseFlush = 3 * time.Millisecond   // PostgreSQL waits that long before it flushes its log
	bucketRead    = 60 * time.Millisecond  // before the first byte of an answer to GET or HEAD
	bucketWrite   = 100 * time.Millisecond // and of one to anything else
)

// network is what the injected latency has become on this machine.
type network struct {
	trip, flush, get, put time.Duration // T, S, G and P
	getRate               float64       // bytes a second of one client that reads eight windows at a time
}

// near is set while nothing is delayed, but the flush of the database.
var near atomic.Bool

// line is a TCP proxy in front of a socket whose requests take longer. Answers pass at once: a trip
// pays its latency on the way there.
type line struct {
	socket   string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]struct{}
	closed bool
}

func newLine(tb testing.TB, socket string) *line {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &line{socket: socket, listener: listener, conns: make(map[net.Conn]struct{})}
	l.running.Go(l.accept)
	tb.Cleanup(l.close)
	return l
}

func (l *line) url(database string) string {
	return "postgres://postgres@" + l.listener.Addr().String() + "/" + database + "?sslmode=disable"
}

func (l *line) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
}

// keep notes a connection that ends with the line.
func (l *line) keep(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return
	}
	l.conns[conn] = struct{}{}
}

func (l *line) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
		_ = conn.Close()
	}
}

func (l *line) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", l.socket)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.keep(client)
		l.keep(server)
		pieces := make(chan piece, 64)
		l.running.Go(func() {
			defer close(pieces)
			readPieces(client, pieces)
		})
		l.running.Go(func() {
			defer l.drop(client, server)
			for p := range pieces {
				sleepUntil(p.due)
				if _, err := server.Write(p.data); err != nil {
					break
				}
			}
			for range pieces { // until the reader has noticed
				_ = client.Close()
			}
		})
		l.running.Go(func() {
			defer l.drop(client, server)
			_, _ = io.Copy(client, server)
		})
	}
}

// piece is data on its way, and when it arrives.
type piece struct {
	data []byte
	due  time.Time
}

func readPieces(from net.Conn, pieces chan<- piece) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p := piece{append([]byte(nil), buffer[:n]...), time.Now()}
			if !near.Load() {
				p.due = p.due.Add(databaseTrip)
			}
			pieces <- p
		}
		if err != nil {
			return
		}
	}
}

// sleepUntil waits in the kernel: the timers of Go are up to a millisecond late when a process has
// nothing else to do.
func sleepUntil(due time.Time) {
	if left := time.Until(due); left > 0 {
		request := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&request, nil) // an interrupted wait is a shorter one
	}
}

// delayed is what stands before the service of a bucket.
func delayed(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if near.Load() {
			service.ServeHTTP(w, r)
			return
		}
		due := time.Now().Add(bucketWrite)
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			sleepUntil(time.Now().Add(bucketRead))
			service.ServeHTTP(w, r)
			return
		}
		service.ServeHTTP(&late{ResponseWriter: w, due: due}, r)
	})
}

// late holds an answer back until it is due: the body of a request is read meanwhile.
type late struct {
	http.ResponseWriter
	due time.Time
}

func (l *late) WriteHeader(status int) {
	sleepUntil(l.due)
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (l *late) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// stores are a database and a place in a bucket, behind the network.
type stores struct {
	keys, files string
	env         []string // of a server
}

// services are what all stores of a run are in.
type services struct {
	cluster *postgrestest.Cluster
	line    *line
	bucket  *s3test.Server
	front   string    // the endpoint of the bucket, behind the network
	probe   *pgx.Conn // a client of the database
}

// startServices starts PostgreSQL and versitygw, or skips the benchmark where one is missing.
func startServices(tb testing.TB) *services {
	tb.Helper()
	s := &services{bucket: s3test.Start(tb)}
	s.cluster = postgrestest.Start(tb, "commit_delay = 3000", "commit_siblings = 0")
	s.line = newLine(tb, s.cluster.Socket())
	s.front = s.bucket.Proxy(tb, delayed)
	var err error
	if s.probe, err = pgx.Connect(tb.Context(), s.line.url("postgres")); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.probe.Close(context.Background()) })
	postgrestest.Exec(tb, s.cluster.URL("postgres"), "CREATE TABLE latency (n int)", "INSERT INTO latency VALUES (0)")
	return s
}

// stores makes empty stores.
func (s *services) stores(tb testing.TB, database string) stores {
	tb.Helper()
	postgrestest.Exec(tb, s.cluster.URL("postgres"), "CREATE DATABASE "+database)
	files, env := s.bucket.Place(tb)
	direct := s.bucket.Options(tb).Endpoint
	return stores{
		keys:  s.line.url(database),
		files: strings.Replace(files, url.QueryEscape(direct), url.QueryEscape(s.front), 1),
		env:   env,
	}
}

// database returns T and S, with the work of the database in them.
func (s *services) database(tb testing.TB) (trip, flush time.Duration) {
	tb.Helper()
	exec := func(sql string) func(int) error {
		return func(int) error {
			_, err := s.probe.Exec(tb.Context(), sql)
			return err
		}
	}
	trip = medianOf(tb, 30, exec("SELECT n FROM latency"))
	return trip, medianOf(tb, 20, exec("UPDATE latency SET n = n + 1")) - trip
}

// measure returns what the latency has become, with the work of the services in it.
func (s *services) measure(tb testing.TB) network {
	tb.Helper()
	var n network
	n.trip, n.flush = s.database(tb)
	ctx := tb.Context()
	options := s.bucket.Options(tb)
	options.Endpoint = s.front
	store := s3test.Open(tb, options)
	n.put = medianOf(tb, 5, func(i int) error { return writeFile(ctx, store, fmt.Sprint("small-", i), 4<<10) })
	n.get = medianOf(tb, 5, func(i int) error { return readRange(ctx, store, fmt.Sprint("small-", i), 4<<10, 0, 4<<10) })
	const windows, windowBytes = 8, 8 << 20
	if err := writeFile(ctx, store, "large", windows*windowBytes); err != nil {
		tb.Fatal(err)
	}
	begun := time.Now()
	var group sync.WaitGroup
	for i := range int64(windows) {
		group.Go(func() {
			if err := readRange(ctx, store, "large", windows*windowBytes, i*windowBytes, windowBytes); err != nil {
				tb.Error(err)
			}
		})
	}
	group.Wait()
	n.getRate = windows * windowBytes / time.Since(begun).Seconds()
	return n
}

func writeFile(ctx context.Context, store *s3.Store, name string, size int) error {
	w, err := store.Create(ctx, name)
	if err != nil {
		return err
	}
	if _, err := w.Write(make([]byte, size)); err != nil {
		return err
	}
	return w.Seal(ctx)
}

func readRange(ctx context.Context, store *s3.Store, name string, fileSize, offset, size int64) error {
	stream, err := store.OpenStream(ctx, name, fileSize, offset, size)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stream)
	return errors.Join(err, stream.Close())
}
