package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/pathpolicy"
	"packhorse/pack/object"
	"packhorse/refs"
)

// undoing is a repository whose refs are moved among a few commits.
type undoing struct {
	t    *testing.T
	repo *engine.Repository
	ids  []object.ID
}

// newUndoing creates a repository with main at the first of its commits.
func newUndoing(t *testing.T, host *engine.Host, name string) *undoing {
	t.Helper()
	u := &undoing{t: t, repo: enginetest.Create(t, host, name)}
	for i := range 5 {
		made, err := upload(u.repo, acme, main, change{path: fmt.Sprintf("file%d", i), content: name})
		must(t, err)
		u.ids = append(u.ids, made.New)
	}
	return u
}

// push moves refs in one transaction, pairs of a ref and an id.
func (u *undoing) push(actor engine.Actor, values map[string]object.ID) error {
	now := u.refs()
	request := engine.PushRequest{Atomic: true, Pack: bytes.NewReader(emptyPack)}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		request.Commands = append(request.Commands, engine.Command{Name: name, Old: now[name], New: values[name]})
	}
	p, err := u.repo.Receive(context.Background(), actor, request)
	if err != nil {
		return err
	}
	defer p.Close()
	result, err := p.Finish(context.Background(), nil)
	for _, command := range result.Commands {
		err = errors.Join(err, command.Err)
	}
	return errors.Join(err, result.Unpack)
}

func (u *undoing) moved(values map[string]object.ID) uint64 {
	u.t.Helper()
	must(u.t, u.push(acme, values))
	return u.head()
}

// refs are those of the main namespace.
func (u *undoing) refs() map[string]object.ID {
	u.t.Helper()
	all, err := u.repo.Advertise(context.Background(), refs.Main)
	must(u.t, err)
	defer all.Close()
	found := make(map[string]object.ID)
	for ref, err := range all.All(context.Background(), "") {
		must(u.t, err)
		found[ref.Name] = ref.ID
	}
	return found
}

func (u *undoing) head() uint64 {
	u.t.Helper()
	head, err := u.repo.Sequence(context.Background())
	must(u.t, err)
	return head
}

func (u *undoing) undo(request engine.UndoRequest) (engine.Undone, error) {
	return u.repo.Undo(context.Background(), acme, request)
}

func (u *undoing) undone(request engine.UndoRequest) engine.Undone {
	u.t.Helper()
	undone, err := u.undo(request)
	must(u.t, err)
	return undone
}

func (u *undoing) want(what string, want map[string]object.ID) {
	u.t.Helper()
	if got := u.refs(); !maps.Equal(got, want) {
		u.t.Errorf("%s: refs are %v, want %v", what, got, want)
	}
}

func patterns(t *testing.T, texts ...string) refs.Patterns {
	t.Helper()
	parsed, err := refs.ParsePatterns(texts)
	must(t, err)
	return parsed
}

// TestUndoModel makes random transactions and undoes random ones, or all since a random moment, and
// compares with the states that it has kept.
func TestUndoModel(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	names := []string{"refs/heads/main", "refs/heads/a", "refs/heads/b", "refs/heads/d", "refs/heads/d/x", "refs/tags/v"}
	choices := [][]string{nil, {"*"}, {"refs/heads/*"}, {"refs/tags/*", "main"}, {"a"}, {"d*"}}
	count := 0
	rapid.Check(t, func(rt *rapid.T) {
		count++
		u := newUndoing(t, host, fmt.Sprint("r", count))
		first := u.head()
		states := map[uint64]map[string]object.ID{first: u.refs()}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			now, before := u.refs(), u.head()
			var want map[string]object.ID
			switch rapid.IntRange(0, 4).Draw(rt, "operation") {
			case 0, 1:
				values := make(map[string]object.ID)
				for range rapid.IntRange(1, 3).Draw(rt, "refs") {
					at := rapid.IntRange(-2, len(u.ids)-1).Draw(rt, "value")
					name := rapid.SampledFrom(names).Draw(rt, "name")
					switch {
					case at >= 0:
						values[name] = u.ids[at]
					case !now[name].IsZero():
						values[name] = object.ZeroID
					}
				}
				if len(values) == 0 || u.push(acme, values) != nil {
					continue
				}
				want = maps.Clone(now)
				maps.Copy(want, values)
			default:
				request := engine.UndoRequest{
					Refs: patterns(t, rapid.SampledFrom(choices).Draw(rt, "patterns")...),
				}
				at := rapid.Uint64Range(first, before).Draw(rt, "sequence")
				then, changes := states[at], make(map[string]bool)
				if rapid.Bool().Draw(rt, "to") {
					request.To = seq(at)
					for _, name := range names {
						changes[name] = true
					}
				} else {
					if request.Sequence = at; at == first {
						continue
					}
					request.Force, then = rapid.Bool().Draw(rt, "force"), states[at-1]
					for _, name := range names {
						changes[name] = states[at][name] != then[name]
					}
				}
				want = u.model(request, states, names, changes, then)
				if want == nil {
					if u.head() != before || !maps.Equal(u.refs(), now) {
						rt.Fatalf("a refused undo changed %v to %v", now, u.refs())
					}
					continue
				}
			}
			maps.DeleteFunc(want, func(_ string, id object.ID) bool { return id.IsZero() })
			if got := u.refs(); !maps.Equal(got, want) {
				rt.Fatalf("refs are %v, want %v", got, want)
			}
			after := u.head()
			if changed := !maps.Equal(want, now); changed != (after == before+1) || !changed && after != before {
				rt.Fatalf("%v became %v, and sequence %d became %d", now, want, before, after)
			}
			states[after] = want
		}
	})
	sound(t, host)
}

