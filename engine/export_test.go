package engine

// LoanWalkCount returns how often it was found out what a fork may read.
func (h *Host) LoanWalkCount() uint64 { return h.objects.Stats().LoanWalkCount }
