package webhook

import (
	"context"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Backlog is what the hooks of an organization have not been sent of one repository, added up.
type Backlog struct {
	Parked int    `json:"parked"` // events that failed and are tried again
	Behind uint64 `json:"behind"` // transactions whose events have not been dealt with, at most
	Dead   int    `json:"dead"`   // dead letters
	// LastError is that of the parked event that has been tried most often, or else of a dead letter.
	LastError string `json:"last_error,omitempty"`
}

// Backlogs are the hooks of all organizations as they were when it was made.
type Backlogs struct {
	keys  kv.Store
	hooks map[string][]hookID // by organization
}

// Backlogs reads the hooks that have had something to send: their number bounds its memory. It
// works whether or not events are delivered.
func (d *Deliverer) Backlogs(ctx context.Context) (*Backlogs, error) {
	all := &Backlogs{keys: d.KV, hooks: make(map[string][]hookID)}
	for hook, err := range scan[hookRow](ctx, d.KV, []byte{table, kindHook}) {
		if err != nil {
			return nil, err
		}
		org := hook.row.Org
		all.hooks[org] = append(all.hooks[org], newHookID(org, hook.row.URL))
	}
	return all, nil
}

// Has reports whether an organization has a hook.
func (b *Backlogs) Has(org string) bool { return len(b.hooks[org]) > 0 }

// Of returns the backlog of a repository. Where nothing waits it takes one read.
func (b *Backlogs) Of(ctx context.Context, org string, repo refs.RepoID) (told Backlog, err error) {
	hooks := b.hooks[org]
	var set kv.ReadSet
	for _, hook := range hooks {
		set.Keys = append(set.Keys, streamKey(hook, repo))
		for _, kind := range []byte{kindParked, kindDead, kindWaiting} {
			start := append(hookPrefix(kind, hook), repo[:]...)
			set.Ranges = append(set.Ranges, kv.ScanOptions{Start: start, End: kv.PrefixEnd(start), Limit: 1})
		}
	}
	if len(hooks) == 0 {
		return told, nil
	}
	rows, err := b.keys.Read(ctx, set)
	if err != nil {
		return told, err
	}
	tried := 0
	for i := range hooks {
		if rows.Values[i] != nil {
			row, err := decodeRow[stream](rows.Values[i])
			if err != nil {
				return told, err
			}
			told.Behind += row.Last + 1 - row.Next.Sequence
		}
		if of := 3*i + 2; len(rows.Pages[of].Pairs) > 0 {
			for row, err := range walkWaiting(ctx, b.keys, set.Ranges[of].Start) {
				if err != nil {
					return told, err
				}
				told.Behind += row.count()
			}
		}
		for kind, count := range []*int{&told.Parked, &told.Dead} {
			if len(rows.Pages[3*i+kind].Pairs) == 0 {
				continue
			}
			for row, err := range scan[delivery](ctx, b.keys, set.Ranges[3*i+kind].Start) {
				if err != nil {
					return told, err
				}
				*count++
				switch isParked := count == &told.Parked; {
				case isParked && row.row.Attempts > tried:
					tried, told.LastError = row.row.Attempts, row.row.Error
				case !isParked && tried == 0:
					told.LastError = row.row.Error
				}
			}
		}
	}
	return told, nil
}
