package odb

import (
	"log/slog"

	"packhorse/odb/file"
)

// fileEnv is what sectioned files are read and written with.
type fileEnv struct {
	files  file.Store
	cache  *cache
	damage *damageLog
	log    *slog.Logger
}
