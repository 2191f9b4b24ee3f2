package api

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"packhorse/api/exchange"
)

// durationBuckets double from half a millisecond to a little more than a minute, so that a quantile
// that is read from them is at most twice the true one.
func durationBuckets() []float64 { return prometheus.ExponentialBuckets(0.0005, 2, 18) }

// sizeBuckets grow eightfold from a kibibyte to 16 GiB.
func sizeBuckets() []float64 { return prometheus.ExponentialBuckets(1<<10, 8, 9) }

func newDurations(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: durationBuckets(),
	}, labels)
}

func newSizes(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: sizeBuckets(),
	}, labels)
}

// Durations is a histogram of the times of something that happens in another package.
type Durations struct {
	name      string
	histogram prometheus.Histogram
}

// NewDurations returns an empty histogram, whose name is without the prefix "packhorse_".
func NewDurations(name, help string) *Durations {
	return &Durations{name, prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: durationBuckets(),
	})}
}

// Name returns the name of the metric.
func (d *Durations) Name() string { return d.name }

// Observe adds a time. It may be called by any goroutine.
func (d *Durations) Observe(took time.Duration) { d.histogram.Observe(took.Seconds()) }

// statusClass is the class of a status, "2xx". A status outside of 100 to 599 is none that we send.
func statusClass(status int) string {
	classes := [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}
	if class := status/100 - 1; class >= 0 && class < len(classes) {
		return classes[class]
	}
	return "other"
}

// observeSince observes the time since begun, in seconds.
func observeSince(of prometheus.Observer, begun time.Time) { of.Observe(time.Since(begun).Seconds()) }

// gitMetrics are the metrics of git operations: what clients ask for, whichever route and version
// of the protocol they use.
type gitMetrics struct {
	seconds        *prometheus.HistogramVec // operation, result
	received, sent *prometheus.HistogramVec // operation
}

func newGitMetrics() gitMetrics {
	return gitMetrics{
		seconds: newDurations("git_operation_duration_seconds",
			"Time from the header of a git operation's request to the end of the answer.", "operation", "result"),
		received: newSizes("git_operation_received_bytes", "Size of the body of a git operation's request.", "operation"),
		sent:     newSizes("git_operation_sent_bytes", "Size of the answer to a git operation.", "operation"),
	}
}

// count counts the operation of a request that has ended with a status.
func (m *gitMetrics) count(x *transfer, status int, took time.Duration) {
	operation := string(x.operation)
	m.seconds.WithLabelValues(operation, resultOf(status, x.answer.err)).Observe(took.Seconds())
	m.received.WithLabelValues(operation).Observe(float64(x.body.read))
	m.sent.WithLabelValues(operation).Observe(float64(x.answer.sent))
}

// resultOf names how an operation ended: the status is that of its outcome, also where the client
// got a 200 and a report.
func resultOf(status int, cut error) string {
	switch {
	case status >= http.StatusInternalServerError:
		return "failed"
	case cut != nil:
		return "cut"
	case status >= http.StatusBadRequest:
		return "refused"
	}
	return "ok"
}

// buildInfo is a metric whose labels say which program runs; its value is 1.
func buildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "The program that runs; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// Operation implements [exchange.Request].
func (x *transfer) Operation(name exchange.Operation) { x.operation = name }

// Operation implements [exchange.Request]. The metrics have the request's.
func (x *inner) Operation(exchange.Operation) {}
