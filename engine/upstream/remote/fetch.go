package remote

import (
	"context"
	"errors"
	"io"

	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// Haves lists our commits, newest first, so that the far side leaves them out. Its methods are
// called by one goroutine.
type Haves interface {
	// Next returns up to most commits that were not returned before and that are not known to be
	// common, nor to be behind a common one; none when there are no more.
	Next(ctx context.Context, most int) ([]object.ID, error)
	// Common reports that both sides have a commit, and so its ancestors. It was returned by Next.
	Common(id object.ID)
}

// FetchRequest selects the objects to fetch.
type FetchRequest struct {
	Wants []object.ID // at least one; of the advertisement
	// Haves is nil when we have nothing. Otherwise the pack may be thin: deltas in it may have bases
	// that we have and the pack has not.
	Haves Haves
	// IncludeTags requests annotated tags of the fetched commits, too.
	IncludeTags bool
	// Progress receives the progress messages of the far side, without secrets but with control
	// characters; nil asks for none.
	Progress io.Writer
}

// Fetch negotiates and returns the pack, as it arrives. The caller reads it to its end, and closes
// it in any case.
//
// The pack is unchecked data of the far side. It ends with io.EOF at the end that the far side
// marks, and with an error when it breaks off or is too slow; the reader itself may take any time.
// The errors are those of package [remote], and of Haves.
func (r *Remote) Fetch(ctx context.Context, ad *Advertisement, q FetchRequest) (pack io.ReadCloser, err error) {
	n := newNegotiation(r, ad, q)
	if len(q.Wants) == 0 {
		return nil, errors.New("remote: fetch: nothing is wanted")
	}
	if ad.shallow {
		return nil, &Error{Kind: ErrProtocol, Op: "fetch", Text: textShallow}
	}
	for {
		if err := n.advance(ctx); err != nil {
			return nil, err
		}
		a, err := r.send(ctx,
			request{op: "fetch", base: ad.base, service: uploadPack, version: ad.Version &^ 1, body: n.body()})
		if err != nil {
			return nil, err
		}
		a.limit(r.Limits.withDefaults().AdvertisementBytes, "negotiation")
		lines := pktline.NewReader(a)
		packFollows, err := n.read(a, lines)
		if err == nil && n.done && !packFollows {
			err = a.fail(ErrProtocol, "no pack when all was said")
		}
		switch {
		case err != nil:
			_ = a.close() // the error is known already
			return nil, err
		case packFollows:
			return n.stream(a, lines), nil
		}
		if err := a.finish(); err != nil {
			return nil, err
		}
	}
}

const textShallow = "the far side has only a part of the history (it is a shallow clone)"

// stream returns the pack behind the lines read so far.
func (n *negotiation) stream(a *answer, lines *pktline.Reader) io.ReadCloser {
	a.unlimited()
	limits := n.remote.Limits.withDefaults()
	if !n.sideband() {
		a.dog.unhurried()
		return &rawPack{a: a, src: lines.Rest(), left: limits.PackBytes, pace: newPace(limits)}
	}
	b := newBands(a, lines, limits.PackBytes, limits.ProgressBytes, n.request.Progress)
	b.pace = newPace(limits)
	return b
}
