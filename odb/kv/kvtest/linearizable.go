package kvtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"packhorse/odb/kv"
)

// call is one operation on one key; an empty value means absent.
type call struct {
	kind     callKind
	key      string
	old, new string
}

type callKind uint8

const (
	callGet callKind = iota
	callPut
	callDelete
	callDeleteRange
	callSwap
)

// kinds is how often each is called.
var kinds = []callKind{
	callGet, callGet, callGet, callPut, callDelete, callDeleteRange, callDeleteRange, callSwap, callSwap, callSwap,
}

// result is the value that a get returned, or whether a swap took place.
type result struct {
	value   string
	swapped bool
}

// registers is the model of a correct store: each key is an independent register.
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		for _, operation := range history {
			key := operation.Input.(call).key
			byKey[key] = append(byKey[key], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		now, asked, got := state.(string), input.(call), output.(result)
		switch asked.kind {
		case callGet:
			return got.value == now, now
		case callSwap:
			if !got.swapped {
				return now != asked.old, now
			}
			return now == asked.old, asked.new
		default:
			return true, asked.new
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// testLinearizable records the operations of goroutines on few keys, with and without
// preconditions, and searches for an order that explains the results. It fails when a write without
// preconditions slips between the check and the application of another batch.
func testLinearizable(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	var mu sync.Mutex
	var history []porcupine.Operation
	var group sync.WaitGroup
	begin := time.Now()
	for client := range goroutines {
		group.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(client)))
			last := make(map[string]string) // the last reads of this client, so that some swaps succeed
			for i := range 300 {
				asked := call{key: fmt.Sprintf("key/%d", random.IntN(3)), kind: kinds[random.IntN(len(kinds))]}
				asked.old = last[asked.key]
				if asked.kind == callPut || asked.kind == callSwap {
					asked.new = fmt.Sprintf("%d/%d", client, i)
				}
				start := time.Since(begin)
				got, err := asked.do(t, store)
				if err != nil {
					t.Error(err)
					return
				}
				operation := porcupine.Operation{
					ClientId: client, Input: asked, Output: got,
					Call: start.Nanoseconds(), Return: time.Since(begin).Nanoseconds(),
				}
				if last[asked.key] = asked.new; asked.kind == callGet {
					last[asked.key] = got.value
				}
				mu.Lock()
				history = append(history, operation)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	// Without a limit of time: few calls overlap, and a machine that stops for a minute says nothing
	// about the store.
	if !porcupine.CheckOperations(registers, history) {
		t.Error("no order of the operations explains what the clients saw")
	}
}

// do performs the call.
func (c call) do(t *testing.T, store kv.Store) (result, error) {
	t.Helper()
	key := []byte(c.key)
	batch := kv.NewBatch()
	switch c.kind {
	case callGet:
		value, err := store.Get(t.Context(), key)
		if errors.Is(err, kv.ErrNotFound) {
			err = nil
		}
		return result{value: string(value)}, err
	case callPut:
		batch.Put(key, []byte(c.new))
	case callDelete:
		batch.Delete(key)
	case callDeleteRange:
		batch.DeleteRange(key, append(key, 0))
	case callSwap:
		if c.old == "" {
			batch.RequireAbsent(key)
		} else {
			batch.Require(key, []byte(c.old))
		}
		// More preconditions prolong the time between the check of its key and the application of the
		// batch.
		for i := range 300 {
			batch.RequireAbsent(fmt.Appendf(nil, "never written/%d", i))
		}
		batch.Put(key, []byte(c.new))
	}
	_, err := store.Apply(t.Context(), batch)
	if errors.Is(err, kv.ErrConflict) {
		return result{}, nil
	}
	return result{swapped: true}, err
}
