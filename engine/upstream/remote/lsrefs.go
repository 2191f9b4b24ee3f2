package remote

import (
	"context"
	"strings"

	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// command returns the beginning of a request of version 2, up to its arguments.
func (r *Remote) command(ad *Advertisement, name string) []byte {
	body := pktline.AppendLine(nil, []byte("command="+name+"\n"))
	if ad.caps.has("agent") {
		body = pktline.AppendLine(body, []byte("agent="+r.agent()))
	}
	if ad.caps.has("object-format") {
		body = pktline.AppendLine(body, []byte("object-format=sha1"))
	}
	return append(body, "0001"...)
}

// prefixesMax bounds the ref prefixes in a request. The far side may answer with other refs
// nevertheless, and always does without prefixes.
const prefixesMax = 32

// listRefs asks for the refs in version 2: gitprotocol-v2(5), ls-refs.
func (r *Remote) listRefs(ctx context.Context, ad *Advertisement) error {
	body := r.command(ad, "ls-refs")
	args := []string{"peel", "symrefs"}
	if ad.caps.offers("ls-refs", "unborn") {
		args = append(args, "unborn")
	}
	if n := len(ad.prefixes); n > 0 && n <= prefixesMax {
		args = append(args, "ref-prefix HEAD")
		for _, prefix := range ad.prefixes {
			args = append(args, "ref-prefix "+prefix)
		}
	}
	for _, arg := range args {
		body = pktline.AppendLine(body, []byte(arg+"\n"))
	}
	body = append(body, "0000"...)

	a, err := r.send(ctx, request{op: "list refs", base: ad.base, service: uploadPack, version: 2, body: body})
	if err != nil {
		return err
	}
	limits := r.Limits.withDefaults()
	a.limit(limits.AdvertisementBytes, "advertisement")
	if err := ad.readListing(a, limits); err != nil {
		_ = a.close() // the error is known already
		return err
	}
	return a.finish()
}

// readListing reads the answer to ls-refs.
func (ad *Advertisement) readListing(a *answer, limits Limits) error {
	lines := pktline.NewReader(a)
	collected := newCollector(a, ad, limits)
	for {
		kind, text, err := a.next(lines)
		switch {
		case err != nil:
			return err
		case kind == pktline.Flush:
			return collected.end()
		case kind != pktline.Data:
			return a.fail(ErrProtocol, "a %s packet in the listing", kind)
		}
		if err := collected.listed(text); err != nil {
			return err
		}
	}
}

// listed takes a line of version 2: "<id> <name>" or "unborn <name>", and attributes.
func (c *collector) listed(text string) error {
	digits, rest, ok := strings.Cut(text, " ")
	name, attributes, _ := strings.Cut(rest, " ")
	var ref Ref
	if digits != "unborn" {
		id, err := object.ParseID(digits)
		if err != nil || !ok || name == "" {
			return c.a.fail(ErrProtocol, "a line of the listing that is no ref: %.100q", text)
		}
		ref = Ref{Name: name, ID: id}
	}
	for attribute := range strings.FieldsSeq(attributes) {
		if target, ok := strings.CutPrefix(attribute, "symref-target:"); ok && name == "HEAD" {
			c.ad.setHead(target)
		}
		if digits, ok := strings.CutPrefix(attribute, "peeled:"); ok {
			id, err := object.ParseID(digits)
			if err != nil {
				return c.a.fail(ErrProtocol, "a peeled id that is none: %.100q", text)
			}
			ref.Peeled = id
		}
	}
	if digits == "unborn" {
		return nil
	}
	return c.add(ref)
}
