package kv

import "context"

// Exporter is a Store that can be read as of one instant for as long as that takes.
type Exporter interface {
	Store

	// Export returns everything that is visible now. The caller closes it soon, since a database keeps
	// meanwhile what is deleted.
	Export(ctx context.Context) (Export, error)
}

// Export is a store at one instant, to be read without a limit of time. Its methods may be called
// concurrently. Once the store has lost it, reading it fails with [ErrUnavailable] for good.
type Export interface {
	Reader

	// Close releases the instant; reading it afterwards fails with [ErrClosed]. Only the first call
	// has an effect.
	Close() error
}
