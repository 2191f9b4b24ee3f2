package fair_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// Sleep takes as long as it is told, or until its context ends.
func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		for _, test := range []struct {
			sleep, until, took time.Duration
			err                error
		}{
			{time.Second, time.Minute, time.Second, nil},
			{0, time.Minute, 0, nil},
			{-1, time.Minute, 0, nil},
			{time.Minute, time.Second, time.Second, context.DeadlineExceeded},
			{time.Minute, 0, 0, context.DeadlineExceeded},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), test.until)
			err := fair.Sleep(ctx, test.sleep)
			cancel()
			if took := time.Since(begun); !errors.Is(err, test.err) || took != test.took {
				t.Errorf("%v of at most %v: %v after %v", test.sleep, test.until, err, took)
			}
			begun = time.Now()
		}
	})
}
