package pack

// Skip consumes what is unread of the current entry, as Next does, so that Entry is complete.
func (r *Reader) Skip() error {
	if r.err != nil {
		return r.err
	}
	if err := r.skip(); err != nil {
		return r.fail(r.entryError(err))
	}
	return nil
}
