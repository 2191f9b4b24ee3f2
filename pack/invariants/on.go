//go:build invariants

package invariants

// Enabled tells whether checks are made.
const Enabled = true
