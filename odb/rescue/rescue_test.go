package rescue_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/rescue"
)

func boom() error { panic("boom") }

// wantPanic checks that err is a panic with its origin.
func wantPanic(t *testing.T, err error) {
	t.Helper()
	p, ok := errors.AsType[*rescue.PanicError](err)
	if !ok || p.Value != "boom" || !strings.Contains(p.Error(), "boom") ||
		!strings.Contains(p.Error(), "rescue_test.boom") {
		t.Errorf("got %v", err)
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	wantPanic(t, rescue.Do(boom))
	if err := rescue.Do(func() error { return io.EOF }); err != io.EOF { //nolint:errorlint // it is returned as it is
		t.Errorf("got %v", err)
	}
	if err := rescue.Do(func() error { panic(io.ErrShortWrite) }); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

func TestGo(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	var failed error
	rescue.Go(&running, boom, func(err error) { failed = err })
	rescue.Go(&running, func() error { return nil }, func(err error) { t.Errorf("got %v", err) })
	running.Wait()
	wantPanic(t, failed)
	wantPanic(t, <-rescue.Beside(boom))
}

func TestAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures := make(chan error, 3)
		note := func(err error) { failures <- err }
		rescue.After(time.Minute, boom, note)
		rescue.After(time.Minute, func() error { return nil }, note)
		rescue.After(time.Minute, boom, note).Stop()
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		if len(failures) != 0 {
			t.Errorf("got %v before the time", <-failures)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(failures) != 1 {
			t.Fatalf("%d failures", len(failures))
		}
		wantPanic(t, <-failures)
	})
}

// TestGroup lets one goroutine panic while another one waits for the group's context.
func TestGroup(t *testing.T) {
	t.Parallel()
	group, ctx := rescue.WithContext(t.Context())
	group.Go(func() error {
		<-ctx.Done()
		return ctx.Err()
	})
	group.Go(boom)
	wantPanic(t, group.Wait())
	wantPanic(t, context.Cause(ctx))

	group, ctx = rescue.WithContext(t.Context())
	group.Go(func() error { return nil })
	if err := group.Wait(); err != nil || ctx.Err() == nil {
		t.Errorf("got %v, and a context that says %v", err, ctx.Err())
	}
}

// TestKeep has work fail, panic and end: it is begun again after a rest each time but the last, and
// not at all when its context has ended.
func TestKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ends := []func() error{boom, func() error { return io.EOF }, func() error { return nil }}
		begun := time.Now()
		var running sync.WaitGroup
		var failed []error
		rescue.Keep(ctx, &running, time.Hour, func(context.Context) error {
			end := ends[0]
			ends = ends[1:]
			return end()
		}, func(err error) { failed = append(failed, err) })
		running.Wait()
		if len(ends) != 0 || len(failed) != 2 || time.Since(begun) != 2*time.Hour {
			t.Fatalf("%d ends are left after %v, and these were told: %v", len(ends), time.Since(begun), failed)
		}
		wantPanic(t, failed[0])

		count := 0
		rescue.Keep(ctx, &running, time.Hour, func(context.Context) error {
			count++
			return boom()
		}, func(error) { cancel() })
		running.Wait()
		if count != 1 || time.Since(begun) != 2*time.Hour {
			t.Errorf("it was begun %d times, until %v", count, time.Since(begun))
		}
	})
}
