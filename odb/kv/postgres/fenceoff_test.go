package postgres_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestFenceOff fences off stores that are open: with connections that have written, and with none
// yet. They go on to read, and whoever opens the database later writes.
func TestFenceOff(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	for round, name := range []string{"first", "second"} {
		before, fresh := openHere(t, postgres.Options{URL: url}), openHere(t, postgres.Options{URL: url})
		last := openHere(t, postgres.Options{URL: url})
		apply(t, before, batchOf("1", name+" kept"))
		apply(t, last, batchOf("1", name+" of the one that stays"))
		for range 2 - round { // a second time, as after a lost answer
			if err := last.FenceOff(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i, store := range []*postgres.Store{before, fresh, before} {
			key := fmt.Sprint(name, " late ", i)
			if _, err := store.Apply(t.Context(), batchOf("1", key)); !errors.Is(err, kv.ErrUnavailable) || isOfDriver(err) {
				t.Errorf("%s: apply is %v, want ErrUnavailable", key, err)
			}
			want(t, store, name+" kept", "1")
			want(t, last, key, "")
		}
		apply(t, last, batchOf("1", name+" later"))
		apply(t, openHere(t, postgres.Options{URL: url}), batchOf("1", name+" by another"))
	}
}

// TestFenceOffStorm fences off a store whose writers are at work, and are connecting. What is there
// when that is done stays.
func TestFenceOffStorm(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	const rounds, writers = 10, 6
	for round := range rounds {
		old, other := openHere(t, postgres.Options{URL: url}), openHere(t, postgres.Options{URL: url})
		var group sync.WaitGroup
		begun := make(chan struct{}, writers)
		var acknowledged [writers]int
		key := func(writer int) string { return fmt.Sprintf("head/%d/%d", round, writer) }
		for writer := range writers {
			group.Go(func() {
				if round%2 == 0 {
					begun <- struct{}{}
				}
				for i := 0; ; i++ {
					batch := batchOf(strconv.Itoa(i), fmt.Sprintf("step/%d/%d/%d", round, writer, i))
					batch.Put([]byte(key(writer)), []byte(strconv.Itoa(i+1)))
					if _, err := old.Apply(t.Context(), batch); err != nil {
						if !errors.Is(err, kv.ErrUnavailable) {
							t.Errorf("writer %d, step %d: %v", writer, i, err)
						}
						return
					}
					acknowledged[writer] = i + 1
					if i == 3 && round%2 == 1 {
						begun <- struct{}{}
					}
				}
			})
		}
		<-begun
		if err := other.FenceOff(t.Context()); err != nil {
			t.Fatal(err)
		}
		var found [writers]string
		for writer := range writers {
			value, err := other.Get(t.Context(), []byte(key(writer)))
			if err != nil && !errors.Is(err, kv.ErrNotFound) {
				t.Fatal(err)
			}
			found[writer] = string(value)
		}
		group.Wait()
		for writer := range writers {
			want(t, other, key(writer), found[writer])
			if told := strconv.Itoa(acknowledged[writer]); found[writer] != told && (found[writer] != "" || told != "0") {
				t.Errorf("round %d, writer %d: %q is there and %s was acknowledged", round, writer, found[writer], told)
			}
		}
	}
}
