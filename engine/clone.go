package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"packhorse/engine/clonecache"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/packgen"
	"packhorse/odb/span"
	"packhorse/pack/object"
)

// SendOptions are what [Fetch.Send] needs of its caller. The zero value works.
type SendOptions struct {
	// Slot waits for a slot for heavy work, which is held while the pack is planned. A request that
	// waits for the plan of another holds none.
	Slot func(context.Context) (release func(), err error)
	// Progress receives lines for the client.
	Progress func(string)
}

// Send writes the pack to w: a stored one when an equal request was answered before, the one that
// is being generated for an equal request, or one of its own.
func (f *Fetch) Send(ctx context.Context, w io.Writer, o SendOptions) error {
	request, err := f.packRequest(ctx)
	if err != nil {
		return err
	}
	clones := f.repo.host.clones
	if clones == nil {
		return f.sendOwn(ctx, request, w, o)
	}
	pack, reservation, err := clones.Lookup(ctx, f.cloneKey(&request), o.Progress)
	if err != nil {
		return err
	}
	if reservation != nil {
		defer reservation.Release()
		planned, err := f.plan(ctx, request, o.Slot, tellBoth(reservation.Tell, o.Progress))
		if err != nil {
			return err
		}
		if !f.pays(planned.plan) {
			reservation.Decline()
			return planned.send(ctx, w, o.Progress)
		}
		pack = reservation.Store(planned.generate(ctx))
	}
	if pack != nil {
		if err := pack.Send(ctx, w, o.Progress); !errors.Is(err, clonecache.ErrUnsent) {
			return err
		}
	}
	return f.sendOwn(ctx, request, w, o)
}

// sendOwn generates the pack without the cache.
func (f *Fetch) sendOwn(ctx context.Context, request packgen.Request, w io.Writer, o SendOptions) error {
	planned, err := f.plan(ctx, request, o.Slot, o.Progress)
	if err != nil {
		return err
	}
	return planned.send(ctx, w, o.Progress)
}

// packRequest is the request for the pack.
func (f *Fetch) packRequest(ctx context.Context) (packgen.Request, error) {
	shallow, unshallow, err := f.Boundary(ctx)
	if err != nil {
		return packgen.Request{}, err
	}
	request := packgen.Request{
		Wants:         f.wants,
		Haves:         f.common,
		ClientShallow: f.shallow,
		Shallow:       shallow,
		Unshallow:     unshallow,
		Filter:        f.filter,
		Thin:          f.request.Thin,
		OFSDelta:      f.request.OFSDelta,
	}
	if !f.request.IncludeTag {
		return request, nil
	}
	for ref, err := range f.names.All(ctx, f.request.Namespace.TagPrefix()) {
		if err != nil {
			return packgen.Request{}, fmt.Errorf("list tags: %w", err)
		}
		if !ref.Peeled.IsZero() {
			request.Tags = append(request.Tags, packgen.TagTarget{Tag: ref.ID, Peeled: ref.Peeled})
		}
	}
	return request, nil
}

// cloneKeyVersion is counted up when the same request begins to mean another pack.
const cloneKeyVersion = "packhorse clone 2\n"

// cloneKey hashes the repository and everything of a request; lists count as sets. With include-tag
// it holds the tags themselves, and so does not change when the head moves for another reason.
func (f *Fetch) cloneKey(request *packgen.Request) clonecache.Key {
	k := keyHash{sha256.New()}
	_, _ = io.WriteString(k, cloneKeyVersion)
	_, _ = k.Write(f.repo.record.ID[:])
	_, _ = k.Write(f.repo.record.Pool[:])
	for _, ids := range [][]object.ID{
		request.Wants, request.Haves, request.ClientShallow, request.Shallow, request.Unshallow,
	} {
		k.set(ids)
	}
	tags := make([]object.ID, len(request.Tags))
	for i, tag := range request.Tags {
		tags[i] = tag.Tag
	}
	k.set(tags)
	var flags byte
	for i, flag := range []bool{request.Thin, request.OFSDelta} {
		if flag {
			flags |= 1 << i
		}
	}
	_, _ = k.Write([]byte{flags})
	_, _ = io.WriteString(k, request.Filter.String())
	return clonecache.Key(k.Sum(nil))
}

// keyHash is a hash of lists that cannot run into each other.
type keyHash struct{ hash.Hash }

func (k keyHash) set(ids []object.ID) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, object.ID.Compare)
	ids = slices.Compact(ids)
	_, _ = k.Write(binary.BigEndian.AppendUint32(nil, uint32(len(ids))))
	for i := range ids {
		_, _ = k.Write(ids[i][:])
	}
}

// pays reports whether a pack is worth its place in the cache. Reading copies of whole segments
// from a cached file is no faster than reading the segments, and would store them twice. When disk
// space is short, nothing is cached.
func (f *Fetch) pays(plan *packgen.PackPlan) bool {
	return f.repo.host.space.Check() == nil && plan.WholeBytes() <= plan.Bytes()/2 &&
		plan.Bytes() <= f.repo.host.clones.EntryBytesMax()
}

// plannedPack is a plan with the view that it reads, since both may outlive the fetch.
type plannedPack struct {
	plan *packgen.PackPlan
	view *odb.View
}

// plan decides on the content of the pack. The plan is sent or generated, which also closes it.
func (f *Fetch) plan(
	ctx context.Context, request packgen.Request, slot func(context.Context) (func(), error), tell func(string),
) (_ *plannedPack, err error) {
	ctx, s := span.Begin(ctx, "pack plan") // with the wait for a slot
	defer func() { s.End(err) }()
	if slot != nil {
		release, err := slot(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	view := f.view.Share()
	plan, err := packgen.Plan(ctx, view.Linked(), request, narrate(tell))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plan pack: %w", err), view.Close())
	}
	return &plannedPack{plan, view}, nil
}

// generate is [plannedPack.send] for the cache, which may outlive the request of ctx. It is charged
// to that request.
func (p *plannedPack) generate(ctx context.Context) clonecache.Generate {
	return func(flight context.Context, w io.Writer, tell func(string)) error {
		return p.send(span.Move(fair.Charge(flight, ctx), ctx), w, tell)
	}
}

// send writes the pack and closes the plan.
func (p *plannedPack) send(ctx context.Context, w io.Writer, tell func(string)) error {
	defer p.view.Close()
	defer p.plan.Close()
	ctx, s := span.Begin(ctx, "pack generation")
	sent, err := p.plan.WriteTo(ctx, w, narrate(tell))
	s.Count("packhorse.pack.bytes", sent)
	s.End(err)
	if err != nil {
		return fmt.Errorf("send pack: %w", err)
	}
	return nil
}

// tellBoth tells each line to the requests that wait, and then to the client, who may be nil.
func tellBoth(waiting, client func(string)) func(string) {
	if client == nil {
		return waiting
	}
	return func(line string) {
		waiting(line)
		client(line)
	}
}
