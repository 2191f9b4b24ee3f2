package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// pushAll pushes everything below refs/ of git to an empty repository.
func pushAll(t *testing.T, repo *engine.Repository, git *oracle.Repository) {
	t.Helper()
	ctx := context.Background()
	var request engine.PushRequest
	for line := range strings.Lines(git.Git("for-each-ref", "--format=%(objectname) %(refname)")) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		request.Commands = append(request.Commands, engine.Command{Name: name, New: parseID(t, id)})
	}
	request.Pack = bytes.NewReader(git.Input(nil, "pack-objects", "--all", "--stdout", "-q"))
	p, err := repo.Receive(ctx, acme, request)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	result, err := p.Finish(ctx, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range result.Commands {
		if err := errors.Join(result.Unpack, command.Err); err != nil {
			t.Fatalf("push of %s: %v", command.Name, err)
		}
	}
}

func parseID(t *testing.T, text string) object.ID {
	t.Helper()
	id, err := object.ParseID(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// rootOf returns the tree of a commit.
func rootOf(t *testing.T, repo *engine.Repository, id object.ID) object.ID {
	t.Helper()
	view, err := repo.Objects(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	row, err := view.Graph(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return row.Tree
}

// noted makes a repository of git's with count commits, and returns their ids.
func noted(t *testing.T, count int) (*oracle.Repository, []string) {
	t.Helper()
	git := oracle.New(t)
	var stream strings.Builder
	for i := range count {
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter C <c@example.com> %d +0000\ndata 1\nm\n", 1_600_000_000+i)
	}
	stream.WriteString("done\n")
	git.Input([]byte(stream.String()), "fast-import", "--quiet", "--done")
	return git, strings.Fields(git.Git("rev-list", "refs/heads/main"))
}

// seedNotes gives commits notes as fast-import does, whose fanout is not always that of git notes.
// extra are lines of its stream.
func seedNotes(git *oracle.Repository, ids []string, extra string) {
	var stream strings.Builder
	stream.WriteString("commit refs/notes/commits\ncommitter C <c@example.com> 1600000000 +0000\ndata 1\nm\n" + extra)
	for i, id := range ids {
		text := fmt.Sprintf("seed %d\n", i%7)
		fmt.Fprintf(&stream, "N inline %s\ndata %d\n%s", id, len(text), text)
	}
	stream.WriteString("done\n")
	git.Input([]byte(stream.String()), "fast-import", "--quiet", "--done")
}

// TestNotesTreesAreGits changes notes here and with git, from the same start, and holds every tree
// against git's.
func TestNotesTreesAreGits(t *testing.T) {
	t.Parallel()
	const others = "M 644 inline README\ndata 1\nx\nM 644 inline ab/other\ndata 1\ny\nM 755 inline cd\ndata 1\nz\nM 644 inline zz/deep/er\ndata 1\nw\n"
	tests := map[string]struct {
		commits, noted int    // how many there are, and how many of them have a note at the start
		extra          string // of seedNotes
		steps          int
	}{
		"from nothing":        {commits: 40, steps: 90},
		"around two folders":  {commits: 90, noted: 60, steps: 60},
		"one level":           {commits: 400, noted: 300, steps: 60},
		"two levels":          {commits: 5000, noted: 4000, steps: 60},
		"beside other things": {commits: 90, noted: 60, steps: 60, extra: others},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			rng := rand.New(rand.NewPCG(uint64(test.commits), uint64(test.noted)))
			git, ids := noted(t, test.commits)
			if test.noted > 0 {
				seedNotes(git, ids[:test.noted], test.extra)
			}
			repo := enginetest.Create(t, enginetest.Open(t), "r")
			pushAll(t, repo, git)
			for step := range test.steps {
				id := ids[rng.IntN(len(ids))]
				target := engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(parseID(t, id))}
				text := fmt.Sprintf("note %d", rng.IntN(5))
				_, listErr := git.Try(nil, "notes", "list", id)
				var done engine.NoteResult
				var err error
				switch {
				case listErr == nil && rng.IntN(3) > 0:
					git.Git("notes", "remove", id)
					done, err = repo.DeleteNote(ctx, acme, target)
				case listErr == nil || rng.IntN(4) == 0:
					git.Git("notes", "append", "-m", text, id)
					done, err = repo.AddNote(ctx, acme, target, text, true)
				default:
					git.Git("notes", "add", "-m", text, id)
					done, err = repo.AddNote(ctx, acme, target, text, false)
				}
				if err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				want := strings.TrimSpace(git.Git("rev-parse", "refs/notes/commits^{tree}"))
				if got := rootOf(t, repo, done.New).String(); got != want {
					t.Fatalf("step %d on %s: the tree is %s, git's is %s", step, id, got, want)
				}
			}
			for _, id := range ids[:min(len(ids), 50)] {
				text, err := git.Try(nil, "notes", "show", id)
				note, noteErr := repo.Note(ctx, engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(parseID(t, id))})
				if (err == nil) != (noteErr == nil) || err == nil && note.Text != strings.TrimRight(string(text), "\n") {
					t.Errorf("note of %s is %q, %v; git has %q, %v", id, note.Text, noteErr, text, err)
				}
			}
		})
	}
}

