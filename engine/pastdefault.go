package engine

// pastDefault is a former default branch.
type pastDefault struct {
	Name string `json:"name"`
	// Until is the position of the journal at which another branch took its place.
	Until uint64 `json:"until"`
}

// pastDefaultsMax bounds the former default branches that a record names, of which the oldest go.
const pastDefaultsMax = 100

// replaceDefault makes a branch the default branch, from a position of the journal on.
func (r *record) replaceDefault(name string, from uint64) {
	if r.DefaultBranch != name {
		r.PastDefaults = append(r.PastDefaults, pastDefault{r.DefaultBranch, from})
		r.PastDefaults = r.PastDefaults[max(len(r.PastDefaults)-pastDefaultsMax, 0):]
	}
	r.DefaultBranch = name
}

// defaultAt returns the default branch as of a position of the journal.
func (r *record) defaultAt(sequence uint64) string {
	for _, former := range r.PastDefaults {
		if sequence < former.Until {
			return former.Name
		}
	}
	return r.DefaultBranch
}
