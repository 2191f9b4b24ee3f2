package engine

// LoanWalkCount returns the number of visibility walks.
func (h *Host) LoanWalkCount() uint64 { return h.objects.Stats().LoanWalkCount }
