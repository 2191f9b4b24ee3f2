package refs

import (
	"context"
	"testing"
	"testing/synctest"

	"packhorse/odb/kv"
)

// readStore is a store in which nothing is found.
type readStore struct{ kv.Store }

func (readStore) Read(context.Context, kv.ReadSet) (kv.Rows, error) { return kv.Rows{}, nil }

// A panic while questions are answered wakes everybody, and the next question is answered again.
func TestPollerPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		p := &poller{keys: readStore{}}
		met := question{name: "q", met: func(kv.Rows) bool { return true }}
		panics := question{name: "q", met: func(kv.Rows) bool { panic("met") }}
		first, leaveFirst := p.ask(met)
		second, leaveSecond := p.ask(panics)
		<-first
		<-second
		third, leaveThird := p.ask(met)
		<-third
		leaveFirst()
		leaveSecond()
		leaveThird()
	})
}
