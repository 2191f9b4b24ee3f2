package fair

// Taken returns how many turns requests and computations have.
func (p *Processors) Taken() (requests, computations int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests.held, p.computes.held
}
