package engine_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// FuzzPreviewToken reads tokens that strangers send: what is read is written as it came.
func FuzzPreviewToken(f *testing.F) {
	token := &engine.PreviewToken{
		Source: engine.CommitName{Text: "dev~1", Namespace: refs.Ephemeral}, Target: engine.MergeBranch{Name: "main"},
		SourceTip: object.ID{1}, TargetTip: object.ID{2}, Tree: object.ID{3},
	}
	f.Add(token.String())
	f.Add("")
	f.Add(token.String()[:100])
	f.Fuzz(func(t *testing.T, text string) {
		read, err := engine.ParsePreviewToken(text)
		switch {
		case err == nil && read.String() != text:
			t.Errorf("%q was read and written as %q", text, read.String())
		case err != nil && !errors.Is(err, engine.ErrInvalid):
			t.Error(err)
		}
	})
}

// forked has a branch dev beside main, each with a commit of its own, whose merge is clean.
func forked(t *testing.T, repo *engine.Repository) (base, ours, theirs object.ID) {
	t.Helper()
	first, err := upload(repo, acme, main, change{path: "f", content: "1\n"})
	must(t, err)
	source, err := upload(repo, acme, engine.CommitTarget{Branch: "dev", Base: "main"}, change{path: "dev", content: "1\n"})
	must(t, err)
	target, err := upload(repo, acme, main, change{path: "main", content: "1\n"})
	must(t, err)
	return first.New, target.New, source.New
}

// shown is the token of a preview, as a client has it.
func shown(t *testing.T, repo *engine.Repository) *engine.PreviewToken {
	t.Helper()
	preview, err := repo.PreviewMerge(t.Context(), branchNamed("dev"), engine.MergeBranch{Name: "main"}, false)
	must(t, err)
	token, err := engine.ParsePreviewToken(preview.Token.String())
	must(t, err)
	return token
}

// byToken merges as a preview showed it.
func byToken(repo *engine.Repository, actor engine.Actor, token *engine.PreviewToken) (engine.MergeOutcome, error) {
	return repo.Merge(context.Background(), actor, asShown(token))
}

func asShown(token *engine.PreviewToken) engine.MergeRequest {
	return engine.MergeRequest{
		Source: token.Source, Target: token.Target, Strategy: engine.PreferForward, Preview: token,
		Details: engine.CommitDetails{Message: "as shown", Author: thor},
	}
}

// byTokenIn is byToken in a transaction.
func byTokenIn(host *engine.Host, repo *engine.Repository, token *engine.PreviewToken) error {
	work, err := host.NewTransaction(context.Background(), []engine.Part{{Repo: repo, Actor: acme}},
		[]engine.Step{{Operation: &engine.MergeOperation{MergeRequest: asShown(token)}}})
	if err != nil {
		return err
	}
	_, err = work.Finish(context.Background())
	return errors.Join(err, work.Close())
}

// TestForgedPreviews changes each part of a token: no merge lands by it but the one that was shown.
func TestForgedPreviews(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	repo := enginetest.Create(t, host, "r")
	base, ours, theirs := forked(t, repo)
	token := shown(t, repo)
	forgeries := map[string]struct {
		change func(p *engine.PreviewToken)
		err    error
		of     engine.StaleKind
	}{
		"another repository":    {func(p *engine.PreviewToken) { p.Repo[0]++ }, engine.ErrInvalid, 0},
		"another target":        {func(p *engine.PreviewToken) { p.TargetTip = base }, engine.ErrStale, engine.StaleTarget},
		"another source":        {func(p *engine.PreviewToken) { p.SourceTip = base }, engine.ErrStale, engine.StaleSource},
		"another tree":          {func(p *engine.PreviewToken) { p.Tree[0]++ }, engine.ErrStale, engine.StaleResult},
		"another branch":        {func(p *engine.PreviewToken) { p.Source.Text = "none" }, engine.ErrNotFound, 0},
		"another target branch": {func(p *engine.PreviewToken) { p.Target.Name = "none" }, engine.ErrNotFound, 0},
		"another repository and branch": {
			func(p *engine.PreviewToken) { p.Repo[0]++; p.Target.Name = "none" }, engine.ErrInvalid, 0,
		},
		"another namespace": {func(p *engine.PreviewToken) { p.Target.Namespace = refs.Ephemeral }, engine.ErrNotFound, 0},
	}
	for name, forgery := range forgeries {
		t.Run(name, func(t *testing.T) {
			forged := *token
			forgery.change(&forged)
			_, err := byToken(repo, acme, &forged)
			for _, err := range []error{err, byTokenIn(host, repo, &forged)} {
				stale, ok := errors.AsType[*engine.StaleError](err)
				if !errors.Is(err, forgery.err) || ok && stale.Of != forgery.of {
					t.Errorf("error is %v", err)
				}
			}
		})
	}
	outcome, err := byToken(repo, acme, token)
	must(t, err)
	if outcome.Kind != engine.MergeCommitted || outcome.Old != ours || outcome.Source != theirs ||
		outcome.Tree != token.Tree {
		t.Errorf("outcome is %+v, shown was %+v", outcome, token)
	}
}

