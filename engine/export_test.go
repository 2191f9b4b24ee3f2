package engine

import "context"

// VisibilityWalkCount returns the number of visibility walks.
func (h *Host) VisibilityWalkCount() uint64 { return h.objects.Stats().VisibilityWalkCount }

// WaitingWrites returns how many writes wait for their turn on the repository, or have it.
func (r *Repository) WaitingWrites() int { return r.host.names.Waiting(r.record.ID) }

// OfHost returns the host of the repository.
func (r *Repository) OfHost() *Host { return r.host }

// TakeCensus counts what the store holds now.
func (h *Host) TakeCensus(ctx context.Context) (Census, error) { return h.takeCensus(ctx) }
