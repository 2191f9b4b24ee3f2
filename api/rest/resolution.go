package rest

import (
	"packhorse/engine"
	"packhorse/engine/merge"
	"packhorse/pack/object"
)

// resolution says what becomes of a path that conflicts.
type resolution struct {
	Path        string  `json:"path"`
	Side        string  `json:"side"`
	Content     *string `json:"content"`
	BlobSHA     string  `json:"blob_sha"`
	Mode        string  `json:"mode"`
	Delete      bool    `json:"delete"`
	CommitIndex int     `json:"commit_index"` // of cherry-pick and revert
}

// resolutions turns those of a body into those of a request; errors name the malformed field.
func resolutions(given []resolution) ([]engine.Resolution, error) {
	var told []engine.Resolution
	for i, g := range given {
		r := engine.Resolution{
			Path: g.Path, Side: engine.ResolutionSide(g.Side), Content: g.Content, Delete: g.Delete, Pick: g.CommitIndex,
		}
		if g.BlobSHA != "" {
			id, err := object.ParseID(g.BlobSHA)
			if err != nil || id.IsZero() {
				return nil, badRequest("resolutions[%d].blob_sha: expected the 40 hexadecimal digits of a blob, got %.60q", i,
					g.BlobSHA)
			}
			r.Blob = id
		}
		var err error
		if r.Mode, err = modeOf(g.Mode); err != nil {
			return nil, badRequest("resolutions[%d].mode: %v", i, err)
		}
		told = append(told, r)
	}
	return told, nil
}

// addUnresolvable adds the paths of conflicts that no resolution can be given for, if there are
// any.
func addUnresolvable(fields map[string]any, conflicts []merge.Conflict) {
	var paths []merge.Conflict
	for _, c := range conflicts {
		if !c.Staged() {
			paths = append(paths, c)
		}
	}
	if len(paths) > 0 {
		fields["unresolvable_paths"] = engine.ConflictPaths(paths)
	}
}