// TestNotesTextsAreGits compares the stored notes with git's for the same text.
func TestNotesTextsAreGits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	git, ids := noted(t, 12)
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	texts := []string{"plain", "line\n", "\n\n lead\t \n\n\n\nrest \r\n", "# no comment", "\tkept\n\n", "ünïcode\n\v\f\n"}
	for i, text := range texts {
		other := texts[len(texts)-1-i]
		for _, id := range []string{ids[i], ids[i+6]} {
			target := engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(parseID(t, id))}
			git.Git("notes", "add", "-m", text, id)
			if _, err := repo.AddNote(ctx, acme, target, text, false); err != nil {
				t.Fatal(err)
			}
			git.Git("notes", "append", "-m", other, id)
			done, err := repo.AddNote(ctx, acme, target, other, true)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.TrimSpace(git.Git("rev-parse", "refs/notes/commits^{tree}"))
			if got := rootOf(t, repo, done.New).String(); got != want {
				t.Errorf("%q and %q: the tree is %s, git's is %s", text, other, got, want)
			}
		}
	}
}

// TestNotesCommits checks messages, parents and persons of the written commits.
func TestNotesCommits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	made, err := upload(repo, acme, main, change{path: "a", content: "1"})
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		subject, note string // a deletion without a note
		author        commit.Person
		append        bool
		name, email   string
		message, root string
	}{
		{subject: "tester", note: "one", name: "tester", message: "Notes added by 'git notes add'\n"},
		{
			subject: "tester", note: "two", author: thor, append: true, name: thor.Name, email: thor.Email,
			message: "Notes added by 'git notes append'\n",
		},
		{
			subject: "<ci>\n<x>",
			name:    "cix",
			message: "Notes removed by 'git notes remove'\n",
			root:    object.EmptyTreeID.String(),
		},
		{
			subject: "ci@example.com", note: "three", name: "ci@example.com", email: "ci@example.com",
			message: "Notes added by 'git notes add'\n",
		},
		{subject: " ", note: "four", append: true, name: enginetest.Org, message: "Notes added by 'git notes append'\n"},
	}
	var tip object.ID
	for i, step := range steps {
		actor := engine.Actor{Org: enginetest.Org, Subject: step.subject}
		target := engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(made.New), Author: step.author, Expected: &tip}
		var done engine.NoteResult
		if step.note == "" {
			done, err = repo.DeleteNote(ctx, actor, target)
		} else {
			done, err = repo.AddNote(ctx, actor, target, step.note, step.append)
		}
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		var parents []object.ID
		if !tip.IsZero() {
			parents = []object.ID{tip}
		}
		c := commitOf(t, repo, done.New)
		if !slices.Equal(c.Parents, parents) || done.Old != tip || c.Message != step.message ||
			c.Author.Name != step.name || c.Author.Email != step.email || c.Author != c.Committer {
			t.Errorf("step %d: %+v, a commit %q by %q <%s> on %v", i, done, c.Message, c.Author.Name, c.Author.Email, c.Parents)
		}
		if step.root != "" && c.Tree.String() != step.root {
			t.Errorf("step %d: the tree is %s", i, c.Tree)
		}
		tip = done.New
	}
}

