package inorder_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"packhorse/odb/inorder"
	"packhorse/odb/rescue"
)

// TestWorkers takes results out of turn, and adds items that follow from results.
func TestWorkers(t *testing.T) {
	t.Parallel()
	for _, options := range []inorder.Options{{}, {Workers: 1, Ahead: 1}, {Workers: 8, Ahead: 2}} {
		workers := inorder.Start(t.Context(), options, double)
		var tasks []*inorder.Task[int, int]
		for i := range 50 {
			tasks = append(tasks, workers.Add(t.Context(), i))
		}
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(tasks)) {
			first, err := tasks[i].Wait(t.Context())
			if err != nil || *first != 2*i {
				t.Fatalf("%+v: item %d gives %v, %v", options, i, first, err)
			}
			second, err := workers.Add(t.Context(), *first).Wait(t.Context())
			if err != nil || *second != 4*i {
				t.Fatalf("%+v: item %d gives %v, %v the second time", options, i, second, err)
			}
		}
		workers.Stop()
	}
}

// TestWorkersFail looks at tasks that end with an error, alone.
func TestWorkersFail(t *testing.T) {
	t.Parallel()
	workers := inorder.Start(t.Context(), inorder.Options{}, func(_ context.Context, i int) (int, error) {
		switch i {
		case 1:
			return 0, errBroken
		case 2:
			panic("over the limit")
		default:
			return i, nil
		}
	})
	defer workers.Stop()
	var tasks []*inorder.Task[int, int]
	for i := range 4 {
		tasks = append(tasks, workers.Add(t.Context(), i))
	}
	for i, task := range tasks {
		_, err := task.Wait(t.Context())
		_, isPanic := errors.AsType[*rescue.PanicError](err)
		if errors.Is(err, errBroken) != (i == 1) || isPanic != (i == 2) || (err == nil) != (i%3 == 0) {
			t.Errorf("item %d ends with %v", i, err)
		}
	}
}

// TestWorkersStop abandons tasks: those that have begun end, the others never begin.
func TestWorkersStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan int, 10)
	workers := inorder.Start(ctx, inorder.Options{Workers: 1, Ahead: 4}, func(ctx context.Context, i int) (int, error) {
		begun <- i
		<-ctx.Done()
		return i, nil
	})
	var tasks []*inorder.Task[int, int]
	for i := range 4 {
		tasks = append(tasks, workers.Add(t.Context(), i))
	}
	<-begun
	impatient, leave := context.WithCancel(t.Context())
	leave()
	if _, err := tasks[0].Wait(impatient); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait without patience ends with %v", err)
	}
	cancel()
	workers.Stop()
	if len(begun) != 0 {
		t.Errorf("item %d was begun", <-begun)
	}
	for i, task := range tasks {
		if _, err := task.Wait(t.Context()); errors.Is(err, context.Canceled) != (i > 0) {
			t.Errorf("item %d ends with %v", i, err)
		}
	}
}
