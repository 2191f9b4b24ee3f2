package s3

// Key returns the key of a file.
func Key(s *Store, name string) string { return s.key(name) }

// What the tests tell apart and callers only print.
var (
	ErrLocation = errLocation
	ErrForeign  = errForeign
	ErrBare     = errBare
	ErrVersion  = errVersion
	ErrProbe    = errProbe
)
