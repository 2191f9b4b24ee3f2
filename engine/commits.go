package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/lru"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// Commit is a commit as answers show it.
type Commit struct {
	ID        object.ID
	Parents   []object.ID
	Message   string // without trailing line ends
	Author    object.Signature
	Committer object.Signature
}

// CommitsRequest selects a page of a history.
type CommitsRequest struct {
	// From is where the history begins; without a text it is the default branch.
	From CommitName
	// Path, if not empty, leaves only commits that changed the file or folder there.
	Path   string
	Cursor string
	Limit  int
	// Slot is waited for when the page may lie far from the tip.
	Slot Slot

	cursors cursors
}

const cursorCommits = 'c'

// CommitPage is a page of a history. The caller closes it.
type CommitPage struct {
	// Page holds the commits up to the first that would make them larger than a page in memory may be;
	// most pages are whole.
	Page[Commit]

	view *odb.View
	rest []object.ID // of the commits behind Items
}

// pageBytesMax bounds the commits of a page that are read before the page is sent, in bytes.
const pageBytesMax = 512 << 10

// IsWhole reports whether Items holds the whole page.
func (p *CommitPage) IsWhole() bool { return len(p.rest) == 0 }

// All walks the page. The commits that Items does not hold are read one at a time.
func (p *CommitPage) All(ctx context.Context) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		for _, c := range p.Items {
			if !yield(c, nil) {
				return
			}
		}
		for _, id := range p.rest {
			c, err := readCommit(ctx, p.view.Linked(), id)
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// Close releases the resources of the page. A complete page holds none and need not be closed.
func (p *CommitPage) Close() error {
	if p.view == nil {
		return nil
	}
	return p.view.Close()
}

// Commits lists the history of a commit by commit date, newest first, as git log does. A cursor
// keeps the tip that its first page began with, so that pages stay consistent despite pushes. With
// a path, history is simplified as git log does by default.
//
// Errors: [ErrNotFound]; [ErrInvalid] for a name that is not of its kind, and for a cursor of
// another listing.
func (r *Repository) Commits(ctx context.Context, request CommitsRequest) (*CommitPage, error) {
	names, view, err := r.open(ctx, r.likely(request.From)...)
	if err != nil {
		return nil, err
	}
	defer names.Close()
	page, err := r.commits(ctx, names, view, request)
	if err != nil {
		return nil, errors.Join(err, view.Close())
	}
	if page.IsWhole() {
		return page, view.Close()
	}
	page.view = view
	return page, nil
}

func (r *Repository) commits(
	ctx context.Context, names lookuper, view *odb.View, request CommitsRequest,
) (*CommitPage, error) {
	from, err := r.resolve(ctx, names, view, request.From)
	if err != nil {
		return nil, err
	}
	request.Path, request.cursors = strings.Trim(request.Path, "/"), r.cursors()
	tip, skip, err := commitsPosition(&request, from.Commit)
	if err != nil {
		return nil, err
	}
	if tip != from.Commit {
		if known, err := view.Has(ctx, tip); err != nil || !known {
			return nil, errors.Join(err, fail(ErrInvalidCursor, "invalid cursor %.100q", request.Cursor))
		}
	}
	return r.host.page(ctx, view.Linked(), tip, skip, &request)
}

// commitsPosition is the position of a page: the number of commits to skip, and the tip to count
// from.
func commitsPosition(request *CommitsRequest, tip object.ID) (object.ID, uint64, error) {
	if request.Cursor == "" {
		return tip, 0, nil
	}
	const size = object.IDSize + 8 // then the path
	position, err := request.cursors.decode(cursorCommits, request.Cursor, size+len(request.Path))
	if err == nil && string(position[size:]) != request.Path {
		err = fail(ErrInvalidCursor, "cursor %.100q belongs to another path", request.Cursor)
	}
	if err != nil {
		return tip, 0, err
	}
	return object.ID(position[:object.IDSize]), binary.BigEndian.Uint64(position[object.IDSize:]), nil
}

// listings keeps listings that have given some pages and rest, by the cursor of the next one, so
// that a page costs the same wherever it is. A cursor that comes again, or after its listing has
// gone, is answered by a walk from the tip.
type listings = lru.Cache[listingKey, *commitListing]

type listingKey struct {
	pool   odb.PoolID
	cursor string
}

// commitListing is a listing and the first commit of the next page, which was read to learn whether
// there is one.
type commitListing struct {
	*revwalk.Listing
	ahead revwalk.Commit
}

// listing returns the listing that continues at the cursor of a request, either a cached one or a
// new one that skips the commits already sent, and whether another commit follows.
func (h *Host) listing(
	ctx context.Context, view *odb.View, tip object.ID, skip uint64, request *CommitsRequest,
) (*commitListing, bool, error) {
	if request.Cursor != "" {
		if l, ok := h.listings.Take(listingKey{view.Pool(), request.Cursor}); ok {
			return l, true, l.Resume(ctx, view)
		}
	}
	walk, err := revwalk.List(ctx, view, tip, request.Path)
	if err != nil {
		return nil, false, err
	}
	l := &commitListing{Listing: walk}
	for {
		var more bool
		if l.ahead, more, err = l.Next(ctx); err != nil {
			l.Rest()
			return nil, false, err
		}
		if !more || skip == 0 {
			return l, more, nil
		}
		skip--
	}
}

// page reads a page of commits. A listing that may walk far takes a slot, and turns at the
// processors.
func (h *Host) page(
	ctx context.Context, view *odb.View, tip object.ID, skip uint64, request *CommitsRequest,
) (page *CommitPage, err error) {
	if request.Cursor == "" && request.Path == "" {
		return h.readPage(ctx, view, tip, skip, request)
	}
	release, err := request.Slot.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	err = fair.Do(ctx, func(ctx context.Context) error {
		page, err = h.readPage(ctx, view, tip, skip, request)
		return err
	})
	return page, err
}

func (h *Host) readPage(
	ctx context.Context, view *odb.View, tip object.ID, skip uint64, request *CommitsRequest,
) (*CommitPage, error) {
	l, more, err := h.listing(ctx, view, tip, skip, request)
	if err != nil {
		return nil, fmt.Errorf("walk history of %s: %w", tip, err)
	}
	page, err := l.read(ctx, view, request.Limit, more)
	l.Rest()
	if err != nil {
		return nil, fmt.Errorf("walk history of %s: %w", tip, err)
	}
	if !l.ahead.ID.IsZero() {
		position := binary.BigEndian.AppendUint64(tip[:], skip+uint64(request.Limit))
		page.Next = request.cursors.encode(cursorCommits, append(position, request.Path...))
		h.listings.Put(listingKey{view.Pool(), page.Next}, l, l.Bytes())
	}
	return page, nil
}

// pageCommits is the number of commits for which a page has room from the start.
const pageCommits = 32

// read takes up to limit commits from a listing and stores the next one in ahead, zero for none.
func (l *commitListing) read(ctx context.Context, view *odb.View, limit int, more bool) (*CommitPage, error) {
	page := &CommitPage{}
	page.Items = make([]Commit, 0, min(limit, pageCommits))
	left := int64(pageBytesMax)
	for more && len(page.Items)+len(page.rest) < limit {
		if err := page.take(ctx, view, l.ahead.ID, &left); err != nil {
			return nil, err
		}
		var err error
		if l.ahead, more, err = l.Next(ctx); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// take adds a commit to the page: as answers show it, while all of them fit the remaining bytes, or
// else by its ID. The first that does not fit is read twice.
func (p *CommitPage) take(ctx context.Context, view *odb.View, id object.ID, left *int64) error {
	if *left >= 0 {
		commit, err := readCommit(ctx, view, id)
		if err != nil {
			return err
		}
		if *left -= commit.size(); *left >= 0 {
			p.Items = append(p.Items, commit)
			return nil
		}
	}
	p.rest = append(p.rest, id)
	return nil
}

// size is the approximate size of the commit in an answer, in bytes.
func (c *Commit) size() int64 {
	size := len(c.Message) + len(c.Parents)*object.HexSize
	for _, person := range []*object.Signature{&c.Author, &c.Committer} {
		size += len(person.Name) + len(person.Email)
	}
	return int64(size)
}

// readCommit reads a commit as answers show it.
func readCommit(ctx context.Context, view *odb.View, id object.ID) (Commit, error) {
	t, data, err := view.Read(ctx, id)
	if err != nil {
		return Commit{}, fmt.Errorf("read commit %s: %w", id, err)
	}
	if t != object.TypeCommit {
		return Commit{}, fmt.Errorf("read commit %s: %w: it is a %s", id, revwalk.ErrNotCommit, t)
	}
	return parseCommit(id, data)
}

func parseCommit(id object.ID, data []byte) (Commit, error) {
	c, err := object.ParseCommit(data)
	if err != nil {
		return Commit{}, fmt.Errorf("read commit %s: %w", id, err)
	}
	if isLatin1(c.Encoding) {
		for _, text := range []*string{&c.Message, &c.Author.Name, &c.Author.Email, &c.Committer.Name, &c.Committer.Email} {
			*text = decodeLatin1(*text)
		}
	}
	return Commit{
		ID:        id,
		Parents:   c.Parents,
		Message:   strings.TrimRight(c.Message, "\n"),
		Author:    c.Author,
		Committer: c.Committer,
	}, nil
}

// isLatin1 reports whether a commit declares the encoding ISO 8859-1, the one encoding but UTF-8
// that histories hold in any number.
func isLatin1(encoding string) bool {
	switch strings.ToLower(encoding) {
	case "iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "latin-1":
		return true
	}
	return false
}

// decodeLatin1 turns ISO 8859-1, whose bytes are the first code points of Unicode, into UTF-8.
func decodeLatin1(text string) string {
	decoded := make([]rune, len(text))
	for i := range len(text) {
		decoded[i] = rune(text[i])
	}
	return string(decoded)
}
