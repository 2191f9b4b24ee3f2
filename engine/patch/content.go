package patch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"packhorse/odb"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// textMax is the size in bytes up to which a file is held whole in memory, to which hunks and
// deltas can be applied.
const textMax = 32 << 20

var errTextTooLarge = &LimitError{Limit: "size in bytes of a file that a hunk or a delta is applied to", Max: textMax}

// content is the content of a file: a stored blob, or for a submodule the line that names its
// commit. The zero content is empty.
type content struct {
	id   object.ID // of the blob
	link []byte    // of the submodule
	size int64
}

const linkPrefix = "Subproject commit "

// stored returns the content of an entry of the tree.
func (a *applier) stored(ctx context.Context, e entry) (content, error) {
	if e.mode.IsGitlink() {
		link := fmt.Appendf(nil, "%s%s\n", linkPrefix, e.id)
		return content{link: link, size: int64(len(link))}, nil
	}
	info, err := a.base.view.Stat(ctx, e.id)
	if err != nil {
		return content{}, fmt.Errorf("read blob %s: %w", e.id, err)
	}
	return content{id: e.id, size: info.Size}, nil
}

// read returns the bytes of a content.
func (a *applier) read(ctx context.Context, c content) ([]byte, error) {
	switch {
	case c.link != nil || c.size == 0:
		return c.link, nil
	case c.size > textMax:
		return nil, errTextTooLarge
	}
	_, data, err := a.base.view.Read(ctx, c.id)
	if errors.Is(err, odb.ErrTooLarge) {
		return nil, errTextTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", c.id, err)
	}
	return data, nil
}

// write stores bytes as a content; predecessor is the previous blob of the path.
func (a *applier) write(ctx context.Context, mode object.Mode, data []byte, predecessor content) (content, error) {
	size := int64(len(data))
	if mode.IsGitlink() {
		return content{link: append([]byte{}, data...), size: size}, nil
	}
	id, err := a.objects.Write(ctx, object.TypeBlob, data, predecessor.id)
	if err != nil {
		return content{}, fmt.Errorf("write blob: %w", err)
	}
	return content{id: id, size: size}, nil
}

// patched returns what f makes of the content old, or why it does not fit.
func (a *applier) patched(ctx context.Context, f *file, old content) (content, string, error) {
	mode := object.Mode(f.newMode)
	if f.isBinary {
		return a.patchedBinary(ctx, f, mode, old)
	}
	if f.hunkCount == 0 && f.oldName != "" && f.newName != "" {
		return old, "", nil
	}
	if f.hunkCount == 1 && !f.removes && old.size == 0 && f.addBytes > wholeMax && !mode.IsGitlink() {
		return a.added(ctx, f)
	}
	data, err := a.read(ctx, old)
	if err != nil {
		return content{}, "", err
	}
	m := newImage(data, a.limits.WorkBytesMax-a.work)
	at := f.hunksAt
	for range f.hunkCount {
		h, reason, err := a.place(ctx, m, at)
		if reason != "" || err != nil {
			return content{}, reason, err
		}
		at = h.at + h.size
	}
	a.work += m.work
	if f.newName == "" { // a removal leaves no content, or is refused
		return content{size: m.size}, "", nil
	}
	c, err := a.write(ctx, mode, m.bytes(), old)
	return c, "", err
}

// place applies the hunk whose head is at an offset.
func (a *applier) place(ctx context.Context, m *image, at int64) (hunk, string, error) {
	h, ok, err := a.source.hunk(ctx, at)
	if err != nil {
		return h, "", err
	}
	if !ok {
		return h, "", a.source.malformed(at, "a corrupt hunk") // the source has changed
	}
	if h.size > 2*textMax {
		return h, "", errTextTooLarge
	}
	text := make([]byte, h.size)
	if err := a.source.read(text, h.at); err != nil {
		return h, "", err
	}
	e := newEdit(text)
	// A hunk for the first line begins the file, and one that ends without context ends it.
	atStart, atEnd := h.oldPos <= 1, h.trailing == 0
	wanted := int(int32(max(h.newPos, 1) - 1))
	to, gone, ok, err := m.find(ctx, e, wanted, atStart, atEnd)
	if err != nil {
		return h, "", err
	}
	if !ok {
		return h, fmt.Sprintf("the hunk for line %d does not apply", h.oldPos), nil
	}
	m.replace(to, gone, e)
	if m.size > textMax {
		return h, "", errTextTooLarge
	}
	return h, "", nil
}

