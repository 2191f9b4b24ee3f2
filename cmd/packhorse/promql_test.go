package main_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// query is an expression of PromQL. Only what dashboards and rules need is known: parseQuery
// refuses the rest.
type query struct {
	kind     queryKind
	name     string // of a selector's metric, a function or an aggregation; the operator of a binary one
	matchers []matcher
	window   string   // of a selector, "5m"; "" without one
	by       []string // the labels of an aggregation, or of a binary operator's on
	matched  bool     // a binary operator has an on
	args     []*query // of a function or an aggregation; the two sides of an operator
}

type queryKind int

const (
	numberQuery queryKind = iota
	selectorQuery
	callQuery
	aggregateQuery
	binaryQuery
)

// matcher selects series by a label.
type matcher struct{ label, op, value string }

// The functions and aggregations that are known. A function of rangeFunctions takes a selector with
// a window, and no other does.
var (
	rangeFunctions = map[string]int{"rate": 1, "increase": 1, "predict_linear": 2, "max_over_time": 1, "min_over_time": 1, "avg_over_time": 1}
	otherFunctions = map[string]int{"histogram_quantile": 2, "time": 0}
	aggregations   = map[string]int{"sum": 1, "min": 1, "max": 1, "avg": 1, "count": 1, "topk": 2}
)

// precedences are those of binary operators, the weakest first.
var precedences = [][]string{{"or"}, {"and", "unless"}, {"==", "!=", "<=", "<", ">=", ">"}, {"+", "-"}, {"*", "/"}}

var queryToken = regexp.MustCompile(`^(?:` +
	`[0-9]+[smhd]|` + // a duration
	`[0-9]+(?:\.[0-9]+)?|` +
	`"(?:[^"\\]|\\.)*"|` +
	`[a-zA-Z_:][a-zA-Z0-9_:]*|` +
	`=~|!~|==|!=|<=|>=|[-+*/<>=(){}\[\],]` + `)`)

// queryParser reads tokens.
type queryParser struct{ tokens []string }

// parseQuery parses an expression.
func parseQuery(text string) (_ *query, err error) {
	p := &queryParser{}
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		token := queryToken.FindString(rest)
		if token == "" {
			return nil, fmt.Errorf("unexpected text at %.20q", rest)
		}
		p.tokens = append(p.tokens, token)
		rest = rest[len(token):]
	}
	defer func() {
		if wrong, ok := recover().(syntaxError); ok {
			err = wrong
		}
	}()
	q := p.binary(0)
	if len(p.tokens) > 0 {
		p.fail("the end")
	}
	return q, nil
}

type syntaxError string

func (e syntaxError) Error() string { return string(e) }

func (p *queryParser) fail(expected string) {
	panic(syntaxError(fmt.Sprintf("expected %s before %q", expected, strings.Join(p.tokens, " "))))
}

func (p *queryParser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *queryParser) next() string {
	token := p.peek()
	if token != "" {
		p.tokens = p.tokens[1:]
	}
	return token
}

func (p *queryParser) accept(token string) bool {
	if p.peek() != token {
		return false
	}
	p.next()
	return true
}

func (p *queryParser) expect(token string) {
	if !p.accept(token) {
		p.fail(token)
	}
}

// binary parses operators of a precedence and above.
func (p *queryParser) binary(level int) *query {
	if level == len(precedences) {
		return p.primary()
	}
	left := p.binary(level + 1)
	for slices.Contains(precedences[level], p.peek()) {
		q := &query{kind: binaryQuery, name: p.next()}
		if q.matched = p.accept("on"); q.matched {
			q.by = p.labels()
		}
		q.args = []*query{left, p.binary(level + 1)}
		left = q
	}
	return left
}

var (
	isNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	isWindow = regexp.MustCompile(`^[0-9]+[smhd]$`)
	isName   = regexp.MustCompile(`^[a-zA-Z_:]`)
)

