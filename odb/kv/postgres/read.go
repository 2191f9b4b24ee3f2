package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5"

	"packhorse/odb/kv"
)

const (
	getSQL     = `SELECT v FROM kv WHERE k = $1`
	getManySQL = `SELECT k, v FROM kv WHERE k = ANY($1::bytea[])`
	// instantSQL begins a transaction whose statements all see the instant of the first one.
	instantSQL = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
)

// Get implements kv.Reader.
func (s *Store) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.RUnlock()
	var value []byte
	err := s.begin().run(ctx, s.reads, func(conn *pgx.Conn) (err error) {
		value, err = get(ctx, conn, key)
		return err
	})
	return found(value, err)
}

// Scan implements kv.Reader.
func (s *Store) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return kv.ScanPages(options, func(options kv.ScanOptions) (kv.Page, error) {
		if err := s.enter(ctx); err != nil {
			return kv.Page{}, err
		}
		defer s.life.RUnlock()
		var page kv.Page
		err := s.begin().run(ctx, s.reads, func(conn *pgx.Conn) (err error) {
			page, err = scan(ctx, conn, options)
			return err
		})
		return page, err
	})
}

// Read implements kv.Reader.
func (s *Store) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	if err := s.enter(ctx); err != nil {
		return kv.Rows{}, err
	}
	defer s.life.RUnlock()
	var rows kv.Rows
	r, err := newReadQuery(set)
	if err == nil && !r.isEmpty() {
		err = s.begin().run(ctx, s.reads, func(conn *pgx.Conn) (err error) {
			rows, err = r.read(ctx, conn, true)
			return err
		})
	}
	if err != nil {
		return kv.Rows{}, err
	}
	return r.complete(rows), nil
}