// TestMalformedPreviews changes the form of a token: it is refused before anything is looked for.
func TestMalformedPreviews(t *testing.T) {
	t.Parallel()
	token := engine.PreviewToken{Source: engine.CommitName{Text: "dev"}, Target: engine.MergeBranch{Name: "main"}}
	whole, err := base64.RawURLEncoding.DecodeString(token.String())
	must(t, err)
	for name, change := range map[string]func(p []byte) []byte{
		"nothing":             func([]byte) []byte { return nil },
		"another version":     func(p []byte) []byte { p[0]++; return p },
		"an unknown flag":     func(p []byte) []byte { p[1] |= 0x80; return p },
		"no names":            func(p []byte) []byte { return p[:len(p)-len("devmain")] },
		"no target":           func(p []byte) []byte { return p[:len(p)-len("main")] },
		"a target of no text": func(p []byte) []byte { return append(p[:len(p)-2], 0xa6, 0xdc) },
		"a source of no text": func(p []byte) []byte { p[len(p)-len("main")-1] = 0xff; return p },
	} {
		text := base64.RawURLEncoding.EncodeToString(change(slices.Clone(whole)))
		if _, err := engine.ParsePreviewToken(text); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPreviewLosesRaces moves a branch while a merge by a token has its turn.
func TestPreviewLosesRaces(t *testing.T) {
	t.Parallel()
	for branch, of := range map[string]engine.StaleKind{"main": engine.StaleTarget, "dev": engine.StaleSource} {
		t.Run(branch, func(t *testing.T) {
			t.Parallel()
			repo, other := twoHosts(t)
			forked(t, repo)
			token := shown(t, other)
			actor, moved := acme, false
			actor.Recheck = func() error {
				if moved {
					return nil
				}
				moved = true
				_, err := upload(other, acme, engine.CommitTarget{Branch: branch}, change{path: "moved", content: "1"})
				return err
			}
			_, err := byToken(repo, actor, token)
			if stale, ok := errors.AsType[*engine.StaleError](err); !ok || stale.Of != of {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// TestPreviewRaces lets a merge by a token race with a rival that moves one of its branches. One of
// them is first: either the merge landed exactly as shown, or the rival did and the merge says so.
func TestPreviewRaces(t *testing.T) {
	t.Parallel()
	count := 20
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_RACE_COUNT")); err == nil {
		count = n
	}
	host := enginetest.Open(t)
	random := rand.New(rand.NewPCG(7, 7))
	landed, refused := 0, 0
	for race := range count {
		repo := enginetest.Create(t, host, fmt.Sprint("r", race))
		forked(t, repo)
		token := shown(t, repo)
		rivals := []func() error{
			func() error {
				_, err := upload(repo, acme, main, change{path: "rival", content: "1"})
				return err
			},
			func() error {
				_, err := upload(repo, acme, engine.CommitTarget{Branch: "dev"}, change{path: "rival", content: "1"})
				return err
			},
			func() error {
				_, err := repo.Merge(context.Background(), acme, engine.MergeRequest{
					Source: branchNamed("dev"), Target: engine.MergeBranch{Name: "main"}, Strategy: engine.AlwaysMerge,
					Details: engine.CommitDetails{Message: "a rival", Author: thor},
				})
				return err
			},
			func() error {
				again, err := engine.ParsePreviewToken(token.String())
				if err == nil {
					_, err = byToken(repo, acme, again)
				}
				if errors.Is(err, engine.ErrStale) {
					err = nil
				}
				return err
			},
		}
		rival := rivals[random.IntN(len(rivals))]
		var barrier, done sync.WaitGroup
		barrier.Add(2)
		var outcome engine.MergeOutcome
		var err, rivalErr error
		done.Go(func() {
			barrier.Done()
			barrier.Wait()
			outcome, err = byToken(repo, acme, token)
		})
		done.Go(func() {
			barrier.Done()
			barrier.Wait()
			rivalErr = rival()
		})
		done.Wait()
		must(t, rivalErr)
		switch {
		case errors.Is(err, engine.ErrStale):
			refused++
			tips := map[object.ID]bool{}
			for _, name := range []string{"main", "dev"} {
				branch, err := repo.Branch(t.Context(), refs.Main, name)
				must(t, err)
				tips[branch.Tip] = true
			}
			if tips[token.TargetTip] && tips[token.SourceTip] {
				t.Errorf("race %d: refused, and nothing has moved", race)
			}
		case err != nil:
			t.Errorf("race %d: %v", race, err)
		default:
			landed++
			if outcome.Old != token.TargetTip || outcome.Source != token.SourceTip || outcome.Tree != token.Tree {
				t.Errorf("race %d: outcome is %+v, shown was %+v", race, outcome, token)
			}
		}
	}
	t.Logf("%d landed, %d were refused", landed, refused)
}
