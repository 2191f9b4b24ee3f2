package file

import "context"

// Remote is implemented by a [Store] in which a killed process leaves files, and parts of files,
// that no start of it would find. Whoever creates files there notes durably, before anything of one
// is sent, that it is about to be stored: an [Intent].
type Remote interface {
	// CreateIntended is [Store.Create] of a file that has an intent.
	CreateIntended(ctx context.Context, name string, intent Intent) (Writer, error)

	// Discard removes everything that a writer of a name may have left: a sealed file, and the parts
	// of an upload unless upload is empty. It returns nil if there is nothing. The writer must be
	// unable to make its file count; what it still sends may stay.
	Discard(ctx context.Context, name, upload string) error
}

// Intent is what a writer of a [Remote] file is noted in. Its methods may be called concurrently.
type Intent interface {
	// Begin returns nil when the intent is durable. A writer calls it before each request that can
	// leave something, and sends none after an error.
	Begin(ctx context.Context) error

	// Upload notes durably the name that the store gave to an upload of parts. A writer sends none of
	// them before it has returned nil.
	Upload(ctx context.Context, id string) error

	// End is called once, after Abort or a Seal that failed, when the writer has removed what it sent.
	// An error says that something may be left. It must not block.
	End(err error)
}

// AsRemote returns the Remote that a store is, or that a store before another one leads to. It
// returns nil when nothing stays behind a killed process.
func AsRemote(store Store) Remote {
	switch s := store.(type) {
	case interface{ AsRemote() Remote }:
		return s.AsRemote()
	case Remote:
		return s
	default:
		return nil
	}
}

// Reserve tells a store that notes intents which files one caller is about to create: one note then
// does for all of them, and is on its way before the first of them is created.
func Reserve(ctx context.Context, store Store, names ...string) {
	if reserver, ok := store.(interface {
		Reserve(ctx context.Context, names ...string)
	}); ok {
		reserver.Reserve(ctx, names...)
	}
}
