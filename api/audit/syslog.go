//go:build unix

package audit

import (
	"bytes"
	"log/syslog"
)

// syslogLineMax is the size of a line in bytes that every syslog daemon takes: rsyslog cuts
// messages of more than 8 KiB, with their header.
const syslogLineMax = 8<<10 - 192

// syslogSink sends each line as a message. A connection that has broken off is made again, once for
// each message.
type syslogSink struct {
	socket string // "" for that of the machine
	to     *syslog.Writer
}

func openSyslog(socket string) (sink, error) {
	s := &syslogSink{socket: socket}
	return s, s.open()
}

func (s *syslogSink) open() error {
	network := ""
	if s.socket != "" {
		network = "unixgram"
	}
	to, err := syslog.Dial(network, s.socket, syslog.LOG_AUTHPRIV|syslog.LOG_INFO, "packhorse")
	if err != nil {
		return err
	}
	s.to = to
	return nil
}

func (s *syslogSink) write(lines []byte) (whole int, err error) {
	for line := range bytes.Lines(lines) {
		if _, err := s.to.Write(line); err != nil {
			return whole, err
		}
		whole++
	}
	return whole, nil
}

func (s *syslogSink) reopen() error {
	before := s.to
	if err := s.open(); err != nil {
		return err
	}
	return before.Close()
}

func (s *syslogSink) close() error { return s.to.Close() }