// model undoes, and returns the refs that are to be there then; nil when the undo is refused, as it
// has to be.
func (u *undoing) model(
	request engine.UndoRequest, states map[uint64]map[string]object.ID, names []string, changes map[string]bool,
	then map[string]object.ID,
) map[string]object.ID {
	u.t.Helper()
	now := u.refs()
	want, asked, moved := maps.Clone(now), 0, []string{}
	deletesDefault := false
	for _, name := range names {
		if !changes[name] || !request.Refs.Match(name) {
			continue
		}
		asked++
		if now[name] == then[name] {
			continue
		}
		if request.Sequence != 0 && !request.Force && now[name] != states[request.Sequence][name] {
			moved = append(moved, name)
		}
		deletesDefault = deletesDefault || name == "refs/heads/main" && then[name].IsZero()
		want[name] = then[name]
	}
	planned, planErr := u.repo.Undo(u.t.Context(), rehearsing, request)
	undone, err := u.undo(request)
	if fmt.Sprint(err) != fmt.Sprint(planErr) || err == nil && !slices.Equal(planned.Refs, undone.Refs) {
		u.t.Errorf("undone %v, %v; in a dry run %v, %v", undone, err, planned, planErr)
	}
	conflict, isConflict := errors.AsType[*engine.MovedError](err)
	switch {
	case request.Sequence != 0 && asked == 0:
		if !errors.Is(err, engine.ErrInvalid) {
			u.t.Errorf("nothing is asked for: %v", err)
		}
		return nil
	case deletesDefault && errors.Is(err, engine.ErrDefaultBranch):
		return nil
	case deletesDefault:
		u.t.Errorf("the default branch is deleted: %v", err)
		return nil
	case len(moved) > 0:
		var told []string
		if isConflict {
			for _, ref := range conflict.Refs {
				if ref.Actual != now[ref.Name] || ref.Expected != states[request.Sequence][ref.Name] {
					u.t.Errorf("told %v", ref)
				}
				told = append(told, ref.Name)
			}
		}
		slices.Sort(moved)
		if !slices.Equal(told, moved) {
			u.t.Errorf("%v: told that %v have moved, and %v have", err, told, moved)
		}
		return nil
	case errors.Is(err, refs.ErrNameConflict) && want["refs/heads/d"] != (object.ID{}) && want["refs/heads/d/x"] != (object.ID{}):
		return nil
	case err != nil:
		u.t.Errorf("undo %+v: %v", request, err)
		return nil
	}
	if !slices.IsSortedFunc(undone.Refs, func(a, b engine.UndoneRef) int { return strings.Compare(a.Name, b.Name) }) {
		u.t.Errorf("told %v", undone.Refs)
	}
	told := maps.Clone(now)
	for _, ref := range undone.Refs {
		if ref.Before != now[ref.Name] || ref.Before == ref.After {
			u.t.Errorf("told %v, and it was at %v", ref, now[ref.Name])
		}
		told[ref.Name] = ref.After
	}
	if !maps.Equal(told, want) {
		u.t.Errorf("told %v, want %v", told, want)
	}
	return want
}

