package postgres

import "context"

// Sweep removes the fences of connections that are gone, as the housekeeper does each minute.
func (s *Store) Sweep(ctx context.Context) error { return s.sweep(ctx) }
