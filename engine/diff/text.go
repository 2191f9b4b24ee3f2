package diff

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"packhorse/engine/diff/lines"
	"packhorse/pack/object"
)

// TextOptions are the options of the diff of a file.
type TextOptions struct {
	// Binary includes binary contents as a GIT binary patch, which git apply accepts; otherwise the
	// diff only says that they differ.
	Binary bool
	// SizeMax is the size in bytes above which a file is treated as binary; 0 means 512 MiB.
	SizeMax int64
}

// Text is the diff of one file: the output of git diff for it.
type Text struct {
	// Additions and Deletions count lines; they are 0 for a binary file.
	Additions, Deletions int
	// Binary says that one of the contents is binary.
	Binary bool
	// EndsInNewline is about the new content, or about the old one of a deleted file.
	EndsInNewline bool

	parts []part
}

// part is a header with its body. There is one, or two where a file changed its type: the deletion
// and the creation.
type part struct {
	objects  Objects
	change   Change
	old, new content
	changes  []lines.Change
	binary   bool // the contents are not compared by lines
	whole    bool // they are shown as a binary patch
}

// NewText compares the contents of one changed file.
//
// Both are held in memory, with about 50 bytes a line while they are compared, and as long as the
// text is used; above 32 MiB they are copies of the stored bytes. Only the beginning of binary
// files above 8 MiB is read. Errors: those of objects and of ctx.
func NewText(ctx context.Context, objects Objects, c *Change, o TextOptions) (*Text, error) {
	o.SizeMax = cmp.Or(o.SizeMax, binarySize)
	o.SizeMax = min(o.SizeMax, lines.SizeMax)
	t := &Text{}
	for _, half := range halves(c) {
		p := part{objects: objects, change: half}
		if err := p.compare(ctx, o); err != nil {
			return nil, fmt.Errorf("compare %q: %w", c.Path(), err)
		}
		for _, change := range p.changes {
			t.Deletions += change.OldCount
			t.Additions += change.NewCount
		}
		t.Binary = t.Binary || p.binary
		if half.New.Exists() || len(t.parts) == 0 {
			side := &p.new
			if !half.New.Exists() {
				side = &p.old
			}
			ends, err := side.endsInNewline(ctx)
			if err != nil {
				return nil, err
			}
			t.EndsInNewline = ends
		}
		t.parts = append(t.parts, p)
	}
	return t, nil
}

// halves returns a change as the diff shows it: a change of type is a deletion and a creation.
func halves(c *Change) []Change {
	if c.Status != TypeChanged {
		return []Change{*c}
	}
	return []Change{
		{Status: Deleted, Old: c.Old, New: Entry{Path: c.New.Path}},
		{Status: Added, Old: Entry{Path: c.Old.Path}, New: c.New},
	}
}

// compare reads the contents and finds the changed lines.
func (p *part) compare(ctx context.Context, o TextOptions) error {
	var err error
	if p.old, err = openContent(ctx, p.objects, &p.change.Old, o.SizeMax); err != nil {
		return err
	}
	if p.new, err = openContent(ctx, p.objects, &p.change.New, o.SizeMax); err != nil {
		return err
	}
	p.binary = p.old.binary || p.new.binary
	if p.binary {
		p.whole = o.Binary
		return nil
	}
	if p.isSame() {
		return nil
	}
	for _, side := range []*content{&p.old, &p.new} {
		if err := side.readWhole(ctx); err != nil {
			return err
		}
		side.text = lines.Split(side.data)
	}
	p.changes, err = lines.Diff(ctx, p.old.text, p.new.text, lines.Options{})
	return err
}

// isSame reports whether only names and modes differ.
func (p *part) isSame() bool { return p.change.Old.ID == p.change.New.ID }

// Lines returns the two texts and the changes between them, if the file is compared by lines.
func (t *Text) Lines() (before, after lines.Text, changes []lines.Change, ok bool) {
	if len(t.parts) != 1 || t.Binary {
		return before, after, nil, false
	}
	p := &t.parts[0]
	return p.old.text, p.new.text, p.changes, true
}

// Write writes the diff, the same bytes each time it is called. Large contents are written in
// pieces.
//
// Errors: those of objects, of ctx and of w.
func (t *Text) Write(ctx context.Context, w io.Writer) error {
	for i := range t.parts {
		if err := t.parts[i].write(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) write(ctx context.Context, w io.Writer) error {
	header := p.appendHeader(nil)
	switch {
	case p.isSame():
	case p.binary && !p.whole:
		header = p.appendBinaryNotice(header)
	case p.binary:
		return p.writeBinary(ctx, w, header)
	case len(p.changes) > 0:
		if _, err := w.Write(p.appendFileNames(header)); err != nil {
			return err
		}
		return lines.WriteHunks(ctx, w, p.old.text, p.new.text, p.changes, lines.ContextDefault)
	}
	_, err := w.Write(header)
	return err
}

// hasContent reports whether the object of an entry is stored here.
func (e *Entry) hasContent() bool { return e.Exists() && e.Mode != object.ModeGitlink }