// TestUndo undoes an undo, brings a branch back as the newest one, takes back refs of both
// namespaces, and answers again under a key.
func TestUndo(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, enginetest.Open(t), "r")
	for _, name := range []string{"one", "two", "three"} {
		u.moved(map[string]object.ID{"refs/heads/" + name: u.ids[0]})
	}
	was := u.refs()
	at := u.head()
	u.moved(map[string]object.ID{"refs/heads/two": {}, "refs/heads/main": u.ids[1]})
	u.moved(map[string]object.ID{"refs/heads/four": u.ids[2], "refs/tags/v": u.ids[2]})
	then := u.refs()
	keyed := acme
	keyed.Receipt = &refs.Receipt{Key: refs.ReceiptKey{Org: enginetest.Org, Repo: "r", Endpoint: "undo", Key: "k"}}
	undone, err := u.repo.Undo(t.Context(), keyed, engine.UndoRequest{To: seq(at)})
	must(t, err)
	u.want("undone", was)
	now := tips(t, u.repo)
	if !strings.HasPrefix(now["two"], "3 ") || undone.To != at || undone.Sequence != at+3 || len(undone.Refs) != 4 {
		t.Errorf("undone %+v, branches are %v", undone, now)
	}
	u.undone(engine.UndoRequest{Sequence: undone.Sequence})
	u.want("the undo is undone", then)
	u.undone(engine.UndoRequest{Sequence: u.head()})
	u.want("and that, too", was)
	again, err := u.repo.Undo(t.Context(), keyed, engine.UndoRequest{To: seq(at)})
	if err != nil || again.Sequence != undone.Sequence || again.To != at || !slices.Equal(again.Refs, undone.Refs) {
		t.Errorf("answered again: %+v, %v, and before %+v", again, err, undone)
	}

	// Ephemeral refs are part of a transaction, and of no moment unless a pattern says so.
	_, err = u.repo.CreateBranch(t.Context(), acme, engine.CreateBranchRequest{
		Branch: "aside", Namespace: refs.Ephemeral, Base: engine.CommitName{Text: "main", Kind: engine.BranchName},
	})
	must(t, err)
	if undone := u.undone(engine.UndoRequest{To: seq(at)}); len(undone.Refs) != 0 || undone.Sequence != u.head() {
		t.Errorf("undone %+v", undone)
	}
	all := engine.UndoRequest{To: seq(at), Refs: patterns(t, "refs/namespaces/*")}
	if undone, err := u.repo.Undo(t.Context(), rehearsing, all); err != nil || len(undone.Refs) != 1 {
		t.Errorf("undone %+v, %v", undone, err)
	}
	if undone := u.undone(engine.UndoRequest{Sequence: u.head()}); len(undone.Refs) != 1 {
		t.Errorf("undone %+v", undone)
	}
}

// TestUndoConflicts names what has moved since, and takes it back by force.
func TestUndoConflicts(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, enginetest.Open(t), "r")
	u.moved(map[string]object.ID{"refs/heads/a": u.ids[0], "refs/heads/b": u.ids[0], "refs/heads/c": u.ids[0]})
	was := u.refs()
	bad := u.moved(map[string]object.ID{"refs/heads/a": u.ids[1], "refs/heads/b": {}, "refs/heads/c": u.ids[1]})
	u.moved(map[string]object.ID{"refs/heads/a": u.ids[2], "refs/heads/b": u.ids[2]})
	now := u.refs()
	_, err := u.undo(engine.UndoRequest{Sequence: bad})
	want := engine.MovedError{Sequence: bad, Count: 2, Refs: []engine.MovedRef{
		{Name: "refs/heads/a", Expected: u.ids[1], Actual: u.ids[2]}, {Name: "refs/heads/b", Actual: u.ids[2]},
	}}
	if got, ok := errors.AsType[*engine.MovedError](err); !ok || fmt.Sprint(*got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", err, &want)
	}
	u.want("refused", now)
	partly := u.undone(engine.UndoRequest{Sequence: bad, Refs: patterns(t, "z", "c", "refs/tags/*")})
	if !slices.Equal(partly.Unmatched, []int{0, 2}) {
		t.Errorf("patterns %v match nothing", partly.Unmatched)
	}
	now["refs/heads/c"] = u.ids[0]
	u.want("what has not moved", now)
	u.undone(engine.UndoRequest{Sequence: bad, Force: true})
	u.want("by force", was)

	// A former name that is in the way of another one now.
	at := u.moved(map[string]object.ID{"refs/heads/d": u.ids[0]})
	u.moved(map[string]object.ID{"refs/heads/d": {}})
	u.moved(map[string]object.ID{"refs/heads/d/x": u.ids[0]})
	if _, err := u.undo(engine.UndoRequest{To: seq(at), Refs: patterns(t, "d")}); !errors.Is(err, refs.ErrNameConflict) {
		t.Errorf("a name in the way: %v", err)
	}
	u.undone(engine.UndoRequest{To: seq(at)})
	was["refs/heads/d"] = u.ids[0]
	u.want("both names", was)
}

