package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/merge"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
	"packhorse/refs"
)

// Writer makes random writes of every kind that the API has, many of which must be refused:
// disguised names, dangerous contents, persons and messages that would break a commit. A write is
// rehearsed first in some cases.
type Writer struct {
	tb     testing.TB
	host   *engine.Host
	source *rand.PCG
	random *rand.Rand
	actor  engine.Actor
	// Repos are the repositories: the first one, and some forks.
	Repos []*Written
}

// Written is a repository of a [Writer].
type Written struct {
	Name string
	Repo *engine.Repository
	// Commits are those of all accepted writes, whether a ref leads to them or not.
	Commits []object.ID

	files    []File // that commits were to write
	sequence uint64 // the highest that was seen
}

// forksMax bounds the repositories of a writer, each of which is cloned.
const forksMax = 4

// NewWriter returns a Writer whose first repository has one commit.
func NewWriter(tb testing.TB, host *engine.Host, seed uint64) *Writer {
	tb.Helper()
	source := rand.NewPCG(seed, 17)
	w := &Writer{tb: tb, host: host, source: source, random: rand.New(source), actor: engine.Actor{Org: Org, Subject: "t"}}
	to := &Written{Name: "r", Repo: Create(tb, host, "r")}
	w.Repos = append(w.Repos, to)
	first := &operation{Operation: &engine.CommitOperation{UploadRequest: engine.UploadRequest{
		Target:     engine.CommitTarget{Branch: "main"},
		Details:    engine.CommitDetails{Message: "m", Author: author},
		Operations: []engine.FileOperation{{Path: "seed", ContentID: "0"}},
	}}, contents: []string{"seed\n"}}
	made, err := w.alone(tb.Context(), to, first)
	if err != nil {
		tb.Fatal(err)
	}
	to.Commits = append(made, pushOdd(tb, to.Repo)...)
	to.sequence = w.sequence(tb.Context(), to)
	return w
}

// pushOdd pushes commits that the API does not make, and may have to repeat, take back or merge.
func pushOdd(tb testing.TB, repo *engine.Repository) (commits []object.ID) {
	tb.Helper()
	const content = "odd\n"
	tree := object.AppendTree(nil, []object.TreeEntry{{Mode: 0o100664, Name: "a", ID: BlobID(content)}})
	entries := []packtest.Entry{
		packtest.Whole(object.TypeBlob, []byte(content)), packtest.Whole(object.TypeTree, tree),
	}
	var commands []engine.Command
	for i, rest := range []string{
		"encoding ISO-8859-1\n\n\xe4\n", "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n\nsigned\n", "\n", "\nno line end",
		"\n\r\nx\r\n", "encoding \n\nm\n", "HG:extra x\n\n\xff\n", "\n# m\n\nThis reverts commit x.\n",
	} {
		data := fmt.Appendf(nil, "tree %s\nauthor  <> 1 +0000\ncommitter A \xff <a b> %d -1234\n%s",
			packtest.Hash(tb, object.TypeTree, tree), i, rest)
		entries = append(entries, packtest.Whole(object.TypeCommit, data))
		commits = append(commits, packtest.Hash(tb, object.TypeCommit, data))
		commands = append(commands, engine.Command{Name: fmt.Sprint("refs/odd/", i), New: commits[i]})
	}
	Push(tb, repo, packtest.Encode(entries...), commands...)
	return commits
}

// author is a person whom nothing is wrong with.
var author = commit.Person{Name: "A U Thor", Email: "thor@example.com"}

// operation is one operation with the contents that follow it, whose IDs are their indexes.
type operation struct {
	engine.Operation
	contents []string
	files    []File // that it writes under names of its own
}

func oneOf[T any](w *Writer, from []T) T { return from[w.random.IntN(len(from))] }

// once reports true in one of n cases.
func (w *Writer) once(n int) bool { return w.random.IntN(n) == 0 }

// Write makes one write, and returns the error of a refusal. What a rehearsal comes to must be what
// the write comes to, and it must not leave anything.
func (w *Writer) Write(ctx context.Context) error {
	w.actor.Subject = oneOf(w, []string{"tester", "", "<", "a@b", "\u00a0", "a\nb", "x\x00y", "\u2028"})
	to := w.Repos[0]
	if w.once(3) {
		to = oneOf(w, w.Repos)
	}
	if !w.once(8) {
		return w.write(ctx, to)
	}
	before := *w.source
	w.actor.DryRun = true
	rehearsed := w.write(ctx, to)
	w.actor.DryRun = false
	*w.source = before
	err := w.write(ctx, to)
	if (err == nil) != (rehearsed == nil) {
		w.tb.Errorf("rehearsed: %v; written: %v", rehearsed, err)
	}
	return err
}

