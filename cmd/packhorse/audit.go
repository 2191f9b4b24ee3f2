package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"packhorse/api"
	"packhorse/api/audit"
	"packhorse/api/auth"
)

// auditFlags say where the audit log goes.
type auditFlags struct {
	Audit string `help:"Audit log, a line of JSON for each request, and for each maintenance command that finds no server: a file that is appended to, - for standard output, or syslog." placeholder:"FILE|-|syslog" is:"audit log"`
}

// openAudit opens the audit log; nil for the name "".
func openAudit(name string, to streams, logger *slog.Logger) (*audit.Writer, error) {
	if name == "" {
		return nil, nil
	}
	w, err := audit.Open(audit.Options{To: name, Out: to.out, Logger: logger})
	if err != nil {
		return nil, &usageError{fmt.Sprintf("--audit: %v", expected(err, "a file that this user may append to, - or syslog"))}
	}
	return w, nil
}

// auditDrain bounds the time in which the last records are written.
const auditDrain = 10 * time.Second

// closeAudit writes the records that wait, and closes the audit log.
func closeAudit(ctx context.Context, w *audit.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, auditDrain,
		errors.New("the last records were not written in time"))
	defer cancel()
	return w.Close(ctx)
}

// orgChanged tells the audit log of a change of an organization.
func (s *server) orgChanged(change auth.Change) {
	if s.audit != nil {
		s.audit.Organization(change)
	}
}

// auditFigures are the metrics of the audit log; w may be nil.
func auditFigures(w *audit.Writer) []api.Figure {
	count := func(of func(*audit.Writer) uint64) func() float64 {
		return func() float64 {
			if w == nil {
				return 0
			}
			return float64(of(w))
		}
	}
	return []api.Figure{
		{
			Name: "audit_records_total", Help: "Records written to the audit log.", Counter: true,
			Value: count((*audit.Writer).Records),
		},
		{
			Name: "audit_failures_total", Help: "Records that could not be written to the audit log, and are lost.",
			Counter: true, Value: count((*audit.Writer).Failures),
		},
	}
}

// auditedTask is the answer to a request for a task, and what its record tells of it.
type auditedTask struct {
	http.ResponseWriter
	record audit.Record
}

// auditTask returns the answer and the request of a task for the audit log, which may be nil, and
// the function that writes the record when the task has ended.
func auditTask(
	to *audit.Writer, w http.ResponseWriter, r *http.Request, name string, known bool,
) (http.ResponseWriter, *http.Request, func()) {
	if to == nil {
		return w, r, func() {}
	}
	if !known {
		name = audit.Unrouted
	}
	task := &auditedTask{ResponseWriter: w, record: audit.Record{
		Time: time.Now(), Via: audit.Admin, Action: name, Status: http.StatusOK,
	}}
	ctx, changes := audit.Collect(context.WithValue(r.Context(), recordKey{}, &task.record), "")
	body := &countedBody{ReadCloser: r.Body}
	r = r.WithContext(ctx)
	r.Body = body
	return task, r, func() {
		changes.End(&task.record)
		task.record.ReceivedBytes = body.count
		to.Write(&task.record)
	}
}

// audited runs a task that no server runs, and writes its record.
func (f auditFlags) audited(
	ctx context.Context, name string, to streams, logger *slog.Logger, run func(ctx context.Context) error,
) (err error) {
	w, err := openAudit(f.Audit, streams{out: to.errOut}, logger) // out has the results
	if err != nil {
		return err
	}
	if w == nil {
		return run(ctx)
	}
	defer func() { err = errors.Join(err, closeAudit(context.WithoutCancel(ctx), w)) }()
	record := audit.Record{Time: time.Now(), Via: audit.Admin, Action: name, Status: http.StatusOK}
	if err = run(context.WithValue(ctx, recordKey{}, &record)); err != nil {
		record.Status, record.Error = http.StatusInternalServerError, "task_failed"
	}
	w.Write(&record)
	return err
}

// recordKey is the key of the record of a task in its context.
type recordKey struct{}

// auditActing tells the record of the task whose context ctx is, if it has one, who acts on what.
// The repository may be "".
func auditActing(ctx context.Context, org, repository, subject string) {
	if record, ok := ctx.Value(recordKey{}).(*audit.Record); ok {
		record.Organization, record.Repository, record.Subject = org, repository, subject
	}
}

// taskFailed notes that a task has failed after its answer has begun.
func taskFailed(w http.ResponseWriter) {
	if task, ok := w.(*auditedTask); ok {
		task.record.Status, task.record.Error = http.StatusInternalServerError, "task_failed"
	}
}

// WriteHeader notes the status.
func (t *auditedTask) WriteHeader(status int) {
	t.record.Status = status
	t.ResponseWriter.WriteHeader(status)
}

// Write counts what is sent. The handler writes from one goroutine at a time.
func (t *auditedTask) Write(p []byte) (int, error) {
	n, err := t.ResponseWriter.Write(p)
	t.record.SentBytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (t *auditedTask) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// countedBody counts what is read.
type countedBody struct {
	io.ReadCloser
	count int64
}

// Read counts.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count += int64(n)
	return n, err
}