func commitOf(t *testing.T, repo *engine.Repository, id object.ID) *object.Commit {
	t.Helper()
	view, err := repo.Objects(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	_, data, err := view.Read(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNotesRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	made, err := upload(repo, acme, main, change{path: "a", content: "1"})
	if err != nil {
		t.Fatal(err)
	}
	plain := engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(made.New)}
	if _, err := repo.AddNote(ctx, acme, plain, "one", false); err != nil {
		t.Fatal(err)
	}
	with := func(edit func(target *engine.NoteTarget)) engine.NoteTarget {
		target := plain
		edit(&target)
		return target
	}
	add := func(target engine.NoteTarget, text string, toExisting bool) error {
		_, err := repo.AddNote(ctx, acme, target, text, toExisting)
		return err
	}
	read := func(target engine.NoteTarget) error {
		_, err := repo.Note(ctx, target)
		return err
	}
	remove := func(target engine.NoteTarget) error {
		_, err := repo.DeleteNote(ctx, acme, target)
		return err
	}
	noAuthor := with(func(target *engine.NoteTarget) { target.Author.Name = "only a name" })
	noCommit := with(func(target *engine.NoteTarget) { target.Object = named(made.Tree) })
	unknown := with(func(target *engine.NoteTarget) { target.Object = named(object.ID{1}) })
	absent := with(func(target *engine.NoteTarget) { target.Expected = &object.ID{} })
	elsewhere := with(func(target *engine.NoteTarget) { target.Expected = &made.New })
	noRef := with(func(target *engine.NoteTarget) { target.Ref = "refs/notes/x" })
	ephemeral := with(func(target *engine.NoteTarget) { target.Namespace = refs.Ephemeral })
	for name, test := range map[string]struct{ got, want error }{
		"exists":                  {add(plain, "two", false), engine.ErrExists},
		"blank":                   {add(plain, " \n\t", true), engine.ErrInvalid},
		"author without address":  {add(noAuthor, "two", true), engine.ErrInvalid},
		"a tree":                  {add(noCommit, "two", false), engine.ErrNotFound},
		"an unknown commit":       {add(unknown, "two", false), engine.ErrNotFound},
		"no ref expected":         {add(absent, "two", true), refs.ErrStale},
		"another tip expected":    {add(elsewhere, "two", false), refs.ErrStale},
		"delete, another tip":     {remove(elsewhere), refs.ErrStale},
		"delete without a note":   {remove(unknown), engine.ErrNotFound},
		"delete without a ref":    {remove(noRef), engine.ErrNotFound},
		"read without a note":     {read(unknown), engine.ErrNotFound},
		"read without a ref":      {read(noRef), engine.ErrNotFound},
		"read in the other space": {read(ephemeral), engine.ErrNotFound},
	} {
		if !errors.Is(test.got, test.want) {
			t.Errorf("%s: got %v, want %v", name, test.got, test.want)
		}
	}
}

// TestNotesDoNotRace lets many append to one note, and to notes of their own, without an
// expectation: nothing is lost.
func TestNotesDoNotRace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	git, ids := noted(t, 20)
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	var group sync.WaitGroup
	for i, id := range ids {
		group.Go(func() {
			for _, about := range []string{id, ids[0]} {
				target := engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(parseID(t, about))}
				if _, err := repo.AddNote(ctx, acme, target, fmt.Sprintf("by %d", i), true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for i, id := range ids {
		note, err := repo.Note(ctx, engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(parseID(t, id))})
		if err != nil {
			t.Fatal(err)
		}
		paragraphs := strings.Split(note.Text, "\n\n")
		if i == 0 && len(paragraphs) != len(ids)+1 || i > 0 && note.Text != fmt.Sprintf("by %d", i) {
			t.Errorf("note %d is %q", i, note.Text)
		}
	}
}

// TestNotesRefNames holds the names that requests give against the refs that git takes them for.
func TestNotesRefNames(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	for _, name := range []string{"", "reviews", "notes/reviews", "refs/notes/reviews", "a/b"} {
		full, err := engine.NotesRef(name)
		want := engine.DefaultNotesRef
		if name != "" {
			want = strings.TrimSpace(git.Git("notes", "--ref="+name, "get-ref"))
		}
		if err != nil || full != want {
			t.Errorf("%q is %q, %v; want %q", name, full, err, want)
		}
	}
	for _, name := range []string{"refs/heads/main", "a..b", "refs/notes/", "x.lock", "refs/notes/a b"} {
		if full, err := engine.NotesRef(name); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%q is %q, %v; want it refused", name, full, err)
		}
	}
}
