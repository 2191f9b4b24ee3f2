package fair

import (
	"context"
	"slices"
	"time"
)

// syncs are the syncs of one organization, under way and waiting.
type syncs struct {
	running int
	waiting []chan struct{} // closed when the sync may begin
}

// Sync runs work, which writes and syncs files, and gives the turn back meanwhile. While requests
// of other organizations are served, an organization syncs one after the other: many at once wait
// for each other in the file system, and let everybody wait for them. Its error is that of work, or
// that of ctx.
func Sync(ctx context.Context, work func() error) error {
	a, _ := ctx.Value(accountKey{}).(*Account)
	if a == nil {
		return work()
	}
	return Rest(ctx, func() error {
		if err := a.processors.beginSync(ctx, a.tenant); err != nil {
			return err
		}
		defer a.processors.endSync(a.tenant)
		return work()
	})
}

func (p *Processors) beginSync(ctx context.Context, t Tenant) error {
	p.mu.Lock()
	s := p.syncing[t.Org]
	if s == nil {
		s = new(syncs)
		if p.syncing == nil {
			p.syncing = make(map[string]*syncs)
		}
		p.syncing[t.Org] = s
	}
	if s.running == 0 || len(s.waiting) == 0 && !p.sharesLocked(t.Org, time.Now()) {
		s.running++
		p.mu.Unlock()
		return nil
	}
	begin := make(chan struct{})
	s.waiting = append(s.waiting, begin)
	p.mu.Unlock()
	select {
	case <-begin:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	at := slices.Index(s.waiting, begin)
	if at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	p.mu.Unlock()
	if at < 0 { // it may begin
		p.endSync(t)
	}
	return ctx.Err()
}

// endSync lets the next one begin, or all that wait if nobody else is served any more.
func (p *Processors) endSync(t Tenant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.syncing[t.Org]
	s.running--
	for alone := !p.sharesLocked(t.Org, time.Now()); len(s.waiting) > 0 && (s.running == 0 || alone); s.running++ {
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
	if s.running == 0 {
		delete(p.syncing, t.Org)
	}
}
