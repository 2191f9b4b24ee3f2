package ingest_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// TestIngestTakesWhatIsFree pushes a file of 9 MiB for a request that was admitted with 2 MiB. It
// takes a share of the free memory, does not wait when there is none, and spills to disk before the
// entry ends.
func TestIngestTakesWhatIsFree(t *testing.T) {
	t.Parallel()
	const size, admitted, capacity = 9 << 20, 2 << 20, 128 << 20
	content := odbtest.Noise(rand.New(rand.NewPCG(1, 1)), size)
	var packed bytes.Buffer
	w := packtest.NewWriter(&packed, 1, pack.LevelFast)
	if _, err := w.WriteWhole(object.TypeBlob, content); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want, err := object.Hash(object.TypeBlob, content)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ others, total int64 }{
		"all is free":     {0, admitted + (capacity/2-admitted)/4*3},
		"nothing is free": {capacity/2 - admitted, admitted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := odbtest.NewPool(t, odb.Options{})
			q := fair.NewQueue(fair.Options{Capacity: capacity, Waiting: 10, Wait: time.Hour})
			tenant := fair.Tenant{Org: "a"}
			for _, amount := range []int64{admitted, test.others} {
				release, err := q.Acquire(t.Context(), tenant, 0, amount)
				h.Must(err)
				defer release()
			}
			var holding fair.Holding
			holding.Begin(q, tenant, admitted)
			defer holding.Close()
			half := packed.Bytes()[:packed.Len()/2]
			spilled := 0
			source := io.MultiReader(bytes.NewReader(half), probe(func() {
				names, err := h.FS.List("files/incoming/test")
				h.Must(err)
				for _, name := range names {
					if strings.HasSuffix(name, "~") {
						spilled++
					}
				}
			}), bytes.NewReader(packed.Bytes()[len(half):]))
			v := h.View()
			in, err := ingest.Read(fair.Hold(t.Context(), &holding), v, source, ingest.Options{})
			h.Must(err)
			defer in.Close()
			if got := holding.Total(); got != test.total {
				t.Errorf("it holds %d, want %d", got, test.total)
			}
			if used, _ := q.State(); used != test.others+test.total {
				t.Errorf("%d are held in all, want %d", used, test.others+test.total)
			}
			if spilled != 1 {
				t.Errorf("%d files in the midst of the pack, want 1", spilled)
			}
			quarantine, _, err := in.Resolve(t.Context(), nil)
			h.Must(err)
			defer func() { h.Must(quarantine.Close()) }()
			if ok, err := quarantine.View().Has(t.Context(), want); !ok || err != nil {
				t.Errorf("Has(%s): %v, %v", want, ok, err)
			}
		})
	}
}

// probe is an empty reader that calls a function when it is read.
type probe func()

func (p probe) Read([]byte) (int, error) {
	p()
	return 0, io.EOF
}
