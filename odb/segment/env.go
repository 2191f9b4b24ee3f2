package segment

import (
	"log/slog"

	"packhorse/odb/file"
)

// Env holds the services that sectioned files are read and written with: the store of the files,
// the cache of their blocks, the log of damage, and the log of the server.
type Env struct {
	Files  file.Store
	Cache  *Cache
	Damage *DamageLog
	Log    *slog.Logger
}
