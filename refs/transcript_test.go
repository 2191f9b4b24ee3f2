package refs_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// TestTranscripts plays the stories in testdata/transcripts. Each begins with one empty repository,
// at 12:00.
//
//	update [each] [actor=A] [cause=C] [option=O] [key=K [body=B] [result=R]]
//	    runs a transaction of lines as git update-ref --stdin reads them:
//	    create REF NEW, update REF NEW [OLD], delete REF [OLD].
//	    A line that is refused refuses all of them, unless there is "each". With a key it leaves
//	    a receipt.
//	meanwhile [times=N]
//	    lets another server run the lines during the next update, when that has read the refs;
//	    # is the try
//	list [namespace=ephemeral] [at=S]        as git ls-remote: the refs, and what tags lead to
//	branches [after=REF] [limit=N]           in the order of their creation
//	journal [after=N] [limit=N]              one change a line
//	snapshot S, close S                      keeps refs as they are now, and lets go of them
//	trim before=HH:MM                        cuts the journal
//	tag T C          says that T is a tag object that leads to C; any other word stands for a commit
//	history C...     says which commits follow one another
//	signed C...      says which commits are signed
//	policy           is that of the next updates; lines PATTERN: OP...
//	clock HH:MM      sets the clock
//	receipts         removes those that are too old
//	fsck, drop       of the repository
//	park, revive     the repository is deleted, and comes back
func TestTranscripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		t.Helper()
		t.Parallel()
		s := newScene(t)
		datadriven.RunTest(t, path, s.run)
	})
}

// scene is a repository in a key-value store that two servers share, and the words that stand for
// its objects.
type scene struct {
	here, there *refs.Store
	repo        refs.RepoID
	now         time.Time
	words       map[string]string    // hexadecimal ID to word
	peeled      map[string]object.ID // tag to what it leads to
	history     []object.ID
	signed      map[object.ID]bool
	policy      refs.Policy
	snapshots   map[string]*refs.Snapshot
	meanwhile   []string // lines of what the other server does
	tries       int      // that the other server still comes first in
	keys        kv.Store
	parked      []byte // the head of the repository while it is deleted
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		now:   time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		words: map[string]string{}, peeled: map[string]object.ID{}, signed: map[object.ID]bool{},
		snapshots: map[string]*refs.Snapshot{},
	}
	keys := openKV(t)
	options := refs.Options{Now: func() time.Time { return s.now }}
	s.keys = keys
	s.here, s.there = refs.Open(keys, options), refs.Open(keys, options)
	s.repo = createRepo(t, keys, s.here)
	t.Cleanup(func() {
		for _, snapshot := range s.snapshots {
			snapshot.Close()
		}
	})
	return s
}

func (s *scene) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	out, err := s.command(t, d)
	if err != nil {
		out += fmt.Sprintf("refused: %v\n", err)
	}
	return s.named(out)
}

func (s *scene) command(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	ctx := t.Context()
	switch d.Cmd {
	case "update":
		return s.update(t, d)
	case "meanwhile":
		s.meanwhile, s.tries = strings.Split(d.Input, "\n"), number(t, d, "times", 1)
		return "", nil
	case "list":
		return s.list(t, d)
	case "branches":
		return s.branches(t, d)
	case "journal":
		page, err := s.here.Events(ctx, s.repo, uint64(number(t, d, "after", 0)), number(t, d, "limit", refs.EventsMax))
		out := s.changes(page.Entries, true)
		if page.More {
			out += fmt.Sprintf("more after %d\n", page.Next)
		}
		return out, err
	case "snapshot":
		snapshot, err := s.here.Snapshot(ctx, s.repo)
		if err != nil {
			return "", err
		}
		s.snapshots[d.CmdArgs[0].Key] = snapshot
		return fmt.Sprintf("transaction %d, %d refs\n", snapshot.Sequence(), snapshot.Count()), nil
	case "close":
		snapshot := s.snapshots[d.CmdArgs[0].Key]
		delete(s.snapshots, d.CmdArgs[0].Key)
		return "", snapshot.Close()
	case "trim":
		oldest, err := s.here.TrimJournal(ctx, s.repo, s.hour(t, argument(d, "before")))
		return fmt.Sprintf("the journal begins with %d\n", oldest), err
	case "tag":
		s.peeled[d.CmdArgs[0].Key] = s.id(d.CmdArgs[1].Key)
	case "history":
		s.history = s.ids(d)
	case "signed":
		for _, id := range s.ids(d) {
			s.signed[id] = true
		}
	case "policy":
		return "", s.setPolicy(d.Input)
	case "clock":
		s.now = s.hour(t, d.CmdArgs[0].Key)
	case "receipts":
		return "", s.here.DropReceipts(ctx)
	case "fsck":
		report, err := s.here.Fsck(ctx, s.repo)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d refs, %d journal entries, %d problems\n",
			report.RefCount, report.EntryCount, report.ProblemCount), nil
	case "park":
		result, err := s.there.Update(ctx, s.repo, refs.Change{Actor: "bob", Cause: "delete"},
			func(_ context.Context, tx *refs.Tx) error {
				tx.Park(func(head []byte) error {
					s.parked = head
					return nil
				})
				return nil
			})
		return fmt.Sprintf("transaction %d\n", result.Sequence), err
	case "revive":
		batch, change := kv.NewBatch(), refs.Change{Actor: "bob", Cause: "undelete"}
		sequence, err := s.there.Revive(batch, s.repo, change, s.parked)
		if err == nil {
			_, err = s.there.ApplyRevival(ctx, batch, s.repo, change, sequence)
		}
		if errors.Is(err, kv.ErrConflict) {
			return "", errors.New("the repository is there")
		}
		return fmt.Sprintf("transaction %d\n", sequence), err
	case "drop":
		_, err := s.here.Update(ctx, s.repo, refs.Change{}, drop)
		return "", err
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return "", nil
}

