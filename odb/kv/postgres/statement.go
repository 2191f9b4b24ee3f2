package postgres

import (
	"strconv"
	"strings"

	"packhorse/odb/kv"
)

// Statements of a batch in more than one. A row that only holds an absent key has a value that no
// other batch has, so that the check tells it from one that was there.
const (
	beginSQL  = `BEGIN ISOLATION LEVEL SERIALIZABLE`
	commitSQL = `COMMIT`
	holdSQL   = `INSERT INTO kv (k, v) SELECT h.k, $2::bytea FROM unnest($1::bytea[]) AS h(k) ON CONFLICT (k) DO NOTHING`
	unholdSQL = `DELETE FROM kv WHERE k = ANY($1::bytea[]) AND v = $2::bytea`
)

// query is a statement with its arguments.
type query struct {
	sql  string
	args []any
}

// arg adds an argument and returns its place in the text.
func (q *query) arg(value any) string {
	q.args = append(q.args, value)
	return "$" + strconv.Itoa(len(q.args))
}

// checkQuery returns a statement that takes the preconditions of c and, if they hold, counts the
// fence up from number and does the step, if there is one.
//
// It answers with one row: a key whose precondition does not hold, and the new number of the fence.
// When both are null, the fence is closed.
func checkQuery(c *check, s *step, fence []byte, number int64, token []byte) query {
	var q query
	id, at := q.arg(fence)+"::bytea", q.arg(number)+"::bigint"
	var with, bad []string
	if len(c.keys) > 0 {
		keys := q.arg(c.keys) + "::bytea[]"
		with = append(with, `locked AS (SELECT k, v FROM kv WHERE k = ANY(`+keys+`) ORDER BY k FOR UPDATE)`)
		bad = append(bad, `SELECT r.k FROM unnest(`+keys+`, `+q.arg(c.values)+`::bytea[]) AS r(k, v) `+
			`LEFT JOIN locked ON locked.k = r.k WHERE locked.v IS DISTINCT FROM r.v`)
	}
	if len(c.absent) > 0 {
		bad = append(bad, `SELECT k FROM kv WHERE k = ANY(`+q.arg(c.absent)+`::bytea[])`)
	}
	if len(c.held) > 0 {
		bad = append(bad, `SELECT k FROM kv WHERE k = ANY(`+q.arg(c.held)+`::bytea[]) AND v <> `+q.arg(token)+`::bytea`)
	}
	unless, first := "", "NULL::bytea"
	if len(bad) > 0 {
		with = append(with, `bad AS (`+strings.Join(bad, ` UNION ALL `)+`)`)
		unless, first = ` AND NOT EXISTS (SELECT 1 FROM bad)`, `(SELECT k FROM bad LIMIT 1)`
	}
	with = append(with, `fence AS (UPDATE kv_fence SET number = number + 1, used = now() `+
		`WHERE id = `+id+` AND number = `+at+` AND NOT closed`+unless+` RETURNING number)`)
	if s != nil {
		with = append(with, `step AS (`+q.write(s, `EXISTS (SELECT 1 FROM fence)`)+`)`)
	}
	q.sql = `WITH ` + strings.Join(with, `, `) + ` SELECT ` + first + `, (SELECT number FROM fence)`
	return q
}

// stepQuery returns a statement that does a step, if the preconditions have held and so counted the
// fence up to number.
func stepQuery(s *step, fence []byte, number int64) query {
	var q query
	id, at := q.arg(fence)+"::bytea", q.arg(number)+"::bigint"
	q.sql = q.write(s, `EXISTS (SELECT 1 FROM kv_fence WHERE id = `+id+` AND number = `+at+`)`)
	return q
}

// write returns the text of a step that is done on a condition.
func (q *query) write(s *step, condition string) string {
	switch s.kind {
	case kv.OperationDeleteRange:
		start, end := q.arg(s.keys[0]), q.arg(s.values[0])
		return `DELETE FROM kv WHERE k >= ` + start + `::bytea AND k < ` + end + `::bytea AND ` + condition
	case kv.OperationDelete:
		return `DELETE FROM kv WHERE k = ANY(` + q.arg(s.keys) + `::bytea[]) AND ` + condition
	default:
		keys, values := q.arg(s.keys), q.arg(s.values)
		return `INSERT INTO kv (k, v) SELECT p.k, p.v FROM unnest(` + keys + `::bytea[], ` + values + `::bytea[]) AS p(k, v) ` +
			`WHERE ` + condition + ` ON CONFLICT (k) DO UPDATE SET v = excluded.v`
	}
}
