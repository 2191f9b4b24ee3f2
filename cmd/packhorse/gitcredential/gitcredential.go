// Package gitcredential speaks git's side of a credential helper: gitcredentials(7), and the input
// and output format of git-credential(1).
//
// Start at [Read], which reads what git wants to log in to, and at [Server.Repository], which
// decides whether the helper may answer. [Login.Write] answers.
package gitcredential

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// lineBytesMax bounds an attribute. git also sends the WWW-Authenticate headers of the server.
const lineBytesMax = 1 << 20

// ErrMalformed says that a request is not in the format of git-credential(1). Its message never
// quotes the request, which may hold a password.
var ErrMalformed = errors.New("git sent a malformed credential request")

// Request is what git wants to log in to. An attribute that git did not send is "".
type Request struct {
	Protocol string
	Host     string // with the port, if the URL of the remote has one
	Path     string // without the first slash; git sends it with credential.useHttpPath only
	Username string // of the URL
}

// Read reads attributes up to an empty line or the end of r. It ignores those that it does not
// know.
//
// Errors: [ErrMalformed] for a line without "=", a NUL byte, an attribute of [Request] that is
// given twice, or a line of more than 1 MiB; and those of r.
func Read(r io.Reader) (Request, error) {
	var request Request
	known := map[string]*string{
		"protocol": &request.Protocol, "host": &request.Host, "path": &request.Path, "username": &request.Username,
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineBytesMax)
	lines.Split(splitLine)
	for lines.Scan() && len(lines.Bytes()) > 0 {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if !ok || strings.Contains(lines.Text(), "\x00") {
			return Request{}, ErrMalformed
		}
		field := known[key]
		if field == nil {
			if _, twice := known[key]; twice {
				return Request{}, fmt.Errorf("%w: %s is given twice", ErrMalformed, key)
			}
			continue
		}
		*field, known[key] = value, nil
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return Request{}, fmt.Errorf("%w: a line is longer than %d bytes", ErrMalformed, lineBytesMax)
	} else if err != nil {
		return Request{}, fmt.Errorf("read the credential request: %w", err)
	}
	return request, nil
}

// splitLine is a [bufio.SplitFunc] for lines that end in LF only: a CR before it is part of the
// value.
func splitLine(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// Login is the answer of a helper.
type Login struct {
	Username, Password string
	Expires            time.Time // of the password; the zero time if that is not known
}

// Write writes the answer. git before 2.41 ignores the expiry. A value that holds LF or NUL, which
// the format cannot express, is an error that does not quote it.
func (l Login) Write(w io.Writer) error {
	if strings.ContainsAny(l.Username+l.Password, "\n\x00") {
		return errors.New("a user name or password with a line end or NUL cannot be given to git")
	}
	text := "username=" + l.Username + "\npassword=" + l.Password + "\n"
	if !l.Expires.IsZero() {
		text += "password_expiry_utc=" + strconv.FormatInt(l.Expires.Unix(), 10) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