// update runs a transaction, and shows what came of it.
func (s *scene) update(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	change := refs.Change{
		Actor: cmp.Or(argument(d, "actor"), "ada"), Cause: cmp.Or(argument(d, "cause"), "push"), Policy: s.policy,
		FastForward: s.isFastForward,
		Signed:      func(_ context.Context, move refs.Move) (bool, error) { return s.signed[move.After], nil },
	}
	if option := argument(d, "option"); option != "" {
		change.Options = []string{option}
	}
	if key := argument(d, "key"); key != "" {
		change.Receipt = receipt(s.repo, key, argument(d, "body"))
	}
	var refusals strings.Builder
	tries := 0
	result, err := s.here.Update(t.Context(), s.repo, change, func(ctx context.Context, tx *refs.Tx) error {
		tries++
		refusals.Reset()
		if s.tries > 0 {
			s.tries--
			if err := s.elsewhere(ctx, tries); err != nil {
				return err
			}
		}
		tx.SetResult([]byte(argument(d, "result")))
		for line := range strings.SplitSeq(d.Input, "\n") {
			err := s.apply(ctx, tx, line)
			if err != nil && !d.HasArg("each") {
				return err
			}
			if err != nil {
				fmt.Fprintf(&refusals, "refused: %v\n", err)
			}
		}
		return nil
	})
	out := refusals.String()
	switch {
	case err != nil:
	case result.Replayed:
		out = fmt.Sprintf("done before, in transaction %d: %q\n", result.Sequence, result.Receipt)
	case len(result.Updates) == 0:
		out += fmt.Sprintf("nothing to change, still at transaction %d\n", result.Sequence)
	default:
		out += fmt.Sprintf("transaction %d\n", result.Sequence) + s.changes(result.Updates, false)
	}
	if tries > 1 {
		out = fmt.Sprintf("tried %d times\n", tries) + out
	}
	return out, err
}

