package engine

// VisibilityWalkCount returns the number of visibility walks.
func (h *Host) VisibilityWalkCount() uint64 { return h.objects.Stats().VisibilityWalkCount }