// write makes one write to a repository.
func (w *Writer) write(ctx context.Context, to *Written) error {
	touched := []*Written{to}
	var made [][]object.ID
	var files []File
	var fork *Written
	var err error
	one := func(ids []object.ID, failed error) { made, err = [][]object.ID{ids}, failed }
	switch kind := w.random.IntN(24); {
	case kind == 0:
		err = w.undo(ctx, to)
	case kind == 1:
		one(w.land(ctx, to))
	case kind == 2 && w.once(4):
		fork, err = w.fork(ctx, to)
	case kind < 6:
		if other := oneOf(w, w.Repos); other != to {
			touched = append(touched, other)
		}
		made, err = w.transact(ctx, touched)
	default:
		op := w.operation(to)
		files = op.files
		one(w.alone(ctx, to, op))
	}
	for i, repo := range touched {
		var ids []object.ID
		if i < len(made) {
			ids = made[i]
		}
		if w.actor.DryRun || err != nil {
			w.isAbsent(ctx, repo, ids)
			continue
		}
		repo.sequence = w.sequence(ctx, repo)
		repo.Commits = append(repo.Commits, ids...)
	}
	if w.actor.DryRun || err != nil {
		return err
	}
	to.files = append(to.files, files...)
	if fork != nil {
		w.Repos = append(w.Repos, fork)
	}
	return nil
}

// sequence returns where the journal of a repository is.
func (w *Writer) sequence(ctx context.Context, of *Written) uint64 {
	w.tb.Helper()
	sequence, err := of.Repo.Sequence(ctx)
	if err != nil {
		w.tb.Fatal(err)
	}
	return sequence
}

// isAbsent checks that a rehearsal or a refused write has left neither a transaction nor the
// commits that it was to make.
func (w *Writer) isAbsent(ctx context.Context, from *Written, commits []object.ID) {
	w.tb.Helper()
	if now := w.sequence(ctx, from); now != from.sequence {
		w.tb.Errorf("a write that was refused, or rehearsed, has moved %s from %d to %d", from.Name, from.sequence, now)
		from.sequence = now
	}
	if len(commits) == 0 {
		return
	}
	view, err := from.Repo.Objects(ctx)
	if err != nil {
		w.tb.Fatal(err)
	}
	defer view.Close()
	for _, id := range commits {
		if slices.Contains(from.Commits, id) {
			continue // a write has made the same commit in the same second
		}
		if _, err := view.Stat(ctx, id); !errors.Is(err, odb.ErrNotFound) {
			w.tb.Errorf("a rehearsal has left the commit %s in %s: %v", id, from.Name, err)
		}
	}
}

// fork makes a repository of another one, or of one of its trees.
func (w *Writer) fork(ctx context.Context, from *Written) (*Written, error) {
	if len(w.Repos) == forksMax {
		return nil, engine.ErrQuota
	}
	name := fmt.Sprint("fork", len(w.Repos))
	base := &engine.Base{Name: from.Name}
	if w.once(2) {
		base.Commit = oneOf(w, from.Commits).String()
	}
	if w.once(3) {
		details := w.details()
		base.Snapshot = &details
	}
	_, err := w.host.CreateRepository(ctx, w.actor, engine.CreateRequest{Name: name, Base: base})
	if err != nil || w.actor.DryRun {
		return nil, err
	}
	repo, err := w.host.Repository(ctx, Org, name)
	if err != nil {
		w.tb.Fatal(err)
	}
	main, err := repo.Branch(ctx, refs.Main, "main")
	if err != nil {
		w.tb.Fatal(err)
	}
	made := &Written{Name: name, Repo: repo, Commits: []object.ID{main.Tip}}
	made.sequence = w.sequence(ctx, made)
	return made, nil
}

func (w *Writer) undo(ctx context.Context, to *Written) error {
	request := engine.UndoRequest{Force: w.once(2)}
	at := max(1, to.sequence-min(to.sequence, w.random.Uint64N(6)))
	if w.once(2) {
		request.Sequence = at
	} else {
		request.To = engine.Moment{BySequence: true, Sequence: at}
	}
	_, err := to.Repo.Undo(ctx, w.actor, request)
	return err
}

