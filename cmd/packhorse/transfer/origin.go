package transfer

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"packhorse/cmd/packhorse/gitdir"
	"packhorse/engine/upstream/remote"
	"packhorse/pack/object"
)

// origin is a repository that is brought. It is used by one goroutine.
type origin interface {
	// refs lists the refs by name, the branch of HEAD or "", and how many refs were left out.
	refs(ctx context.Context) (list []remote.Ref, head string, skipped int, err error)
	// pack returns a pack of what wants reach and haves do not. Deltas in it may have bases that haves
	// reach.
	pack(ctx context.Context, wants, haves []object.ID) (*outgoing, error)
	Close() error
}

// opener opens an origin.
type opener func() (origin, error)

// outgoing is a pack that is on its way.
type outgoing struct {
	bytes int64 // about the size, 0 if it is not known
	write func(to io.Writer) error
	close func() error
}

// folder is a repository in a folder. Its packs are read without git: what they hold is copied as
// it is stored.
type folder struct{ *gitdir.Repository }

func openFolder(path string) opener {
	return func() (origin, error) {
		repository, err := gitdir.Open(path)
		if err != nil {
			return nil, err
		}
		return folder{repository}, nil
	}
}

func (f folder) refs(context.Context) (list []remote.Ref, head string, skipped int, err error) {
	return f.Refs()
}

func (f folder) pack(ctx context.Context, wants, haves []object.ID) (*outgoing, error) {
	plan, err := f.Plan(ctx, wants, haves)
	if err != nil {
		return nil, err
	}
	return &outgoing{
		bytes: plan.Bytes, write: func(to io.Writer) error { return plan.WriteTo(ctx, to) },
		close: func() error { return nil },
	}, nil
}

// host is a repository on another host. What it sends goes on to the server as it arrives.
type host struct {
	remote *remote.Remote
	ad     *remote.Advertisement
}

// hostLimits are those of a repository that an operator names: as many refs as ours may have.
var hostLimits = remote.Limits{Refs: 1_000_000, NameBytes: 128 << 20}

// openHost opens the repository at a URL. A password goes to its origin only.
func openHost(client *http.Client, at *url.URL, user, password, agent string) opener {
	bare := *at
	bare.User = nil
	return func() (origin, error) {
		return &host{remote: &remote.Remote{
			URL: &bare, Client: client, Agent: agent, Limits: hostLimits,
			Authorize: func(context.Context) (string, string, error) { return user, password, nil },
		}}, nil
	}
}

func (h *host) refs(ctx context.Context) (list []remote.Ref, head string, skipped int, err error) {
	if h.ad, err = h.remote.Refs(ctx); err != nil {
		return nil, "", 0, err
	}
	return h.ad.Refs, h.ad.Head, h.ad.Skipped, nil
}

func (h *host) pack(ctx context.Context, wants, haves []object.ID) (*outgoing, error) {
	request := remote.FetchRequest{Wants: wants}
	if len(haves) > 0 {
		request.Haves = &given{left: haves}
	}
	stream, err := h.remote.Fetch(ctx, h.ad, request)
	if err != nil {
		return nil, err
	}
	return &outgoing{
		write: func(to io.Writer) error {
			_, err := io.Copy(to, stream)
			return err
		},
		close: stream.Close,
	}, nil
}

func (h *host) Close() error { return nil }

// given are haves without a history behind them.
type given struct{ left []object.ID }

func (g *given) Next(_ context.Context, most int) ([]object.ID, error) {
	next := g.left[:min(most, len(g.left))]
	g.left = g.left[len(next):]
	return next, nil
}

func (g *given) Common(object.ID) {}
