package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// apiWriter makes writes of every kind that may be refused, and records the accepted ones.
type apiWriter struct {
	ctx     context.Context
	repo    *engine.Repository
	random  *rand.Rand
	serial  int
	commits []object.ID
	notes   object.ID
	written []change // what commits of files were to write
}

func pick[T any](w *apiWriter, from []T) T { return from[w.random.IntN(len(from))] }

func (w *apiWriter) person() commit.Person {
	names := []string{
		"A", "A U Thor", "", " ", "<", "A <a>", "a\nb", "a\rb", "a\x00b", "\u00e4", "\xff", ".", ",;", "\u00a0",
		"\u2028", "a\tb", "\x01", "1 +0000",
	}
	mails := []string{"a@b", "", " ", "a", "<a@b>", "a b", "a>", "\n", "a@b\x00", "\u00e4@b", "> 1 +0000", "."}
	if w.random.IntN(8) > 0 {
		return thor
	}
	return commit.Person{Name: pick(w, names), Email: pick(w, mails)}
}

func (w *apiWriter) details() engine.CommitDetails {
	d := engine.CommitDetails{Message: "m", Author: w.person()}
	if w.random.IntN(6) == 0 {
		d.Message = pick(w, []string{
			"", " ", "\n\nm", "m\x00", "m\n\n\n", "gpgsig x\n y\n\nm", "\xff\xfe",
			"tree " + object.EmptyTreeID.String() + "\n", "\r\n",
		})
	}
	if w.random.IntN(4) == 0 {
		d.Committer = w.person()
	}
	return d
}

func (w *apiWriter) target() engine.CommitTarget {
	return engine.CommitTarget{Branch: pick(w, []string{"main", "one", "two"}), Base: "main"}
}

// file is a file under a name of disguises, or a plain one.
func (w *apiWriter) file() change {
	w.serial++
	c := change{path: pick(w, []string{"a", "b", "c"}), content: pick(w, disguisedContents)}
	if w.random.IntN(3) == 0 {
		c.path = pick(w, disguises)
	}
	for range w.random.IntN(3) {
		c.path = pick(w, append([]string{pick(w, disguises)}, "d", "e", "d", "e", "f")) + "/" + c.path
	}
	c.mode = pick(w, []object.Mode{
		object.ModeBlob, object.ModeBlob, object.ModeBlob, object.ModeExec, object.ModeSymlink, object.ModeGitlink,
	})
	switch {
	case c.mode.IsGitlink():
		c.content = fmt.Sprintf("%040x", 1+w.random.IntN(5))
	case w.random.IntN(8) == 0:
		c.content = ""
	default:
		c.content += fmt.Sprintf("# %d\n", w.random.IntN(50))
	}
	return c
}

// taken makes the path of c that of something that may be in the repository, in half of the cases.
func (w *apiWriter) taken(c *change) (op engine.FileOperation, ok bool) {
	if len(w.written) == 0 || w.random.IntN(2) == 0 {
		return op, false
	}
	from := pick(w, w.written)
	edits := []commit.Edit{{Old: "# ", New: pick(w, disguisedContents) + "# "}}
	switch w.random.IntN(5) {
	case 0:
		op = moved(from.path, c.path)
	case 1:
		op = copied(from.path, c.path)
	case 2:
		op = with(copied(from.path, c.path), edits...)
	case 3:
		op = edited(from.path, edits...)
	default:
		op = engine.FileOperation{Path: c.path, Mode: c.mode, Blob: blobOf(from.content)}
	}
	return op, true
}