func (w *Writer) land(ctx context.Context, to *Written) ([]object.ID, error) {
	request := engine.LandRequest{Target: w.mergeTarget(), Author: w.person(), StopOnConflict: w.once(2)}
	if w.once(4) {
		request.Committer = w.person()
	}
	for range 1 + w.random.IntN(4) {
		source := engine.LandSource{Source: w.commit(to), Squash: w.once(3)}
		if w.once(2) {
			source.Message = w.details().Message
		}
		request.Sources = append(request.Sources, source)
	}
	outcome, err := to.Repo.Land(ctx, w.actor, request)
	var made []object.ID
	for i := range outcome.Sources {
		if id := outcome.Sources[i].Commit; err == nil && !id.IsZero() {
			made = append(made, id)
		}
	}
	return made, err
}

func (w *Writer) transact(ctx context.Context, to []*Written) ([][]object.ID, error) {
	var parts []engine.Part
	for _, each := range to {
		parts = append(parts, engine.Part{Repo: each.Repo, Actor: w.actor})
	}
	var steps []engine.Step
	contents := make(map[string]string)
	for i := range 1 + w.random.IntN(3) {
		part := w.random.IntN(len(to))
		op := w.operation(to[part])
		op.rename(fmt.Sprintf("%d-", i), contents)
		steps = append(steps, engine.Step{Part: part, Operation: op.Operation})
	}
	t, err := w.host.NewTransaction(ctx, parts, steps)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	for id, content := range contents {
		if err := t.Chunk(ctx, id, []byte(content), true); err != nil {
			return nil, err
		}
	}
	result, err := t.Finish(ctx)
	if err != nil {
		return nil, err
	}
	made := make([][]object.ID, len(to))
	for i := range result.Outcomes {
		o, part := &result.Outcomes[i], steps[i].Part
		switch {
		case o.Commit != nil && !o.Commit.Unchanged:
			made[part] = append(made[part], o.Commit.New)
		case o.Merge != nil && o.Merge.Kind != engine.MergeNothing && o.Merge.Kind != engine.MergeForwarded:
			made[part] = append(made[part], o.Merge.Commit)
		case o.Pick != nil:
			made[part] = append(made[part], picked(o.Pick)...)
		case o.Note != nil && o.Note.New != o.Note.Old:
			made[part] = append(made[part], o.Note.New)
		}
	}
	return made, nil
}

func picked(outcome *engine.PickOutcome) (made []object.ID) {
	if outcome.Kind != engine.PickCommitted {
		return nil
	}
	for _, done := range outcome.Done {
		if !done.Commit.IsZero() {
			made = append(made, done.Commit)
		}
	}
	return made
}

// rename gives the contents IDs of their own in a transaction.
func (o *operation) rename(prefix string, all map[string]string) {
	for i, content := range o.contents {
		all[prefix+fmt.Sprint(i)] = content
	}
	switch op := o.Operation.(type) {
	case *engine.CommitOperation:
		for i := range op.Operations {
			if file := &op.Operations[i]; file.ContentID != "" {
				file.ContentID = prefix + file.ContentID
			}
		}
	case *engine.PatchOperation:
		op.ContentID = prefix + op.ContentID
	}
}

// operation makes an operation on a repository.
func (w *Writer) operation(to *Written) *operation {
	switch w.random.IntN(20) {
	case 0, 1:
		return &operation{Operation: &engine.NoteOperation{
			Target: engine.NoteTarget{
				Ref:    oneOf(w, []string{engine.DefaultNotesRef, "refs/notes/x/y"}),
				Object: engine.CommitName{Text: oneOf(w, to.Commits).String(), Kind: engine.FullID},
				Author: oneOf(w, []commit.Person{{}, w.person()}),
			},
			Text:   oneOf(w, []string{"note", "a\x00b", "\xff", "\n\n", " x \n\n\ny"}),
			Append: w.once(2), Delete: w.once(4),
		}}
	case 2, 3:
		return &operation{Operation: &engine.MergeOperation{MergeRequest: engine.MergeRequest{
			Source: w.commit(to), Target: w.mergeTarget(),
			Strategy: oneOf(w, []engine.MergeStrategy{engine.AlwaysMerge, engine.PreferForward}),
			Squash:   w.once(3), Details: w.details(), Unrelated: w.once(2),
		}}}
	case 4, 5, 6:
		return &operation{Operation: w.pick(to)}
	case 7:
		return &operation{Operation: w.ref(to)}
	case 8:
		return &operation{Operation: &engine.RestoreOperation{RestoreRequest: engine.RestoreRequest{
			Target: w.target(), Details: w.details(), Commit: w.commit(to),
		}}}
	case 9, 10, 11, 12:
		return w.patch(to)
	default:
		return w.upload(to)
	}
}

