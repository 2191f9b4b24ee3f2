package refs_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

func receipt(repo refs.RepoID, key, body string) *refs.Receipt {
	return &refs.Receipt{
		Key:     refs.ReceiptKey{Org: "acme", Repo: repo.String(), Endpoint: "commit-pack", Key: key},
		Request: sha256.Sum256([]byte(body)),
	}
}

// committer makes a transaction that moves a ref to n and leaves a receipt.
func committer(n int, result string) func(context.Context, *refs.Tx) error {
	return func(ctx context.Context, tx *refs.Tx) error {
		tx.SetResult([]byte(result))
		return tx.Set(ctx, "refs/heads/main", nil, id(n), object.ZeroID)
	}
}

func TestReceiptReplays(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	change := refs.Change{Receipt: receipt(repo, "k1", "body")}
	first, err := store.Update(t.Context(), repo, change, committer(1, "one"))
	if err != nil || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	set(t, store, repo, "refs/heads/main", 2)

	never := func(context.Context, *refs.Tx) error {
		t.Error("prepared again")
		return nil
	}
	again, err := store.Update(t.Context(), repo, change, never)
	if err != nil || !again.Replayed || string(again.Receipt) != "one" || again.Sequence != first.Sequence {
		t.Errorf("%+v, %v", again, err)
	}
	change.Receipt = receipt(repo, "k1", "another body")
	if result, err := store.Update(t.Context(), repo, change, never); !errors.Is(err, refs.ErrReceiptMismatch) {
		t.Errorf("another request: %+v, %v", result, err)
	}
	others := map[string]*refs.Receipt{"key": receipt(repo, "k2", "body"), "repository": receipt(refs.NewRepoID(), "k1",
		"body")}
	others["organization"] = receipt(repo, "k1", "body")
	others["organization"].Key.Org = "other"
	others["endpoint"] = receipt(repo, "k1", "body")
	others["endpoint"].Key.Endpoint = "merge"
	others["a part that moved"] = receipt(repo, "k1", "body")
	others["a part that moved"].Key.Org, others["a part that moved"].Key.Repo = "acme"+repo.String(), ""
	for name, other := range others {
		if _, found, err := store.FindReceipt(t.Context(), other); found || err != nil {
			t.Errorf("another %s: found %v, %v", name, found, err)
		}
	}
}

func TestReceiptOfRefusal(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	change := refs.Change{Receipt: receipt(repo, "k1", "body")}
	for _, outcome := range []error{errors.ErrUnsupported, refs.ErrUnchanged} {
		_, err := store.Update(t.Context(), repo, change, func(_ context.Context, tx *refs.Tx) error {
			tx.SetResult([]byte("refused"))
			return outcome
		})
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
	}
	if result, err := store.Update(t.Context(), repo, change, committer(1, "one")); err != nil || result.Replayed {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestReceiptOfDroppedRepository(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	change := refs.Change{Receipt: receipt(repo, "k1", "")}
	for _, replayed := range []bool{false, true} {
		result, err := store.Update(t.Context(), repo, change, func(_ context.Context, tx *refs.Tx) error {
			tx.SetResult([]byte("gone"))
			tx.Drop()
			return nil
		})
		if err != nil || result.Replayed != replayed || replayed && string(result.Receipt) != "gone" {
			t.Fatalf("%+v, %v", result, err)
		}
	}
}

func TestReceiptKeys(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	for key, want := range map[string]error{
		"a": nil, "!~": nil, strings.Repeat("k", 255): nil,
		"": refs.ErrInvalidReceiptKey, strings.Repeat("k", 256): refs.ErrInvalidReceiptKey, "a b": refs.ErrInvalidReceiptKey,
		"a\n": refs.ErrInvalidReceiptKey, "ü": refs.ErrInvalidReceiptKey, "\x7f": refs.ErrInvalidReceiptKey,
	} {
		if _, err := store.Update(
			t.Context(), repo, refs.Change{Receipt: receipt(repo, key, "")}, committer(1, ""),
		); !errors.Is(err, want) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// Many twins, over two servers and an hour that ends, commit once and agree.
func TestReceiptTwins(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	var ticks atomic.Int64
	begin := time.Date(2026, 1, 1, 0, 59, 59, 0, time.UTC)
	options := refs.Options{Now: func() time.Time {
		return begin.Add(time.Duration(ticks.Add(1)) * 20 * time.Millisecond)
	}}
	servers := []*refs.Store{refs.Open(keys, options), refs.Open(keys, options)}
	repo := createRepo(t, keys, servers[0])
	results := make([]refs.Result, 32)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			result, err := servers[i%2].Update(t.Context(), repo, refs.Change{Receipt: receipt(repo, "k", "")},
				committer(i+1, fmt.Sprint("by ", i)))
			if err != nil {
				t.Error(err)
			}
			results[i] = result
		})
	}
	wg.Wait()
	committed := 0
	for i, result := range results {
		if !result.Replayed {
			committed++
			result.Receipt = []byte(fmt.Sprint("by ", i))
		}
		for _, other := range results {
			if result.Sequence != other.Sequence || other.Replayed && string(other.Receipt) != string(result.Receipt) {
				t.Fatalf("%+v and %+v", result, other)
			}
		}
	}
	if head, err := servers[0].Head(t.Context(), repo); committed != 1 || head != 2 || err != nil {
		t.Errorf("%d committed, head %d, %v", committed, head, err)
	}
}

func TestDropReceipts(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	now := time.Date(2026, 1, 1, 10, 30, 0, 0, time.UTC)
	store := refs.Open(keys, refs.Options{Now: func() time.Time { return now }})
	repo := createRepo(t, keys, store)
	if _, err := store.Update(
		t.Context(), repo, refs.Change{Receipt: receipt(repo, "k", "")}, committer(1, "one"),
	); err != nil {
		t.Fatal(err)
	}
	begin := now
	for _, test := range []struct {
		after time.Duration
		found bool
	}{{time.Hour, true}, {24 * time.Hour, true}, {24*time.Hour + 29*time.Minute, true}, {27 * time.Hour, false}} {
		now = begin.Add(test.after)
		if err := store.DropReceipts(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = begin
		if _, found, err := store.FindReceipt(t.Context(), receipt(repo, "k", "")); found != test.found || err != nil {
			t.Errorf("after %v: found %v, %v", test.after, found, err)
		}
	}
}

// A batch that creates a repository has no head to conflict at; equal requests conflict at the
// receipt itself.
func TestPutReceipt(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) // a receipt conflicts with another of its hour
	store := refs.Open(keys, refs.Options{Now: func() time.Time { return now }})
	key := receipt(refs.RepoID{}, "k", "")
	for _, want := range []error{nil, kv.ErrConflict} {
		batch := kv.NewBatch()
		store.PutReceipt(batch, key, refs.StoredReceipt{Sequence: 1, Result: []byte("created")})
		if _, err := keys.Apply(t.Context(), batch); !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	if stored, found, err := store.FindReceipt(t.Context(), key); err != nil || !found ||
		string(stored.Result) != "created" || stored.Sequence != 1 {
		t.Errorf("%+v, %v, %v", stored, found, err)
	}
}
