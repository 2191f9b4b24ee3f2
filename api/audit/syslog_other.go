//go:build !unix

package audit

import "errors"

const syslogLineMax = 0

func openSyslog(string) (sink, error) { return nil, errors.New("this system has no syslog") }