func (w *Writer) pick(to *Written) *engine.PickOperation {
	request := engine.PickRequest{
		Revert: w.once(2), Target: w.mergeTarget(), Mainline: w.random.IntN(2), Origin: w.once(2),
		Empty: oneOf(w, []engine.EmptyPick{engine.EmptyStops, engine.EmptyDrops, engine.EmptyKeeps}), Author: w.person(),
	}
	if w.once(4) {
		request.Committer = w.person()
	}
	for range 1 + w.random.IntN(2) {
		request.Commits = append(request.Commits, w.commit(to))
	}
	return &engine.PickOperation{PickRequest: request}
}

// ref makes an operation on a branch or a tag, some of whose names must be refused.
func (w *Writer) ref(to *Written) engine.Operation {
	name := oneOf(w, []string{
		"one", "two", "x/y", "x/y/z", "HEAD", "main", "refs/heads/main", "-x", "\u00e4", "a..b", ".git", "x/.y", "a.lock", "@",
		"@{0}", "a b", "a\x00", "\xff", "x/", "a\\b", "v1", "FETCH_HEAD",
	})
	switch w.random.IntN(4) {
	case 0:
		return &engine.CreateTagOperation{Name: name, Target: w.commit(to)}
	case 1:
		return &engine.RenameBranchOperation{From: oneOf(w, []string{"one", "two", "x/y"}), To: name}
	case 2:
		return &engine.DeleteRefOperation{Name: name, Tag: w.once(2)}
	default:
		return &engine.CreateBranchOperation{
			CreateBranchRequest: engine.CreateBranchRequest{Branch: name, Base: w.commit(to), Force: w.once(2)},
		}
	}
}

// patch makes a patch that adds files, moves, copies and changes them.
func (w *Writer) patch(to *Written) *operation {
	op := &operation{}
	var text strings.Builder
	for range 1 + w.random.IntN(2) {
		f := w.file()
		if len(to.files) > 0 && w.once(2) {
			from := oneOf(w, to.files)
			if w.once(2) {
				text.WriteString(from.PatchMoved(f.Path, w.once(2)))
			} else {
				text.WriteString(from.PatchTo(w.content()))
			}
			continue
		}
		op.files = append(op.files, f)
		text.WriteString(f.Patch())
	}
	op.contents = []string{text.String()}
	op.Operation = &engine.PatchOperation{
		PatchRequest: engine.PatchRequest{Target: w.target(), Details: w.details()}, ContentID: "0",
	}
	return op
}

func (w *Writer) upload(to *Written) *operation {
	op := &operation{}
	request := engine.UploadRequest{Target: w.target(), Details: w.details()}
	for range 1 + w.random.IntN(3) {
		f := w.file()
		if taken, ok := w.taken(to, &f); ok {
			request.Operations = append(request.Operations, taken)
			continue
		}
		request.Operations = append(request.Operations,
			engine.FileOperation{Path: f.Path, Mode: f.Mode, ContentID: fmt.Sprint(len(op.contents))})
		op.contents, op.files = append(op.contents, f.Content), append(op.files, f)
	}
	op.Operation = &engine.CommitOperation{UploadRequest: request}
	return op
}

// taken makes, in half of the cases, an operation on f of what may be in the repository.
func (w *Writer) taken(to *Written, f *File) (op engine.FileOperation, ok bool) {
	if len(to.files) == 0 || w.once(2) {
		return op, false
	}
	from := oneOf(w, to.files)
	edits := []commit.Edit{oneOf(w, []commit.Edit{
		{Old: "# ", New: oneOf(w, DisguisedContents) + "# "},
		{Old: "[other ", New: "[submodule "},
		{Old: "url = https://example.com/", New: "url = -"},
	})}
	op.Path = f.Path
	switch w.random.IntN(6) {
	case 0:
		op.Source = &commit.Source{From: from.Path, Move: true}
	case 1:
		op.Source = &commit.Source{From: from.Path}
	case 2:
		op.Source = &commit.Source{From: from.Path, Edits: edits}
	case 3:
		op.Path, op.Source = from.Path, &commit.Source{Edits: edits}
	case 4:
		op.Path, op.Delete = from.Path, true
	default:
		op.Mode, op.Blob = f.Mode, BlobID(from.Content)
	}
	return op, true
}

// BlobID returns the ID of a blob.
func BlobID(content string) object.ID {
	id, err := object.Hash(object.TypeBlob, []byte(content))
	if err != nil {
		panic(err) // it is not too large
	}
	return id
}