// elsewhere runs the lines of "meanwhile" on the other server.
func (s *scene) elsewhere(ctx context.Context, try int) error {
	change := refs.Change{Actor: "bob", Cause: "push"}
	_, err := s.there.Update(ctx, s.repo, change, func(ctx context.Context, tx *refs.Tx) error {
		for _, line := range s.meanwhile {
			if err := s.apply(ctx, tx, strings.ReplaceAll(line, "#", strconv.Itoa(try))); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// apply makes the change that a line of git update-ref --stdin tells.
func (s *scene) apply(ctx context.Context, tx *refs.Tx, line string) error {
	words := strings.Fields(line)
	arguments := 1 // after the ref, before the old value
	if words[0] == "delete" {
		arguments = 0
	}
	var old *object.ID
	if rest := words[2+arguments:]; len(rest) > 0 {
		old = new(s.id(rest[0]))
	}
	switch words[0] {
	case "delete":
		return tx.Delete(ctx, words[1], old)
	case "create":
		old = new(object.ZeroID)
	}
	return tx.Set(ctx, words[1], old, s.id(words[2]), s.peeled[words[2]])
}

func (s *scene) list(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	snapshot := s.snapshots[argument(d, "at")]
	if snapshot == nil {
		var err error
		if snapshot, err = s.here.Snapshot(t.Context(), s.repo); err != nil {
			return "", err
		}
		defer snapshot.Close()
	}
	namespace := refs.Main
	if argument(d, "namespace") == "ephemeral" {
		namespace = refs.Ephemeral
	}
	var out strings.Builder
	for ref, err := range snapshot.In(t.Context(), namespace, "") {
		if err != nil {
			return out.String(), err
		}
		name := namespace.Short(ref.Name)
		fmt.Fprintf(&out, "%v %s\n", ref.ID, name)
		if !ref.Peeled.IsZero() {
			fmt.Fprintf(&out, "%v %s^{}\n", ref.Peeled, name)
		}
	}
	return out.String(), nil
}

func (s *scene) branches(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	snapshot := openSnapshot(t, s.here, s.repo)
	var after refs.Creation
	if name := argument(d, "after"); name != "" {
		ref, err := snapshot.Lookup(t.Context(), name)
		if err != nil {
			return "", err
		}
		after = ref.Created
	}
	branches, err := snapshot.Branches(t.Context(), refs.Main, after, number(t, d, "limit", 100))
	var out strings.Builder
	for _, ref := range branches {
		fmt.Fprintf(&out, "%v %s, created by transaction %d.%d at %s\n",
			ref.ID, ref.Name, ref.Created.Sequence, ref.Created.Index, ref.CreatedAt().Format("15:04"))
	}
	return out.String(), err
}

// changes shows entries of the journal, with who made them if told so.
func (s *scene) changes(entries []refs.Entry, who bool) string {
	var out strings.Builder
	for _, e := range entries {
		if who {
			fmt.Fprintf(&out, "%d.%d %s %s: %s: ", e.Sequence, e.Index, e.Time.UTC().Format("15:04"), e.Actor, e.Cause)
		}
		fmt.Fprintf(&out, "%v..%v %s", e.Before, e.After, e.Ref)
		for _, option := range e.Options {
			fmt.Fprintf(&out, " -o %s", option)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// setPolicy takes lines PATTERN: OP....
func (s *scene) setPolicy(lines string) error {
	var rules [][]any
	for line := range strings.Lines(lines) {
		pattern, ops, _ := strings.Cut(strings.TrimSpace(line), ":")
		var list []any
		for op := range strings.FieldsSeq(ops) {
			list = append(list, op)
		}
		rules = append(rules, []any{pattern, list})
	}
	policy, err := refs.ParsePolicy(rules, nil)
	s.policy = policy
	return err
}

func (s *scene) isFastForward(_ context.Context, before, after object.ID) (bool, error) {
	for _, id := range s.history {
		if id == before {
			return true, nil
		}
		if id == after {
			return false, nil
		}
	}
	return false, errors.New("the history is unknown")
}

// id returns the object ID that a word stands for.
func (s *scene) id(word string) object.ID {
	if word == "none" {
		return object.ZeroID
	}
	sum := sha256.Sum256([]byte(word))
	id := object.ID(sum[:object.IDSize])
	s.words[id.String()] = word
	return id
}

func (s *scene) ids(d *datadriven.TestData) []object.ID {
	var ids []object.ID
	for _, argument := range d.CmdArgs {
		ids = append(ids, s.id(argument.Key))
	}
	return ids
}

var hexID = regexp.MustCompile(`[0-9a-f]{40}`)

// named replaces the IDs in a text by the words that stand for them.
func (s *scene) named(text string) string {
	text = strings.ReplaceAll(text, s.repo.String(), "the repository")
	return hexID.ReplaceAllStringFunc(text, func(hex string) string {
		if hex == object.ZeroID.String() {
			return "none"
		}
		return cmp.Or(s.words[hex], hex)
	})
}

// hour returns a time of the day of the story.
func (s *scene) hour(t *testing.T, clock string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04", clock)
	if err != nil {
		at, err = time.Parse("2006-01-02T15:04", "2026-01-01T"+clock)
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// argument returns the value of an argument, "" for none.
func argument(d *datadriven.TestData, key string) string {
	arg, ok := d.Arg(key)
	if !ok || len(arg.Vals) == 0 {
		return ""
	}
	return arg.Vals[0]
}

// number returns the value of an argument, or what it is without one.
func number(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	t.Helper()
	n := otherwise
	d.MaybeScanArgs(t, key, &n)
	return n
}