func (p *queryParser) primary() *query {
	token := p.next()
	switch {
	case isNumber.MatchString(token):
		return &query{kind: numberQuery, name: token}
	case token == "(":
		q := p.binary(0)
		p.expect(")")
		return q
	case aggregations[token] > 0:
		return p.aggregate(token)
	case p.peek() == "(":
		return p.call(token)
	case isName.MatchString(token):
		return p.selector(token)
	}
	p.tokens = append([]string{token}, p.tokens...)
	p.fail("an expression")
	return nil
}

func (p *queryParser) aggregate(name string) *query {
	q := &query{kind: aggregateQuery, name: name}
	if p.accept("by") {
		q.by = p.labels()
	}
	q.args = p.arguments(aggregations[name])
	return q
}

func (p *queryParser) call(name string) *query {
	count, takesWindow := rangeFunctions[name]
	other, known := otherFunctions[name]
	if !known && !takesWindow {
		p.fail("a function that is known instead of " + name)
	}
	q := &query{kind: callQuery, name: name, args: p.arguments(max(count, other))}
	if takesWindow != (len(q.args) > 0 && q.args[0].window != "") {
		p.fail("a selector with a window in, and only in, a function over time, not in " + name)
	}
	return q
}

func (p *queryParser) arguments(count int) []*query {
	p.expect("(")
	var args []*query
	for i := range count {
		if i > 0 {
			p.expect(",")
		}
		args = append(args, p.binary(0))
	}
	p.expect(")")
	return args
}

func (p *queryParser) labels() []string {
	var names []string
	p.expect("(")
	for !p.accept(")") {
		if len(names) > 0 {
			p.expect(",")
		}
		if !isName.MatchString(p.peek()) {
			p.fail("a label")
		}
		names = append(names, p.next())
	}
	return names
}

func (p *queryParser) selector(name string) *query {
	q := &query{kind: selectorQuery, name: name}
	if p.accept("{") {
		for !p.accept("}") {
			if len(q.matchers) > 0 {
				p.expect(",")
			}
			m := matcher{label: p.next(), op: p.next()}
			if value := p.next(); isName.MatchString(m.label) && slices.Contains([]string{"=", "!=", "=~", "!~"}, m.op) &&
				strings.HasPrefix(value, `"`) {
				m.value = strings.Trim(value, `"`)
			} else {
				p.fail("label, operator and value")
			}
			q.matchers = append(q.matchers, m)
		}
	}
	if p.accept("[") {
		if q.window = p.next(); !isWindow.MatchString(q.window) {
			p.fail("a window")
		}
		p.expect("]")
	}
	return q
}

// queryChecker holds expressions against the metrics of a server.
type queryChecker struct{ metrics map[string]*metric }

// targetLabels are what Prometheus adds to every series.
var targetLabels = []string{"instance", "job"}

// freeLabels are labels whose values depend on what has happened to the server.
var freeLabels = []string{"instance", "job", "status", "status_class", "result", "route", "version"}

// check returns what is wrong with an expression, and the labels of its result; scalar is true for
// a number.
func (c *queryChecker) check(q *query) (labels []string, scalar bool, err error) {
	switch q.kind {
	case selectorQuery:
		base, m := c.metric(q.name)
		if m == nil {
			return nil, false, fmt.Errorf("%s: no server shows it", q.name)
		}
		if q.window != "" {
			return nil, false, fmt.Errorf("%s: a window outside of a function over time", q.name)
		}
		if m.kind == "counter" || base != q.name {
			return nil, false, fmt.Errorf("%s: a counter outside of rate and increase", q.name)
		}
		return c.selected(q)
	case callQuery:
		return c.checkCall(q)
	case aggregateQuery:
		return c.checkAggregate(q)
	case binaryQuery:
		return c.checkBinary(q)
	case numberQuery:
	}
	return nil, true, nil
}

