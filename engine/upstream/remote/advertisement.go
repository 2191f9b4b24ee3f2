package remote

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"packhorse/pack/object"
	"packhorse/pack/pktline"
	"packhorse/refs"
)

// Ref is a ref of the far side.
type Ref struct {
	Name   string // full
	ID     object.ID
	Peeled object.ID // of an annotated tag, the peeled object; else zero
}

// Advertisement is the refs and capabilities of the far side at one time.
type Advertisement struct {
	Refs []Ref // sorted by name, no name twice
	// Head is the branch that the far side's HEAD points at, "refs/heads/main", whether it exists
	// or not; "" when the far side does not say.
	Head    string
	Skipped int // refs whose names no repository of ours may have; they are not among Refs
	Version int // of the protocol that the far side speaks: 0, 1 or 2

	base     *url.URL // where the repository is, after redirects
	caps     capabilities
	shallow  bool // the far side has a part of the history only
	service  string
	prefixes []string
}

// Refs lists the refs of the far side that begin with one of the prefixes, or all of them when
// there is none. Those under "refs/namespaces/" are another host's own and never listed.
func (r *Remote) Refs(ctx context.Context, prefixes ...string) (*Advertisement, error) {
	ad, err := r.discover(ctx, "list refs", uploadPack, prefixes)
	if err != nil || ad.Version != 2 {
		return ad, err
	}
	return ad, r.listRefs(ctx, ad)
}

// discover asks for the advertisement of a service: the refs up to version 1, the capabilities only
// from version 2.
func (r *Remote) discover(ctx context.Context, op, service string, prefixes []string) (*Advertisement, error) {
	q := request{op: op, base: r.URL, service: service}
	if service == uploadPack {
		q.version = 2
	}
	a, err := r.send(ctx, q)
	if err != nil {
		return nil, err
	}
	a.limit(r.Limits.withDefaults().AdvertisementBytes, "advertisement")
	ad := &Advertisement{service: service, prefixes: prefixes}
	if err := ad.read(a, r.Limits.withDefaults()); err != nil {
		_ = a.close() // the error is known already
		return nil, err
	}
	ad.base, err = a.repository(service)
	if err != nil {
		_ = a.close()
		return nil, err
	}
	return ad, a.finish()
}

// repository returns the URL of the repository whose advertisement this is.
func (a *answer) repository(service string) (*url.URL, error) {
	path, ok := strings.CutSuffix(a.url.Path, "/info/refs")
	if !ok || a.url.RawQuery != "service="+service {
		return nil, a.fail(ErrProtocol, "a redirect to something else than a repository")
	}
	base := *a.url
	base.Path, base.RawPath, base.RawQuery = path, "", ""
	return &base, nil
}

// read reads an advertisement of any version to its end.
func (ad *Advertisement) read(a *answer, limits Limits) error {
	lines := pktline.NewReader(a)
	kind, text, err := a.next(lines)
	named := kind == pktline.Data && text == "# service="+ad.service // which version 2 may leave out
	if err == nil && named {
		if kind, _, err = a.next(lines); err == nil && kind != pktline.Flush {
			return a.fail(ErrProtocol, "no flush behind the name of the service")
		}
		if err == nil {
			kind, text, err = a.next(lines)
		}
	}
	if err == nil && kind == pktline.Data && text == "version 2" && ad.service == uploadPack {
		ad.Version = 2
		return ad.readCapabilities(a, lines)
	}
	if err == nil && kind == pktline.Data && text == "version 1" {
		ad.Version = 1
		kind, text, err = a.next(lines)
	}
	switch {
	case err != nil:
		return err
	case kind == pktline.Flush && named:
		return nil // an empty repository of a git that has no line for it
	case kind != pktline.Data || !named:
		return a.fail(ErrProtocol, "no advertisement of %s", ad.service)
	}
	return ad.readRefs(a, lines, text, limits)
}

