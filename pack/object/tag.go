package object

import (
	"bytes"
	"slices"
)

// Tag is a tag object as a value:
//
//	object <ID>
//	type <type>
//	tag <name>
//	tagger <signature>   missing in tags of git's first years
//	<extra headers>
//
//	<message>
type Tag struct {
	Object  ID
	Type    Type
	Name    string
	Tagger  *Signature
	Extra   []Header
	Message string // as stored, a signature at its end included

	// raw is the parsed object when the layout above would not give its bytes.
	raw string
}

// ParseTag reads a tag: object, type and name must be there in this order.
//
// [Tag.Append] gives the same bytes again as long as no field has been changed. data is not kept. Errors: [ErrMalformed].
func ParseTag(data []byte) (*Tag, error) {
	t, err := parseTag(string(data))
	if err != nil {
		return nil, err
	}
	if canonical := t.appendCanonical(make([]byte, 0, len(data)+64)); !bytes.Equal(canonical, data) {
		t.raw = string(data)
	}
	return t, nil
}

func parseTag(data string) (*Tag, error) {
	r := headerReader{rest: data}
	t := &Tag{}
	var ok bool
	if t.Object, ok = r.takeID("object"); !ok {
		return nil, malformed(TypeTag, "no object")
	}
	name, ok := r.take("type")
	if !ok {
		return nil, malformed(TypeTag, "no type")
	}
	var err error
	if t.Type, err = ParseType(name); err != nil {
		return nil, malformed(TypeTag, "type %q", clip(name))
	}
	if t.Name, ok = r.take("tag"); !ok {
		return nil, malformed(TypeTag, "no name")
	}
	if line, ok := r.take("tagger"); ok {
		tagger, _ := ParseSignature(line)
		t.Tagger = &tagger
	}
	for {
		h, ok := r.next()
		if !ok {
			break
		}
		t.Extra = append(t.Extra, h)
	}
	t.Message = r.message()
	return t, nil
}

// Append appends the stored form of t to dst: the bytes that were parsed while no field differs from them, else the layout of [Tag].
func (t *Tag) Append(dst []byte) []byte {
	if t.raw != "" {
		if parsed, err := parseTag(t.raw); err == nil && parsed.equal(t) {
			return append(dst, t.raw...)
		}
	}
	return t.appendCanonical(dst)
}

func (t *Tag) appendCanonical(dst []byte) []byte {
	dst = appendIDHeader(dst, "object", t.Object)
	dst = appendHeader(dst, Header{"type", t.Type.String()})
	dst = appendHeader(dst, Header{"tag", t.Name})
	if t.Tagger != nil {
		dst = appendSignatureHeader(dst, "tagger", *t.Tagger)
	}
	for _, h := range t.Extra {
		dst = appendHeader(dst, h)
	}
	dst = append(dst, '\n')
	return append(dst, t.Message...)
}

func (t *Tag) equal(other *Tag) bool {
	sameTagger := t.Tagger == nil && other.Tagger == nil || t.Tagger != nil && other.Tagger != nil && *t.Tagger == *other.Tagger
	return sameTagger && t.Object == other.Object && t.Type == other.Type && t.Name == other.Name &&
		slices.Equal(t.Extra, other.Extra) && t.Message == other.Message
}

// Header returns the value of the first extra header called name.
func (t *Tag) Header(name string) (value string, ok bool) { return findHeader(t.Extra, name) }
