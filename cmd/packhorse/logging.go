package main

import (
	"io"
	"log/slog"
)

// logFlags say what is logged.
type logFlags struct {
	LogLevel  slog.Level `help:"Least important lines to log: debug, info, warn, error." default:"info"`
	LogFormat string     `help:"How lines are written: text, json." enum:"text,json" default:"text"`
}

func (f logFlags) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
