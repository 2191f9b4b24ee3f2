package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"packhorse/engine/upstream/remote"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
	"packhorse/refs"
)

// pull fetches the missing objects and moves our refs.
func (s *Sync) pull(ctx context.Context) (err error) {
	updates := s.updates(s.steps[pull], s.local, s.far)
	if len(updates) == 0 {
		return nil
	}
	wants, err := s.missing(ctx, updates)
	if err != nil {
		return err
	}
	var pack io.ReadCloser
	if len(wants) > 0 {
		request := remote.FetchRequest{Wants: wants}
		if request.Haves, err = s.haves(ctx); err != nil {
			return err
		}
		if pack, err = s.Far.Fetch(ctx, s.advertised, request); err != nil {
			return far(err)
		}
		defer func(pack io.Closer) { _ = pack.Close() }(pack)
	}
	// A ref that goes makes room for others. Whatever needs the pack comes with the first transaction
	// behind that: its objects are stored then. Clones have a branch to check out from the first
	// transaction on.
	var gone, others []Update
	for _, u := range updates {
		switch {
		case u.New.IsZero():
			gone = append(gone, u)
		case u.Name == s.head:
			others = append([]Update{u}, others...)
		default:
			others = append(others, u)
		}
	}
	for _, part := range slices.Concat(slices.Collect(slices.Chunk(gone, updatesMax)),
		slices.Collect(slices.Chunk(others, updatesMax))) {
		p := &Pull{Updates: part, Stage: func(b *kv.Batch, moved []Update) {
			for _, u := range moved {
				See(b, s.Repo.ID(), u.Name, u.New)
			}
		}}
		if pack != nil && !part[0].New.IsZero() {
			p.Pack, pack = farReader{pack}, nil
		}
		results, err := s.Repo.Pull(ctx, p)
		if err != nil {
			return err
		}
		for i, refused := range results {
			s.pulled(part[i], refused)
		}
	}
	return nil
}

// FarError is a failure of the far side or of the connection.
type FarError struct{ Err error }

func (e *FarError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *FarError) Unwrap() error { return e.Err }

func far(err error) error { return &FarError{err} }

// farReader marks errors of reading from the far side.
type farReader struct{ io.Reader }

func (r farReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // readers return it bare
		err = far(err)
	}
	return n, err
}

// haves returns our commits for the negotiation, nil when there are none.
func (s *Sync) haves(ctx context.Context) (remote.Haves, error) {
	if len(s.tips) == 0 {
		return nil, nil
	}
	shared, err := s.common(ctx)
	if err != nil {
		return nil, err
	}
	return newHaves(ctx, s.view, s.tips, shared)
}

// pulled notes what became of an update of ours.
func (s *Sync) pulled(u Update, refused error) {
	var denied *refs.DeniedError
	switch {
	case refused == nil:
	case errors.Is(refused, refs.ErrStale):
		s.moved = true // the next sync handles it
	case errors.As(refused, &denied) && u.Old == s.known.seen[u.Name]:
		s.tell(u.Name, whyForced)
	case errors.As(refused, &denied):
		s.tell(u.Name, whyDiverged)
	default:
		s.tell(u.Name, "cannot be taken over: "+refused.Error())
	}
}

// updates returns the ref updates that bring one side, which is at from, to the other.
func (s *Sync) updates(names []string, from, to map[string]object.ID) []Update {
	updates := make([]Update, len(names))
	for i, name := range names {
		updates[i] = Update{Name: name, Old: from[name], New: to[name]}
	}
	return updates
}

// missing returns the new values of updates that we do not have, each once.
func (s *Sync) missing(ctx context.Context, updates []Update) ([]object.ID, error) {
	var wants []object.ID
	asked := make(map[object.ID]struct{})
	for _, u := range updates {
		if _, ok := asked[u.New]; ok || u.New.IsZero() {
			continue
		}
		asked[u.New] = struct{}{}
		known, err := s.view.Has(ctx, u.New)
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", u.New, err)
		}
		if !known {
			wants = append(wants, u.New)
		}
	}
	return wants, nil
}

// push sends our new objects and moves the remote refs, each only from the value that was
// advertised.
func (s *Sync) push(ctx context.Context) error {
	updates := s.updates(s.steps[push], s.far, s.local)
	if len(updates) == 0 {
		return nil
	}
	for part := range slices.Chunk(updates, updatesMax) {
		if err := s.send(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sync) send(ctx context.Context, updates []Update) error {
	request := packgen.Request{OFSDelta: true}
	commands := make([]remote.Command, len(updates))
	for i, u := range updates {
		commands[i] = remote.Command{Name: u.Name, Old: u.Old, New: u.New}
		if !u.New.IsZero() {
			request.Wants = append(request.Wants, u.New)
		}
	}
	var pack func(io.Writer) error
	if len(request.Wants) > 0 {
		var err error
		if request.Haves, err = s.common(ctx); err != nil {
			return err
		}
		plan, err := packgen.Plan(ctx, s.view, request, nil)
		if err != nil {
			return fmt.Errorf("plan pack: %w", err)
		}
		defer plan.Close()
		pack = func(w io.Writer) error {
			_, err := plan.WriteTo(ctx, w, nil)
			return err
		}
	}
	results, err := s.Far.Push(ctx, remote.PushRequest{Commands: commands, Pack: pack})
	if err != nil {
		return far(err)
	}
	var done []string
	for i, result := range results {
		if result.Reason != "" {
			s.tell(updates[i].Name, fmt.Sprintf("is refused by the upstream: %.200s", result.Reason))
			continue
		}
		done = append(done, updates[i].Name)
	}
	return s.remember(ctx, done)
}

// common returns the advertised objects that this store has.
func (s *Sync) common(ctx context.Context) ([]object.ID, error) {
	var common []object.ID
	asked := make(map[object.ID]struct{})
	for _, id := range s.far {
		if _, ok := asked[id]; ok {
			continue
		}
		asked[id] = struct{}{}
		known, err := s.view.Has(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", id, err)
		}
		if known {
			common = append(common, id)
		}
	}
	return common, nil
}
