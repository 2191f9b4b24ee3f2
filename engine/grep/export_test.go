package grep

import (
	"context"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Text searches one text as [Search] does a file, and reports whether there is more than fits one
// page.
func Text(ctx context.Context, text []byte, o Options) (lines []Line, more bool, err error) {
	o.setDefaults()
	var scan scanner
	scan.reset(&o, o.From.Line)
	if !isBinary(text) {
		err = searchText(ctx, &scan, text)
	}
	return scan.lines, scan.full, err
}

// MayMatch reports whether a search that remembers a text would read it for the pattern.
func (p *Pattern) MayMatch(text []byte) bool {
	r := recollection{known: NewTrigrams(1 << 30), wanted: p.trigrams}
	r.room.Store(1)
	return p.trigrams == nil || r.learn(object.ID{}, text, isBinary(text))
}

// Spares returns how many of some files a search would not read.
func (t *Trigrams) Spares(pool odb.PoolID, files []object.ID, p *Pattern) (count int) {
	var r recollection
	r.begin(t, pool, p)
	for _, id := range files {
		if _, mayMatch, err := r.recall(context.Background(), id); err == nil && !mayMatch {
			count++
		}
	}
	return count
}

// Bytes returns what is remembered, in bytes.
func (t *Trigrams) Bytes() int64 { return t.known.Bytes() }

// IsCostly reports whether the pattern has turned out to have too many states for an automaton.
func (p *Pattern) IsCostly() bool { return p.costly.Load() }