// metric returns the family of a metric: that of a histogram for its three parts.
func (c *queryChecker) metric(name string) (base string, m *metric) {
	if name == "up" { // of Prometheus itself
		return name, &metric{kind: "gauge"}
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, part); ok && c.metrics[base] != nil && c.metrics[base].kind == "histogram" {
			return base, c.metrics[base]
		}
	}
	return name, c.metrics[name]
}

// selected checks the labels of a selector, and returns those of its series.
func (c *queryChecker) selected(q *query) ([]string, bool, error) {
	_, m := c.metric(q.name)
	if m.kind == "histogram" && q.name == strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(q.name, "_bucket"), "_sum"), "_count") {
		return nil, false, fmt.Errorf("%s: a histogram without _bucket, _sum or _count", q.name)
	}
	labels := slices.Clone(targetLabels)
	for label := range m.labels {
		labels = append(labels, label)
	}
	if strings.HasSuffix(q.name, "_bucket") {
		labels = append(labels, "le")
	}
	slices.Sort(labels)
	for _, matcher := range q.matchers {
		if !slices.Contains(labels, matcher.label) {
			return nil, false, fmt.Errorf("%s: it has no label %s", q.name, matcher.label)
		}
		expression, err := regexp.Compile("^(?:" + matcher.value + ")$")
		if err != nil {
			return nil, false, err
		}
		if slices.Contains(freeLabels, matcher.label) {
			continue
		}
		// Also one that excludes something names a value that exists.
		found := false
		for value := range m.labels[matcher.label] {
			found = found || value == matcher.value || strings.HasSuffix(matcher.op, "~") && expression.MatchString(value)
		}
		if !found {
			return nil, false, fmt.Errorf("%s: no series has a %s like %q", q.name, matcher.label, matcher.value)
		}
	}
	return labels, false, nil
}

func (c *queryChecker) checkCall(q *query) ([]string, bool, error) {
	if q.name == "time" {
		return nil, true, nil
	}
	if q.name == "histogram_quantile" {
		return c.checkQuantile(q)
	}
	of := q.args[0]
	base, m := c.metric(of.name)
	if m == nil {
		return nil, false, fmt.Errorf("%s: no server shows it", of.name)
	}
	counts := q.name == "rate" || q.name == "increase"
	if counted := m.kind == "counter" || base != of.name; counts != counted {
		return nil, false, fmt.Errorf("%s of %s, a %s", q.name, of.name, m.kind)
	}
	for _, arg := range q.args[1:] {
		if _, scalar, err := c.check(arg); err != nil || !scalar {
			return nil, false, fmt.Errorf("%s: expected a number behind the first argument, %w", q.name, err)
		}
	}
	return c.selected(of)
}

// checkQuantile checks histogram_quantile(NUMBER, sum by (..., le) (rate(METRIC_bucket[...]))).
func (c *queryChecker) checkQuantile(q *query) ([]string, bool, error) {
	sum := q.args[1]
	if q.args[0].kind != numberQuery || sum.kind != aggregateQuery || sum.name != "sum" || !slices.Contains(sum.by, "le") ||
		sum.args[0].name != "rate" || !strings.HasSuffix(sum.args[0].args[0].name, "_bucket") {
		return nil, false, fmt.Errorf("histogram_quantile: expected a number and a sum by le of the rate of buckets")
	}
	labels, _, err := c.check(sum)
	return slices.DeleteFunc(labels, func(label string) bool { return label == "le" }), false, err
}

func (c *queryChecker) checkAggregate(q *query) ([]string, bool, error) {
	of := q.args[len(q.args)-1]
	labels, scalar, err := c.check(of)
	if err != nil || scalar {
		return nil, false, fmt.Errorf("%s of a number, or: %w", q.name, err)
	}
	if of.kind == callQuery && strings.HasSuffix(of.args[0].name, "_bucket") && !slices.Contains(q.by, "le") {
		return nil, false, fmt.Errorf("%s: buckets outside of histogram_quantile", of.args[0].name)
	}
	for _, label := range q.by {
		if !slices.Contains(labels, label) {
			return nil, false, fmt.Errorf("%s by %s, which is among none of %v", q.name, label, labels)
		}
	}
	if q.name == "topk" {
		return labels, false, nil
	}
	return slices.Sorted(slices.Values(q.by)), false, nil
}

