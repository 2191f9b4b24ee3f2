package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/engine/cluster"
	"packhorse/odb/file"
	"packhorse/odb/intent"
)

// errNoIntents says that files which nothing names cannot be told from those that are being stored:
// the stores are not shared, or a server of an older release is among those that share them.
var errNoIntents = errors.New("unregistered files cannot be removed")

// RemoveUnregistered removes the files of a bucket that neither a row nor a server that is writing
// names, such as older releases have left, and returns their number and size. It lists the bucket.
// It fails
// when the stores are not shared, and when an older server shares them.
func (h *Host) RemoveUnregistered(ctx context.Context) (count, bytes int64, err error) {
	if h.member == nil {
		return 0, 0, fmt.Errorf("%w: the files are in the data folder, from which a start removes them", errNoIntents)
	}
	servers, err := cluster.List(ctx, h.keys)
	if err != nil {
		return 0, 0, err
	}
	for _, server := range servers {
		if !server.Intents {
			return 0, 0, fmt.Errorf("%w while server %s of version %s is there: it is older", errNoIntents, server.ID,
				server.Version)
		}
	}
	for info, err := range h.objects.Unregistered(ctx) {
		if err == nil {
			err = h.objects.Files.Delete(ctx, info.Name)
		}
		if err != nil && !errors.Is(err, file.ErrNotFound) {
			return count, bytes, fmt.Errorf("remove unregistered files: %w", err)
		}
		count++
		bytes += info.Size
	}
	return count, bytes, nil
}

// IntentStats returns the counts of the intents of files; zero where there are none.
func (h *Host) IntentStats() intent.Stats { return h.objects.IntentStats() }

// servers are those that share the stores, as soon as this one has joined them.
type servers struct {
	joined <-chan struct{}
	member func() *cluster.Member
}

var _ intent.Servers = (*servers)(nil)

func (s *servers) await(ctx context.Context) (*cluster.Member, error) {
	select {
	case <-s.joined:
		return s.member(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Own implements odb/intent.Servers.
func (s *servers) Own(ctx context.Context) (intent.ServerID, error) {
	member, err := s.await(ctx)
	if err != nil {
		return intent.ServerID{}, err
	}
	return member.Own(ctx)
}

// Live implements odb/intent.Servers.
func (s *servers) Live(ctx context.Context) (map[intent.ServerID]struct{}, error) {
	member, err := s.await(ctx)
	if err != nil {
		return nil, err
	}
	return member.Live(ctx)
}
