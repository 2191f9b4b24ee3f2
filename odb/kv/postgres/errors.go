package postgres

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"packhorse/odb/kv"
)

// SQLSTATE codes, and classes of them, that decide about what happens next.
const (
	codeSerialization  = "40001"
	codeAmbiguous      = "40003" // CockroachDB: the transaction may have been committed
	codeDeadlock       = "40P01"
	codeReadOnly       = "25006"
	codeDataCorrupted  = "XX001"
	codeIndexCorrupted = "XX002"
	codeDenied         = "42501"
	codeNoTable        = "42P01"
	codeLockTimeout    = "55P03"
	codeChangedPlan    = "0A000"
	codePreparedTwice  = "42P05"
	codeNotPrepared    = "26000"
	classConnection    = "08"
	classAuthorization = "28"
	classCatalog       = "3D" // no such database
	classResources     = "53"
	classOperator      = "57" // the server stops, starts, or was told to cancel
	classSystem        = "58"

	severityError   = "ERROR" // of a statement; worse ones end the connection
	severityWarning = "WARNING"
)

// settingError refuses a server whose settings would break a promise of the store.
type settingError struct{ text string }

// Error says what is wrong and how to mend it, in one line.
func (e *settingError) Error() string { return e.text }

func refuse(format string, args ...any) error {
	return &settingError{text: fmt.Sprintf(format, args...)}
}

var (
	// errFenced means that the fence of a connection is closed or gone: the connection cannot write
	// any more.
	errFenced = errors.New("the connection was fenced off")
	// errOusted means that another process has fenced off this one.
	errOusted = errors.New("another process has fenced this one off: start it again")
	// errSilent means that a server has so many connections that were given up that it gets no more.
	errSilent = errors.New("the server does not answer those who wait for it")
	// errWarned means that the server warned of a commit that its standbys may not have.
	errWarned = errors.New("the server warned that the commit may not be replicated")
)

// codeOf returns the SQLSTATE of an error that the server sent, or nothing.
func codeOf(err error) string {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return answer.Code
	}
	return ""
}

func class(code string) string { return code[:min(2, len(code))] }

// isRefusal reports whether the server answered a statement with an error, so that its transaction
// is certainly undone.
func isRefusal(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.Code != codeAmbiguous && severityOf(answer) == severityError
}

// severityOf returns the severity in English; servers before 9.6 send the translated one only.
func severityOf(answer *pgconn.PgError) string {
	if answer.SeverityUnlocalized != "" {
		return answer.SeverityUnlocalized
	}
	return answer.Severity
}

// isTransient reports whether the same call may succeed a moment later, perhaps on another server.
func isTransient(err error) bool {
	if _, ok := errors.AsType[*settingError](err); ok {
		return true // the next server that answers may have other settings
	}
	if errors.Is(err, errOusted) {
		return false
	}
	code := codeOf(err)
	switch code {
	case "", codeSerialization, codeAmbiguous, codeDeadlock, codeReadOnly, codeLockTimeout,
		codeChangedPlan, codePreparedTwice, codeNotPrepared:
		return true
	}
	switch class(code) {
	case classConnection, classAuthorization, classCatalog, classResources, classOperator, classSystem:
		return true
	}
	return false
}

// isStale reports whether the statements that the driver has prepared on a connection are not those
// of the server behind it.
func isStale(err error) bool {
	switch codeOf(err) {
	case codeChangedPlan, codePreparedTwice, codeNotPrepared:
		return true
	}
	return false
}

// isSilence reports whether err is a connection on which nothing came in time.
func isSilence(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// translate returns an error that another try cannot mend in the words of package kv. Errors of the
// driver and of the network are told, never wrapped: no caller takes one of them for its own.
func translate(err error) error {
	if errors.Is(err, errOusted) {
		return fmt.Errorf("%w: %w", kv.ErrUnavailable, errOusted)
	}
	switch codeOf(err) {
	case codeDataCorrupted, codeIndexCorrupted:
		return fmt.Errorf("%w: %s", kv.ErrCorrupt, describe(err))
	default:
		return fmt.Errorf("kv: the database refuses: %s", describe(err))
	}
}

// describe returns the text of an error in one line.
func describe(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// jitter returns a random duration between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