// get returns the value of a key, or nil.
func get(ctx context.Context, conn *pgx.Conn, key []byte) ([]byte, error) {
	var value []byte
	err := conn.QueryRow(ctx, getSQL, key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

// found returns kv.ErrNotFound for a key without a value.
func found(value []byte, err error) ([]byte, error) {
	if err == nil && value == nil {
		return nil, kv.ErrNotFound
	}
	return value, err
}

// scan returns the first pairs of a range; More says that it goes on.
func scan(ctx context.Context, conn *pgx.Conn, options kv.ScanOptions) (kv.Page, error) {
	q := rangeQuery(options)
	rows, err := conn.Query(ctx, q.sql, q.args...)
	if err != nil {
		return kv.Page{}, err
	}
	return readPage(rows)
}

// rangeQuery returns a statement that reads the first options.Limit pairs of a range, until
// [kv.PageBytesMax] is reached, and tells with each whether the range goes on behind it. The sizes
// come before the values, which the database fetches for the pairs of the page only.
func rangeQuery(options kv.ScanOptions) query {
	var q query
	where := `k >= ` + q.arg(append([]byte{}, options.Start...)) + `::bytea`
	if len(options.End) > 0 {
		where += ` AND k < ` + q.arg(options.End) + `::bytea`
	}
	order := `k`
	if options.Reverse {
		order = `k DESC`
	}
	inner, outer := q.arg(options.Limit+1), q.arg(options.Limit)
	q.sql = `SELECT k, v, more FROM (` +
		`SELECT k, v, lead(true, 1, false) OVER w AS more, ` +
		`sum(octet_length(k) + octet_length(v)) OVER w - octet_length(k) - octet_length(v) AS before FROM (` +
		`SELECT k, v FROM kv WHERE ` + where + ` ORDER BY ` + order + ` LIMIT ` + inner + `::bigint) AS found ` +
		`WINDOW w AS (ORDER BY ` + order + ` ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) AS sized ` +
		`WHERE before < ` + q.arg(kv.PageBytesMax) + `::bigint ORDER BY ` + order + ` LIMIT ` + outer + `::bigint`
	return q
}

// readPage reads the answer of a rangeQuery.
func readPage(rows pgx.Rows) (kv.Page, error) {
	defer rows.Close()
	var data []byte
	var ends []int // of each key and each value, alternating
	more := false
	for rows.Next() {
		columns := rows.RawValues()
		data = append(data, columns[0]...)
		ends = append(ends, len(data))
		data = append(data, columns[1]...)
		ends = append(ends, len(data))
		more = columns[2][0] == 1 // binary
	}
	if err := rows.Err(); err != nil {
		return kv.Page{}, err
	}
	page := kv.Page{More: more, Pairs: make([]kv.Pair, 0, len(ends)/2)}
	start := 0
	for i := 0; i < len(ends); i += 2 {
		middle, end := ends[i], ends[i+1]
		page.Pairs = append(page.Pairs, kv.Pair{Key: data[start:middle:middle], Value: data[middle:end:end]})
		start = end
	}
	return page, nil
}

// readQuery is the statements of a kv.ReadSet.
type readQuery struct {
	set    kv.ReadSet
	first  map[string]int // the first place of each key in the set
	ranges []int          // indexes of those that can have keys
}

// newReadQuery returns a [kv.LimitError] for too large a set.
func newReadQuery(set kv.ReadSet) (*readQuery, error) {
	if err := set.Check(); err != nil {
		return nil, err
	}
	r := &readQuery{set: set}
	for i, options := range set.Ranges {
		if len(options.End) == 0 || bytes.Compare(options.Start, options.End) < 0 {
			r.ranges = append(r.ranges, i)
		}
	}
	if len(set.Keys) > 0 {
		r.first = make(map[string]int, len(set.Keys))
		for i, key := range set.Keys {
			if _, known := r.first[string(key)]; !known {
				r.first[string(key)] = i
			}
		}
	}
	return r, nil
}

// isEmpty reports whether there is nothing to ask for.
func (r *readQuery) isEmpty() bool { return len(r.set.Keys) == 0 && len(r.ranges) == 0 }

// complete gives the answer its lengths if nothing was asked.
func (r *readQuery) complete(rows kv.Rows) kv.Rows {
	if rows.Values == nil {
		rows.Values = make([][]byte, len(r.set.Keys))
	}
	if rows.Pages == nil {
		rows.Pages = make([]kv.Page, len(r.set.Ranges))
	}
	return rows
}

// read asks for everything in one round trip. With instant it begins a transaction of its own where
// one statement is not enough; otherwise it is inside of one.
func (r *readQuery) read(ctx context.Context, conn *pgx.Conn, instant bool) (kv.Rows, error) {
	rows := r.complete(kv.Rows{})
	if len(r.ranges) == 0 {
		found, err := conn.Query(ctx, getManySQL, r.set.Keys)
		if err != nil {
			return rows, err
		}
		return rows, r.readValues(found, rows.Values)
	}
	instant = instant && len(r.ranges)+min(len(r.set.Keys), 1) > 1
	var all pgx.Batch
	if instant {
		all.Queue(instantSQL)
	}
	if len(r.set.Keys) > 0 {
		all.Queue(getManySQL, r.set.Keys).Query(func(found pgx.Rows) error { return r.readValues(found, rows.Values) })
	}
	for _, i := range r.ranges {
		options := r.set.Ranges[i]
		options.Limit = min(cmp.Or(max(options.Limit, 0), kv.PageCountMax), kv.PageCountMax)
		q := rangeQuery(options)
		all.Queue(q.sql, q.args...).Query(func(found pgx.Rows) error {
			page, err := readPage(found)
			rows.Pages[i] = page
			return err
		})
	}
	if instant {
		all.Queue(commitSQL)
	}
	return rows, conn.SendBatch(ctx, &all).Close()
}

// readValues reads the answer of getManySQL.
func (r *readQuery) readValues(found pgx.Rows, values [][]byte) error {
	defer found.Close()
	for found.Next() {
		columns := found.RawValues()
		if i, asked := r.first[string(columns[0])]; asked {
			values[i] = append(make([]byte, 0, len(columns[1])), columns[1]...)
		}
	}
	if err := found.Err(); err != nil {
		return err
	}
	if len(r.first) < len(values) {
		for i, key := range r.set.Keys {
			if first := r.first[string(key)]; first != i {
				values[i] = bytes.Clone(values[first])
			}
		}
	}
	return nil
}