// seq is the moment of a position in the journal.
func seq(sequence uint64) engine.Moment { return engine.Moment{BySequence: true, Sequence: sequence} }

// TestUndoRefusals asks for moments and transactions that cannot be undone.
func TestUndoRefusals(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{})
	u := newUndoing(t, g.host, "r")
	created := u.repo.Item().Created
	moved, err := u.repo.ChangeSettings(t.Context(), acme, engine.Settings{DefaultBranch: "main"})
	must(t, err)
	head := u.head()
	check := func(what string, request engine.UndoRequest, want error) {
		t.Helper()
		was, at := u.refs(), u.head()
		for _, actor := range []engine.Actor{rehearsing, acme} {
			if _, err := u.repo.Undo(t.Context(), actor, request); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		u.want(what, was)
		if u.head() != at {
			t.Errorf("%s: an entry in the journal", what)
		}
	}
	check("no moment", engine.UndoRequest{}, engine.ErrNotFound)
	check("before the creation", engine.UndoRequest{To: engine.Moment{Time: created.Add(-time.Hour)}}, engine.ErrNotFound)
	check("after now", engine.UndoRequest{To: engine.Moment{Time: g.now().Add(time.Hour)}}, engine.ErrInvalid)
	check("a position that is to come", engine.UndoRequest{To: seq(head + 1)}, engine.ErrInvalid)
	check("a transaction that is to come", engine.UndoRequest{Sequence: head + 1}, refs.ErrFuture)
	_, err = u.undo(engine.UndoRequest{Sequence: head + 9})
	if future, ok := errors.AsType[*refs.FutureError](err); !ok || future.Sequence != head+9 || future.Last != head {
		t.Errorf("a transaction that is far to come: %v", err)
	}
	check("a transaction without refs", engine.UndoRequest{Sequence: moved.Sequence}, engine.ErrInvalid)
	check("the creation", engine.UndoRequest{Sequence: 1}, engine.ErrInvalid)
	check("to the creation", engine.UndoRequest{To: seq(1)}, engine.ErrDefaultBranch)
	check("the first commit", engine.UndoRequest{Sequence: 2, Force: true}, engine.ErrDefaultBranch)
	check("none of its refs", engine.UndoRequest{Sequence: 2, Refs: patterns(t, "other")}, engine.ErrInvalid)

	must(t, func() error {
		_, err := upload(u.repo, acme, engine.CommitTarget{Branch: "gone", Base: "main"}, change{path: "lost"})
		return err
	}())
	at := u.head()
	_, err = u.repo.DeleteBranch(t.Context(), acme, refs.Main, "gone")
	must(t, err)
	removed := g.now()
	g.pass(20 * day)
	u.moved(map[string]object.ID{"refs/heads/main": u.ids[0]})
	maintainWith(t, g.host, engine.MaintainOptions{All: true, ReaderGrace: -1})
	check("a value that is not stored any more", engine.UndoRequest{To: seq(at)}, engine.ErrPast)
	check("... by its transaction", engine.UndoRequest{Sequence: at + 1}, engine.ErrPast)
	g.pass(85 * day)
	maintainAll(t, g.host)
	check("a moment that is not kept", engine.UndoRequest{To: seq(at)}, engine.ErrPast)
	check("... by its time", engine.UndoRequest{To: engine.Moment{Time: removed}}, engine.ErrPast)
	check("a transaction that is not kept", engine.UndoRequest{Sequence: at}, engine.ErrPast)
	// The oldest moment may be the one after the transaction.
	for request, want := range map[*engine.UndoRequest]string{
		{To: seq(at)}: "the history of that moment", {Sequence: at + 1}: fmt.Sprint("what was before transaction ", at+1),
	} {
		if _, err := u.undo(*request); err == nil || !strings.HasPrefix(err.Error(), want+" is not kept any more") {
			t.Errorf("%+v: %v, want that it names %s", request, err, want)
		}
	}
}

