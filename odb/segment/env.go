package segment

import (
	"log/slog"

	"packhorse/odb/file"
)

// Env is what sectioned files are read and written with.
type Env struct {
	Files  file.Store
	Cache  *Cache
	Damage *DamageLog
	Log    *slog.Logger
}