// patchedBinary is patched for a part in binary form, which says in full which blob it expects and
// which one it makes.
func (a *applier) patchedBinary(ctx context.Context, f *file, mode object.Mode, old content) (content, string, error) {
	oldID, newID, ok := f.fullIDs()
	if !ok {
		return content{}, "a binary part needs an index line with full object IDs", nil
	}
	if f.oldName != "" {
		is := old.id
		if old.link != nil || is.IsZero() {
			var err error
			if is, err = object.Hash(object.TypeBlob, old.link); err != nil {
				return content{}, "", fmt.Errorf("hash: %w", err)
			}
		}
		if is.String() != f.oldID {
			return content{}, fmt.Sprintf("the patch expects %s, and it is %s", oldID, is), nil
		}
	}
	switch {
	case newID.IsZero() && f.newName == "":
		return content{}, "", nil
	case newID.IsZero():
		c, err := a.write(ctx, mode, nil, content{})
		return c, "", err
	case !mode.IsGitlink():
		if c, ok, err := a.known(ctx, newID); ok || err != nil {
			return c, "", err
		}
	}
	return a.inflated(ctx, f, mode, old, newID)
}

// fullIDs returns the ids of the index line, and false unless both are whole.
func (f *file) fullIDs() (oldID, newID object.ID, ok bool) {
	oldID, err := object.ParseID(strings.ToLower(f.oldID))
	if err != nil {
		return oldID, newID, false
	}
	newID, err = object.ParseID(strings.ToLower(f.newID))
	return oldID, newID, err == nil
}

// known returns the content of an object that is stored already. Like git it accepts any object.
// The ID comes from the client, so it is looked up with Asking.
func (a *applier) known(ctx context.Context, id object.ID) (content, bool, error) {
	info, err := a.base.view.Asking().Stat(ctx, id)
	if errors.Is(err, odb.ErrNotFound) {
		return content{}, false, nil
	}
	if err != nil {
		return content{}, false, fmt.Errorf("read object %s: %w", id, err)
	}
	if info.Type == object.TypeBlob {
		return content{id: id, size: info.Size}, true, nil
	}
	data, err := a.read(ctx, content{id: id, size: info.Size})
	if err != nil {
		return content{}, false, err
	}
	c, err := a.write(ctx, object.ModeBlob, data, content{})
	return c, true, err
}

// inflated applies the binary hunk.
func (a *applier) inflated(
	ctx context.Context, f *file, mode object.Mode, old content, want object.ID,
) (content, string, error) {
	if f.binary.method == 0 {
		return content{}, "the patch only says that the contents differ", nil
	}
	if f.binary.method == literal && f.binary.size > wholeMax && !mode.IsGitlink() {
		c, err := a.streamed(ctx, f.binary)
		return c, mismatch(c.id, want), err
	}
	if f.binary.size > textMax {
		return content{}, "", errTextTooLarge
	}
	var data bytes.Buffer
	if err := inflate(&data, &base85Reader{ctx: ctx, source: a.source, at: f.binary.at}, f.binary.size); err != nil {
		return content{}, "", fmt.Errorf("read binary hunk: %w", err)
	}
	made := data.Bytes()
	if f.binary.method == deltified {
		base, err := a.read(ctx, old)
		if err != nil {
			return content{}, "", err
		}
		made, err = delta.Apply(nil, base, made, textMax)
		if errors.Is(err, delta.ErrTooLarge) {
			return content{}, "", errTextTooLarge
		}
		if err != nil {
			return content{}, fmt.Sprintf("its delta does not apply: %v", err), nil
		}
	}
	id, err := object.Hash(object.TypeBlob, made)
	if err != nil {
		return content{}, "", fmt.Errorf("hash blob: %w", err)
	}
	if reason := mismatch(id, want); reason != "" {
		return content{}, reason, nil
	}
	c, err := a.write(ctx, mode, made, old)
	return c, "", err
}

// mismatch says that a binary part makes another blob than it states.
func mismatch(id, want object.ID) string {
	if id == want {
		return ""
	}
	return fmt.Sprintf("the patch makes %s, and states %s", id, want)
}
