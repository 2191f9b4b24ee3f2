package diff

import (
	"context"
	"fmt"
	"io"

	"packhorse/engine/diff/lines"
	"packhorse/pack/object"
)

// TextOptions say how the diff of a file is made.
type TextOptions struct {
	// Binary tells binary contents whole, as a GIT binary patch, which git apply takes; otherwise they
	// are only said to differ.
	Binary bool
	// SizeMax is the size in bytes above which a file is taken for a binary one; 0 means 512 MiB.
	SizeMax int64
}

// Text is the diff of one file: what git diff prints for it.
type Text struct {
	// Additions and Deletions count lines; they are 0 for a binary file.
	Additions, Deletions int
	// Binary says that one of the contents is binary.
	Binary bool
	// EndsInNewline tells of the new content, or of the old one where the file is deleted.
	EndsInNewline bool

	parts []part
}

// part is a header and what follows it. There is one, and two where a file changed its type: the
// deletion and the creation.
type part struct {
	objects  Objects
	change   Change
	old, new content
	changes  []lines.Change
	binary   bool // the contents are not told by lines
	whole    bool // they are told as a binary patch
}

// NewText compares the contents of one changed file.
//
// Both are held in memory, with about 50 bytes a line while they are compared, and as long as the
// text is used; above 32 MiB they are copies of what is stored. Of binary files above 8 MiB only
// the beginning is read. Errors: those of objects and of ctx.
func NewText(ctx context.Context, objects Objects, c *Change, o TextOptions) (*Text, error) {
	if o.SizeMax == 0 {
		o.SizeMax = binarySize
	}
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

// halves returns a change as what is told of it: one that changes the type is a deletion and a
// creation.
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

// isSame tells that nothing but names and modes differs.
func (p *part) isSame() bool { return p.change.Old.ID == p.change.New.ID }

// Lines returns the two texts and what changed between them, if the file is one that is told by
// lines.
func (t *Text) Lines() (before, after lines.Text, changes []lines.Change, ok bool) {
	if len(t.parts) != 1 || t.Binary {
		return before, after, nil, false
	}
	p := &t.parts[0]
	return p.old.text, p.new.text, p.changes, true
}

// Write writes the diff, the same bytes each time it is called. What is large goes out in pieces.
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

// hasContent tells whether an entry names something that is stored here.
func (e *Entry) hasContent() bool { return e.Exists() && e.Mode != object.ModeGitlink }
