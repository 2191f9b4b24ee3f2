package rescue_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

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