// readRefs reads the refs of version 0 or 1, whose first line carries the capabilities.
func (ad *Advertisement) readRefs(a *answer, lines *pktline.Reader, first string, limits Limits) error {
	first, told, ok := strings.Cut(first, "\x00")
	if !ok {
		return a.fail(ErrProtocol, "no capabilities in the advertisement")
	}
	ad.caps = parseCapabilities(strings.Fields(told))
	if err := ad.checkFormat(a); err != nil {
		return err
	}
	for _, link := range ad.caps["symref"] {
		if target, ok := strings.CutPrefix(link, "HEAD:"); ok {
			ad.setHead(target)
		}
	}
	collected := newCollector(a, ad, limits)
	for text := first; ; {
		if err := collected.line(text); err != nil {
			return err
		}
		kind, next, err := a.next(lines)
		if err != nil {
			return err
		}
		if kind == pktline.Flush {
			return collected.end()
		}
		if kind != pktline.Data {
			return a.fail(ErrProtocol, "a %s packet in the advertisement", kind)
		}
		text = next
	}
}

// setHead stores the target of HEAD, when that is a branch.
func (ad *Advertisement) setHead(target string) {
	if strings.HasPrefix(target, "refs/heads/") && refs.CheckName(target) == nil {
		ad.Head = target
	}
}

// collector collects refs.
type collector struct {
	a    *answer
	ad   *Advertisement
	max  int
	left int64  // bytes of names that may still be kept
	kept bool   // the last ref is among those kept
	last string // the last name, for the peeled id that may follow
}

func newCollector(a *answer, ad *Advertisement, limits Limits) *collector {
	return &collector{a: a, ad: ad, max: limits.Refs, left: limits.NameBytes}
}

// line takes a line of version 0 or 1: "<id> <name>", "<id> <name>^{}" behind the tag that it
// peels, "shallow <id>".
func (c *collector) line(text string) error {
	digits, name, ok := strings.Cut(text, " ")
	if digits == "shallow" {
		c.ad.shallow = true
		return nil
	}
	id, err := object.ParseID(digits)
	if err != nil || !ok || name == "" {
		return c.a.fail(ErrProtocol, "a line of the advertisement that is no ref: %.100q", text)
	}
	if name == "capabilities^{}" { // an empty repository has no other line for them
		return nil
	}
	if tag, ok := strings.CutSuffix(name, "^{}"); ok {
		if tag != c.last {
			return c.a.fail(ErrProtocol, "a peeled id without its tag: %.100q", text)
		}
		if c.kept {
			c.ad.Refs[len(c.ad.Refs)-1].Peeled = id
		}
		return nil
	}
	return c.add(Ref{Name: name, ID: id})
}

// add keeps a requested ref.
func (c *collector) add(ref Ref) error {
	c.last, c.kept = ref.Name, false
	switch {
	case ref.ID.IsZero():
		return c.a.fail(ErrProtocol, "a ref without an object: %.100q", ref.Name)
	case !c.ad.wants(ref.Name):
		return nil
	case refs.CheckName(ref.Name) != nil:
		c.ad.Skipped++
		return nil
	case len(c.ad.Refs) >= c.max:
		return c.a.fail(ErrLimit, "more than %d refs", c.max)
	}
	if c.left -= int64(len(ref.Name)); c.left < 0 {
		return c.a.fail(ErrLimit, "names of refs that are too long altogether")
	}
	ref.Name = strings.Clone(ref.Name)
	c.ad.Refs = append(c.ad.Refs, ref)
	c.kept = true
	return nil
}

// wants reports whether a ref was requested; a push requests none. HEAD and its like are handled
// elsewhere.
func (ad *Advertisement) wants(name string) bool {
	if ad.service != uploadPack || !strings.HasPrefix(name, "refs/") || strings.HasPrefix(name, "refs/namespaces/") {
		return false
	}
	return len(ad.prefixes) == 0 || slices.ContainsFunc(ad.prefixes, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// end sorts the collected refs.
func (c *collector) end() error {
	list := c.ad.Refs
	slices.SortFunc(list, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(list); i++ {
		if list[i].Name == list[i-1].Name {
			return c.a.fail(ErrProtocol, "a ref that is told twice: %.100q", list[i].Name)
		}
	}
	return nil
}
