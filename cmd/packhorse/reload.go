package main

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"packhorse/odb/rescue"
)

// reloader repeats on SIGHUP the periodic checks of the server, reads the log level from the
// configuration file again, and opens the audit log again.
type reloader struct {
	signals chan os.Signal
	level   *slog.LevelVar
	again   func() (slog.Level, error) // the present level of command line, environment and file; nil: the level stays

	running sync.WaitGroup
	one     sync.Mutex
}

// catchHangup begins to catch SIGHUP, which otherwise ends the process.
func catchHangup(level *slog.LevelVar, again func() (slog.Level, error)) *reloader {
	r := &reloader{signals: make(chan os.Signal, 1), level: level, again: again}
	signal.Notify(r.signals, syscall.SIGHUP)
	return r
}

// start reloads the server in the background, because reading may hang.
func (r *reloader) start(s *server) {
	rescue.Go(&r.running, func() error {
		if s.audit != nil { // before what may wait: rotation has renamed the file
			if err := s.audit.Reopen(); err != nil {
				s.logger.Error("reload: failed to open the audit log again, keeping the former file", "error", err)
			}
		}
		r.one.Lock()
		defer r.one.Unlock()
		s.tokens.Reload()
		if s.certificates != nil {
			_ = s.certificates.look(true) // look logs the error
		}
		if r.again != nil {
			if level, err := r.again(); err != nil {
				s.logger.Error("reload: failed to read the log level, keeping the current one", "error", err)
			} else {
				r.level.Set(level)
			}
		}
		s.logger.Info("reloaded", "organizations", len(s.tokens.Orgs()), "log_level", r.level.Level().String())
		return nil
	}, func(err error) { s.logger.Error("reload failed", "error", err) })
}