// TestUndoTime goes back to times between transactions.
func TestUndoTime(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{})
	u := newUndoing(t, g.host, "r")
	var times []time.Time
	for i := range 5 {
		g.pass(time.Hour)
		u.moved(map[string]object.ID{"refs/heads/a": u.ids[i]})
		times = append(times, g.now().Add(30*time.Minute))
	}
	g.pass(time.Hour)
	for i := range times {
		undone := u.undone(engine.UndoRequest{To: engine.Moment{Time: times[i]}})
		if u.refs()["refs/heads/a"] != u.ids[i] || len(undone.Refs) > 1 {
			t.Errorf("at %d: %v", i, undone)
		}
	}
}

// TestUndoPolicies holds undo to the policies of refs and of paths.
func TestUndoPolicies(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, enginetest.Open(t), "r")
	at := u.moved(map[string]object.ID{"refs/heads/a": u.ids[0], "refs/heads/b": u.ids[3]})
	u.moved(map[string]object.ID{"refs/heads/a": u.ids[2], "refs/heads/b": {}})
	now := u.refs()
	policy := func(pattern, op string) refs.Policy {
		parsed, err := refs.ParsePolicy([][]any{{pattern, []any{op}}}, nil)
		must(t, err)
		return parsed
	}
	paths, err := pathpolicy.Parse([][]any{{"file2", []any{"no-write"}}})
	must(t, err)
	bound := func(change func(a *engine.Actor)) engine.Actor {
		actor := acme
		change(&actor)
		return actor
	}
	for what, actor := range map[string]engine.Actor{
		"no-push":       bound(func(a *engine.Actor) { a.Policy = policy("b", "no-push") }),
		"no-force-push": bound(func(a *engine.Actor) { a.Policy = policy("a", "no-force-push") }),
		"verify-sig":    bound(func(a *engine.Actor) { a.Policy = policy("b", "verify-sig") }),
		"paths":         bound(func(a *engine.Actor) { a.Paths = paths }),
	} {
		for _, actor.DryRun = range []bool{true, false} {
			_, err := u.repo.Undo(t.Context(), actor, engine.UndoRequest{To: seq(at)})
			if !errors.Is(err, refs.ErrDenied) {
				t.Errorf("%s: %v", what, err)
			}
		}
		u.want(what, now)
	}
	other := bound(func(a *engine.Actor) { a.Policy = policy("refs/tags/*", "no-push") })
	_, err = u.repo.Undo(t.Context(), other, engine.UndoRequest{To: seq(at)})
	must(t, err)
}

// TestUndoAcrossMaintenance maintains between a mistake and its undo: what was reachable is there.
func TestUndoAcrossMaintenance(t *testing.T) {
	t.Parallel()
	g := newGraveyard(t, engine.Config{})
	u := newUndoing(t, g.host, "r")
	for i := range 3 {
		_, err := upload(u.repo, acme, engine.CommitTarget{Branch: "topic", Base: "main"},
			change{path: "topic", content: fmt.Sprint(i)})
		must(t, err)
	}
	was, at := u.refs(), u.head()
	u.moved(map[string]object.ID{"refs/heads/topic": {}, "refs/heads/main": u.ids[0]})
	g.pass(13 * day)
	maintainWith(t, g.host, engine.MaintainOptions{All: true, ReaderGrace: -1})
	g.pass(time.Hour)
	maintainWith(t, g.host, engine.MaintainOptions{All: true, ReaderGrace: -1})
	u.undone(engine.UndoRequest{To: seq(at)})
	u.want("undone", was)
	g.pass(20 * day)
	maintainWith(t, g.host, engine.MaintainOptions{All: true, ReaderGrace: -1})
	sound(t, g.host)
	u.want("later", was)
}
