package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// TestCareStoreAway has the store go away in the midst of fsck, of scrubbing and of maintenance.
// Each ends with what has happened, which is no damage; the next one, with the store back,
// succeeds.
func TestCareStoreAway(t *testing.T) {
	t.Parallel()
	works := map[string]func(ctx context.Context, host *engine.Host) error{
		"fsck": func(ctx context.Context, host *engine.Host) error {
			for checked, err := range host.Fsck(ctx, engine.FsckOptions{}) {
				if err != nil {
					return err
				}
				if checked.Damaged() {
					return fmt.Errorf("damage: %q", checked.Problems())
				}
			}
			return nil
		},
		"scrub": func(ctx context.Context, host *engine.Host) error {
			before := host.ScrubStats().ProblemCount
			err := host.Scrub(ctx, engine.ScrubOptions{BytesPerSecond: 1 << 40, Passes: 1})
			if found := host.ScrubStats().ProblemCount - before; found > 0 {
				return fmt.Errorf("%d problems are counted", found)
			}
			return err
		},
		"maintenance": func(ctx context.Context, host *engine.Host) error {
			for done, err := range host.Maintain(ctx, engine.MaintainOptions{ReaderGrace: -1, Grace: -1}) {
				if err = errors.Join(err, done.Err); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, work := range works {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var store *odbtest.Away
			host := enginetest.OpenBehind(t, engine.Config{}, func(keys kv.Store) kv.Store {
				store = odbtest.NewAway(keys)
				return store
			})
			repos := []*engine.Repository{enginetest.Create(t, host, "a"), enginetest.Create(t, host, "b")}
			told := 0
			for depth, met := 0, true; met; depth += 1 + depth/8 {
				for _, repo := range repos {
					if _, err := upload(repo, acme, main, change{path: "f", content: string(rune('a' + depth%26))}); err != nil {
						t.Fatal(err)
					}
				}
				store.Leave(depth)
				err := work(t.Context(), host)
				met = store.Return() > 0
				switch {
				case errors.Is(err, kv.ErrUnavailable):
					told++
				case err != nil:
					t.Fatalf("away after %d calls: %v", depth, err)
				}
				if err := work(t.Context(), host); err != nil {
					t.Fatalf("after it was away after %d calls: %v", depth, err)
				}
			}
			if told < 10 {
				t.Errorf("only %d times the store was away", told)
			}
			if n := host.DamageCount(); n != 0 {
				t.Errorf("%d things count as damaged", n)
			}
			if err := works["fsck"](t.Context(), host); err != nil {
				t.Error(err)
			}
		})
	}
}
