package main

import (
	"io"
	"log/slog"
)

// logFlags configure the log.
type logFlags struct {
	LogLevel  slog.Level `help:"Least severe messages to log: debug, info, warn, error." default:"${log_level}"`
	LogFormat string     `help:"Format of log lines: text, json." enum:"text,json" default:"text"`
}

func (f logFlags) logger(w io.Writer) *slog.Logger { return f.loggerAt(w, f.LogLevel) }

// loggerAt returns a logger for messages of at least the given level, which may change.
func (f logFlags) loggerAt(w io.Writer, level slog.Leveler) *slog.Logger {
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: withUnits}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutStacks}))
}

// withoutStacks reduces an error to its message. The text handler would print all of its details,
// including the stack of its origin.
func withoutStacks(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(err.Error())
	}
	return a
}

// withUnits adds the unit to the name of a value that becomes a bare number in JSON.
func withUnits(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		return slog.Float64(a.Key+"_seconds", a.Value.Duration().Seconds())
	case slog.KindAny:
		if size, ok := a.Value.Any().(byteSize); ok {
			return slog.Int64(a.Key+"_bytes", int64(size))
		}
	default: // the value includes its unit
	}
	return a
}