func (w *Writer) person() commit.Person {
	names := []string{
		"A", "A U Thor", "", " ", "<", "A <a>", "a\nb", "a\rb", "a\x00b", "\u00e4", "\xff", ".", ",;", "\u00a0",
		"\u2028", "a\tb", "\x01", "1 +0000",
	}
	mails := []string{"a@b", "", " ", "a", "<a@b>", "a b", "a>", "\n", "a@b\x00", "\u00e4@b", "> 1 +0000", "."}
	if !w.once(8) {
		return author
	}
	return commit.Person{Name: oneOf(w, names), Email: oneOf(w, mails)}
}

func (w *Writer) details() engine.CommitDetails {
	d := engine.CommitDetails{Message: "m", Author: w.person(), SkipEmpty: w.once(8)}
	if w.once(6) {
		d.Message = oneOf(w, []string{
			"", " ", "\n\nm", "m\x00", "m\n\n\n", "gpgsig x\n y\n\nm", "\xff\xfe",
			"tree " + object.EmptyTreeID.String() + "\n", "\r\n",
		})
	}
	if w.once(4) {
		d.Committer = w.person()
	}
	return d
}

var branches = []string{"main", "one", "two"}

func (w *Writer) target() engine.CommitTarget {
	return engine.CommitTarget{Branch: oneOf(w, branches), Base: "main"}
}

func (w *Writer) mergeTarget() engine.MergeBranch {
	return engine.MergeBranch{Name: oneOf(w, branches)}
}

// commit names a branch or a commit.
func (w *Writer) commit(to *Written) engine.CommitName {
	if w.once(2) {
		return engine.CommitName{Text: oneOf(w, branches), Kind: engine.BranchName}
	}
	return engine.CommitName{Text: oneOf(w, to.Commits).String(), Kind: engine.FullID}
}

// file is a file under a disguised name, or a plain one.
func (w *Writer) file() File {
	f := File{Path: oneOf(w, []string{"a", "b", "c"})}
	if w.once(3) {
		f.Path = oneOf(w, Disguises)
	}
	for range w.random.IntN(3) {
		f.Path = oneOf(w, append([]string{oneOf(w, Disguises)}, "d", "e", "d", "e", "f")) + "/" + f.Path
	}
	f.Mode = oneOf(w, []object.Mode{
		object.ModeBlob, object.ModeBlob, object.ModeBlob, object.ModeExec, object.ModeSymlink, object.ModeGitlink,
	})
	switch {
	case w.once(8): // where contents count
		f.Path, f.Mode, f.Content = ".gitmodules", object.ModeBlob, w.content()
	case f.Mode.IsGitlink():
		f.Content = fmt.Sprintf("%040x", 1+w.random.IntN(5))
	case !w.once(8):
		f.Content = w.content()
	}
	return f
}

// content is a dangerous content, or one whose parts are harmless, and dangerous together: a merge
// of two of these may be what neither is.
func (w *Writer) content() string {
	if w.once(2) {
		return oneOf(w, DisguisedContents) + fmt.Sprintf("# %d\n", w.random.IntN(50))
	}
	return fmt.Sprintf("[%s \"a\"]\n\tpath = a\n# 1\n# 2\n# 3\n# 4\n\turl = %s\n# %d\n# 6\n# 7\n# 8\n# 9\n",
		oneOf(w, []string{"submodule", "other"}), oneOf(w, []string{"https://example.com/", "-u./payload"}),
		w.random.IntN(3))
}

// resolutions resolve conflicts.
func (w *Writer) resolutions(to *Written, conflicts []merge.Conflict, at int) (all []engine.Resolution) {
	for _, path := range engine.ConflictPaths(conflicts) {
		if !slices.ContainsFunc(conflicts, func(c merge.Conflict) bool { return c.Path == path && c.Staged() }) {
			continue
		}
		r := engine.Resolution{Path: path, Pick: at}
		switch w.random.IntN(5) {
		case 0:
			r.Delete = true
		case 1:
			content := w.content()
			r.Content, r.Mode = &content, oneOf(w, []object.Mode{0, object.ModeBlob, object.ModeSymlink})
		case 2:
			if r.Side = engine.OursSide; len(to.files) > 0 {
				r.Side, r.Blob = "", BlobID(oneOf(w, to.files).Content)
			}
		default:
			r.Side = oneOf(w, []engine.ResolutionSide{engine.BaseSide, engine.OursSide, engine.TheirsSide})
		}
		all = append(all, r)
	}
	return all
}
