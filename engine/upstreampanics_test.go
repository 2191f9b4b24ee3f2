package engine_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/odbtest"
	"packhorse/odb/rescue"
)

// TestPanicsInSyncs makes the stores panic in one call after the other below a sync that a request
// asks for, and below one that sends what was pushed: the panic is the error of the request, or is
// logged, and is told to nobody else. The sync is tried again soon, and then both sides are equal.
func TestPanicsInSyncs(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(s *trappedSync, n int64) error{
		"pull": func(s *trappedSync, n int64) error {
			s.far.commit("main", fmt.Sprint(n))
			s.trap.Set(n)
			return rescue.Do(func() error {
				_, err := s.repo.PullUpstream(s.t.Context(), ada, "")
				return err
			})
		},
		"push": func(s *trappedSync, n int64) error {
			var once sync.Once
			s.far.intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				once.Do(func() { s.trap.Set(n) }) // not in the calls of the commit
				next.ServeHTTP(w, r)
			})
			s.commit("main", "", fmt.Sprint(n))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTrappedSync(t)
			met := 0
			for n := int64(1); ; n += 1 + n/2 {
				s.log.Take()
				err := work(s, n)
				s.rest()
				sprung := s.trap.Take()
				if panicked, ok := errors.AsType[*rescue.PanicError](err); ok && panicked.Value == odbtest.Trapped {
					err = work(s, 0)
					s.rest()
				} else if text := s.log.Take(); sprung && !strings.Contains(text, "panic: "+odbtest.Trapped) {
					t.Errorf("a panic at call %d is not logged: %s", n, text)
				}
				must(t, err)
				s.equal(s.far)
				if state := s.settled(); state.LastError != "" {
					t.Errorf("after a panic at call %d: %+v", n, state)
				}
				if !sprung {
					break
				}
				met++
			}
			if met < 5 {
				t.Errorf("%d panics", met)
			}
		})
	}
}

// trappedSync is a host over stores with a trap, and a repository with an upstream.
type trappedSync struct {
	*near
	trap odbtest.Trap
	log  *odbtest.Log
	far  *far
	repo *engine.Repository
}

func newTrappedSync(t *testing.T) *trappedSync {
	t.Helper()
	s := &trappedSync{log: &odbtest.Log{}, far: newFar(t)}
	s.far.commit("main", "first")
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	config := s.far.config()
	config.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	host := enginetest.OpenOver(t, s.trap.Keys(keys), s.trap.Files(files), config)
	t.Cleanup(func() { must(t, host.Close(t.Context())) })
	s.near = &near{t: t, host: host}
	s.repo = s.create(engine.UpstreamBase{})
	s.equal(s.far)
	s.rest()
	return s
}

// rest waits until no sync is under way or due, without a call of the stores.
func (s *trappedSync) rest() {
	s.t.Helper()
	eventually(s.t, "nothing is to be synced", func() bool {
		stats := s.host.UpstreamStats()
		return stats.Running == 0 && stats.Waiting == 0
	})
}