// write makes one write and reports whether it was accepted.
func (w *apiWriter) write() bool {
	actor := acme
	actor.Subject = pick(w, []string{"tester", "", "<", "a@b", "\u00a0", "a\nb", "x\x00y", "\u2028"})
	done := func(id object.ID, err error) bool {
		if err == nil && !id.IsZero() {
			w.commits = append(w.commits, id)
		}
		return err == nil
	}
	switch w.random.IntN(10) {
	case 0:
		result, err := w.repo.AddNote(w.ctx, actor, engine.NoteTarget{
			Ref: engine.DefaultNotesRef, Object: named(pick(w, w.commits)), Author: pick(w, []commit.Person{{}, w.person()}),
		}, pick(w, []string{"note", "a\x00b", "\xff", "\n\n", " x \n\n\ny"}), true)
		if err == nil {
			w.notes = result.New
		}
		return err == nil
	case 1:
		outcome, err := w.repo.Merge(w.ctx, actor, engine.MergeRequest{
			Source: branchNamed(pick(w, []string{"one", "two"})), Target: engine.MergeBranch{Name: pick(w, []string{"main", "one"})},
			Strategy: engine.AlwaysMerge, Squash: w.random.IntN(3) == 0, Details: w.details(),
		})
		return done(outcome.Commit, err)
	case 2:
		result, err := w.repo.RestoreCommit(w.ctx, actor,
			engine.RestoreRequest{Target: w.target(), Details: w.details(), Commit: named(pick(w, w.commits))})
		return done(result.New, err)
	case 3, 4, 5:
		patch := ""
		for range 1 + w.random.IntN(2) {
			c := w.file()
			patch += c.asPatch()
		}
		u, err := w.repo.NewPatchUpload(w.ctx, actor, engine.PatchRequest{Target: w.target(), Details: w.details()})
		if err != nil {
			return false
		}
		defer u.Close()
		if err := u.Chunk(w.ctx, []byte(patch), true); err != nil {
			return false
		}
		result, err := u.Finish(w.ctx)
		return done(result.New, err)
	}
	request := engine.UploadRequest{Target: w.target(), Details: w.details()}
	var contents []string
	for range 1 + w.random.IntN(3) {
		c := w.file()
		if op, ok := w.taken(&c); ok {
			request.Operations = append(request.Operations, op)
			continue
		}
		contents = append(contents, c.content)
		w.written = append(w.written, c)
		request.Operations = append(request.Operations,
			engine.FileOperation{Path: c.path, Mode: c.mode, ContentID: fmt.Sprint(len(contents) - 1)})
	}
	u, err := w.repo.NewUpload(w.ctx, actor, request)
	if err != nil {
		return false
	}
	defer u.Close()
	for i, content := range contents {
		if err := u.Chunk(w.ctx, fmt.Sprint(i), []byte(content), true); err != nil {
			return false
		}
	}
	result, err := u.Finish(w.ctx)
	return done(result.New, err)
}

// TestWhatTheAPIAcceptsGitTakes makes writes of every kind that may be refused. Git with strict
// checks accepts the results of all others, and so does another repository; maintenance succeeds,
// and fsck finds nothing.
func TestWhatTheAPIAcceptsGitTakes(t *testing.T) {
	t.Parallel()
	const batch = 100 // writes to one repository, so that git is asked once for all of them
	accepted, count := 0, oracle.CaseCount(t, 200, 100)
	for done := 0; done < count; done += batch {
		host := enginetest.Open(t)
		repo := enginetest.Create(t, host, "r")
		seed, err := upload(repo, acme, main, change{path: "seed"})
		if err != nil {
			t.Fatal(err)
		}
		w := &apiWriter{
			ctx: t.Context(), repo: repo, random: rand.New(rand.NewPCG(uint64(done), 17)), commits: []object.ID{seed.New},
		}
		for range batch {
			if w.write() {
				accepted++
			}
		}
		what := fmt.Sprintf("writes %d to %d", done, done+batch)
		gitTakes(t, w, host, what)
		for _, anew := range []bool{false, true} {
			keep(t, host, engine.MaintainOptions{All: true, RepackOptions: packgen.RepackOptions{Anew: anew}})
			gitTakes(t, w, host, fmt.Sprintf("%s, anew %v", what, anew))
		}
		if t.Failed() {
			return
		}
	}
	if accepted < count/5 {
		t.Errorf("of %d writes only %d were accepted", count, accepted)
	}
	t.Logf("%d of %d writes accepted", accepted, count)
}

func gitTakes(t *testing.T, w *apiWriter, host *engine.Host, what string) {
	t.Helper()
	view, err := w.repo.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	wants := append([]object.ID{}, w.commits...)
	if !w.notes.IsZero() {
		wants = append(wants, w.notes)
	}
	plan, err := packgen.Plan(t.Context(), view, packgen.Request{Wants: wants, OFSDelta: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	var sent bytes.Buffer
	if _, err := plan.WriteTo(t.Context(), &sent, nil); err != nil {
		t.Fatal(err)
	}
	git := oracle.New(t)
	if _, err := git.Try(sent.Bytes(), "index-pack", "--strict", "--fsck-objects", "--stdin"); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if faults := git.Fsck(); len(faults) > 0 {
		t.Errorf("%s: git fsck: %v", what, faults)
	}
	var commands []engine.Command
	for i, id := range wants {
		commands = append(commands, engine.Command{Name: fmt.Sprintf("refs/heads/b%d", i), New: id})
	}
	other := enginetest.Open(t)
	enginetest.Push(t, enginetest.Create(t, other, "other"), sent.Bytes(), commands...)
	for _, host := range []*engine.Host{host, other} {
		for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
			if err != nil || checked.Damaged() || checked.Objects.WarningCount > 0 {
				t.Errorf("%s: fsck: %v, %q, %q", what, err, checked.Problems(), checked.Warnings())
			}
		}
	}
}