func (c *queryChecker) checkBinary(q *query) ([]string, bool, error) {
	left, leftScalar, err := c.check(q.args[0])
	if err != nil {
		return nil, false, err
	}
	right, rightScalar, err := c.check(q.args[1])
	if err != nil {
		return nil, false, err
	}
	switch {
	case leftScalar && rightScalar:
		return nil, true, nil
	case leftScalar:
		return right, false, nil
	case rightScalar:
		return left, false, nil
	case q.matched:
		for _, label := range q.by {
			if !slices.Contains(left, label) || !slices.Contains(right, label) {
				return nil, false, fmt.Errorf("%s on %s: the sides have %v and %v", q.name, label, left, right)
			}
		}
	case !slices.Equal(left, right):
		return nil, false, fmt.Errorf("%s never matches: the sides have %v and %v", q.name, left, right)
	}
	return left, false, nil
}

// selectors returns the names of the metrics in an expression.
func (q *query) selectors() (names []string) {
	if q.kind == selectorQuery {
		names = append(names, q.name)
	}
	for _, arg := range q.args {
		names = append(names, arg.selectors()...)
	}
	return names
}

// The checker notices what the tests of rules and of the dashboard rely on.
func TestQueryChecker(t *testing.T) {
	t.Parallel()
	labels := func(names ...string) map[string]map[string]bool {
		all := make(map[string]map[string]bool)
		for _, name := range names {
			all[name] = map[string]bool{"a": true}
		}
		return all
	}
	c := &queryChecker{map[string]*metric{
		"n_total": {kind: "counter", labels: labels("op")}, "size": {kind: "gauge"}, "h_seconds": {kind: "histogram", labels: labels("op")},
	}}
	tests := map[string]string{ // a part of the complaint, "" for none
		`sum by (job, op) (rate(n_total{op="a", job=~"x.*"}[5m])) > 2 * 3`:                 "",
		`histogram_quantile(0.9, sum by (op, le) (rate(h_seconds_bucket{op!~"a|b"}[5m])))`: "",
		`time() - max(size > 0) < 3 and predict_linear(size[6h], 24 * 3600) < 0`:           "never matches",
		`rate(h_seconds_sum[1h]) / rate(h_seconds_count[1h])`:                              "",
		`sum by (job) (size) == 0 and on (job) min by (job, instance) (up) > 1`:            "",
		`rate(m_total[5m])`:                "no server shows it",
		`n_total > 0`:                      "a counter outside",
		`rate(size[5m])`:                   "rate of size",
		`rate(n_total)`:                    "a selector with a window",
		`sum(size[5m])`:                    "a window outside",
		`rate(n_total{ops="a"}[5m])`:       "no label ops",
		`rate(n_total{op="b"}[5m])`:        "no series has",
		`sum by (ops) (rate(n_total[5m]))`: "by ops",
		`histogram_quantile(0.9, sum by (op) (rate(h_seconds_bucket[5m])))`: "by le",
		`histogram_quantile(0.9, rate(h_seconds_bucket[5m]))`:               "by le",
		`sum by (op) (rate(h_seconds_bucket[5m]))`:                          "outside of histogram_quantile",
		`rate(h_seconds[5m])`:       "rate of h_seconds",
		`h_seconds > 1`:             "without _bucket",
		`h_seconds_count > 1`:       "a counter outside",
		`rate(n_total[5m]) / size`:  "never matches",
		`sum(size) and on (job) up`: "on job",
		`deriv(size[5m])`:           "a function that is known",
		`sum(size`:                  "expected )",
		`size{job="a"`:              "expected",
		`size ? 1`:                  "unexpected text",
		`size 1`:                    "the end",
	}
	for text, want := range tests {
		q, err := parseQuery(text)
		if err == nil {
			_, _, err = c.check(q)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
