package api

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/odb/fair"
)

// TestWireIsPaid checks that what a request sends and receives delays the requests of its
// organization.
func TestWireIsPaid(t *testing.T) {
	t.Parallel()
	const (
		size = 20_000 << 10          // 5 ms
		owed = 10 * time.Millisecond // of turns that share the processor with another one
	)
	send := func(x *transfer, count int) error {
		out := &answerWriter{x: x, w: io.Discard}
		for piece := make([]byte, 1000); count > 0; count -= len(piece) {
			if _, err := out.Write(piece[:min(count, len(piece))]); err != nil {
				return err
			}
		}
		return nil
	}
	receive := func(x *transfer, count int) error {
		x.body = body{
			conn: x.conn, stream: bytes.NewReader(make([]byte, count)), announced: int64(count), max: size, cost: &x.cost,
		}
		_, err := io.Copy(io.Discard, &x.body)
		return err
	}
	for _, test := range []struct {
		name  string
		carry func(x *transfer, count int) error
		count int
		delay time.Duration
	}{
		{"short answer", send, turnBytes, 0},
		{"long answer", send, turnBytes + size, owed},
		{"body", receive, size, owed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				processors := fair.NewProcessors(1)
				begin := func(org string) *fair.Account {
					account := processors.Account(fair.Tenant{Org: org, Repo: "r", Token: "t"}, 0)
					if err := account.Begin(t.Context(), true, 0); err != nil {
						t.Error(err)
					}
					return account
				}
				beyond := begin("c") // has the turn beyond the processors
				holder := begin("b")
				x := &transfer{
					ctx: t.Context(), conn: &conn{}, answer: answer{size: -1},
					account: processors.Account(fair.Tenant{Org: "a", Repo: "r", Token: "t"}, 0),
				}
				x.cost.x = x
				if err := test.carry(x, test.count); err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				var came time.Time
				all.Go(func() {
					account := begin("a")
					came = time.Now()
					account.End()
				})
				for range 20 {
					all.Go(func() {
						account := begin("b")
						time.Sleep(time.Millisecond)
						account.End()
					})
				}
				synctest.Wait()
				began := time.Now()
				holder.End()
				all.Wait()
				beyond.End()
				if delay := came.Sub(began); delay < test.delay || delay > test.delay+2*time.Millisecond {
					t.Errorf("the next request of the organization waits for %v, want %v", delay, test.delay)
				}
			})
		})
	}
}
