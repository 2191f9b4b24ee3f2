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
	"sync"

	"packhorse/engine/clonecache"
	"packhorse/odb/fair"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// SendOptions are what [Fetch.Send] needs of its caller. The zero value works.
type SendOptions struct {
	// Slot waits for a slot for heavy work, which is held while the pack is planned. It may be
	// called by another goroutine, and after Send has returned, since other requests may wait for
	// the same pack.
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
	g := &generation{fetch: f, request: request, slot: o.Slot}
	defer g.close()
	if clones := f.repo.host.clones; clones != nil {
		err := clones.Send(ctx, f.cloneKey(&request), w, o.Progress, func() clonecache.Generate { return g.begin(ctx) })
		if !errors.Is(err, clonecache.ErrBypass) {
			return err
		}
	}
	plan := g.take()
	if plan == nil {
		if plan, err = g.plan(ctx, o.Progress); err != nil {
			return err
		}
	}
	defer plan.Close()
	return send(ctx, plan, w, o.Progress)
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

// generation is the generation of a pack, from its plan to its readers.
type generation struct {
	fetch   *Fetch
	request packgen.Request
	slot    func(context.Context) (release func(), err error)

	mu     sync.Mutex        // guards the fields below
	left   *packgen.PackPlan // that the cache did not want
	closed bool              // no request will use it
}

// begin turns the generation into one of the cache, which may outlive the fetch. It is charged to
// the request that began it.
func (g *generation) begin(began context.Context) clonecache.Generate {
	g.fetch.readers.Add(1)
	return func(ctx context.Context, w io.Writer, tell func(string)) error {
		defer g.fetch.release()
		ctx = fair.Charge(ctx, began)
		plan, err := g.plan(ctx, tell)
		if err != nil {
			return err
		}
		if g.pays(plan) {
			defer plan.Close()
			return send(ctx, plan, w, tell)
		}
		g.leave(plan)
		return clonecache.ErrBypass
	}
}

// pays reports whether the pack is worth its place in the cache. Reading copies of whole segments
// from a cached file is no faster than reading the segments, and would store them twice. When disk
// space is short, nothing is cached.
func (g *generation) pays(plan *packgen.PackPlan) bool {
	return g.fetch.repo.host.space.Check() == nil && plan.WholeBytes() <= plan.Bytes()/2 &&
		plan.Bytes() <= g.fetch.repo.host.clones.EntryBytesMax()
}

// plan decides on the content of the pack.
func (g *generation) plan(ctx context.Context, tell func(string)) (*packgen.PackPlan, error) {
	if g.slot != nil {
		release, err := g.slot(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	plan, err := packgen.Plan(ctx, g.fetch.view.Linked(), g.request, narrate(tell))
	if err != nil {
		return nil, fmt.Errorf("plan pack: %w", err)
	}
	return plan, nil
}

// leave gives a plan to the fetch that began it.
func (g *generation) leave(plan *packgen.PackPlan) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		plan.Close()
		return
	}
	g.left = plan
}

// take returns the plan that was left, nil when there is none. The caller closes it.
func (g *generation) take() *packgen.PackPlan {
	g.mu.Lock()
	defer g.mu.Unlock()
	plan := g.left
	g.left = nil
	return plan
}

// close closes a plan that was not taken.
func (g *generation) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.left != nil {
		g.left.Close()
	}
}

// send writes a planned pack.
func send(ctx context.Context, plan *packgen.PackPlan, w io.Writer, tell func(string)) error {
	if _, err := plan.WriteTo(ctx, w, narrate(tell)); err != nil {
		return fmt.Errorf("send pack: %w", err)
	}
	return nil
}
