package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/engine/merge"
	"packhorse/odb"
	"packhorse/pack/object"
)

// ErrNoConflict says that a path that was to be resolved does not conflict.
var ErrNoConflict = errors.New("engine: no such conflict")

// Resolution says what becomes of a path that conflicts. Exactly one of Side, Content, Blob and
// Delete is set.
type Resolution struct {
	Path string
	// Side takes the version that a side has at the path; where it has none, the file is removed.
	Side ResolutionSide
	// Content is the new content, and Blob a stored one.
	Content *string
	Blob    object.ID
	// Mode is that of a content; zero means that of the merged file, or of a plain file.
	Mode   object.Mode
	Delete bool
	// Pick is the index of the commit, where a request has several.
	Pick int
}

// ResolutionSide is a side of a conflict, in git's words: theirs is what is merged or picked.
type ResolutionSide string

// The sides.
const (
	BaseSide   ResolutionSide = "base"
	OursSide   ResolutionSide = "ours"
	TheirsSide ResolutionSide = "theirs"
)

// checkResolutions validates what can be judged without the repository. picks is how many commits
// the request has.
func checkResolutions(resolutions []Resolution, picks int) error {
	type key struct {
		path string
		pick int
	}
	seen := make(map[key]bool, len(resolutions))
	for i := range resolutions {
		s := &resolutions[i]
		count := 0
		for _, set := range []bool{s.Side != "", s.Content != nil, !s.Blob.IsZero(), s.Delete} {
			if set {
				count++
			}
		}
		switch {
		case s.Path == "":
			return invalid("resolutions[%d]: path is required", i)
		case count != 1:
			return invalid("resolutions[%d]: expected one of side, content, blob_sha and delete, got %d of them", i, count)
		case s.Side != "" && s.Side != BaseSide && s.Side != OursSide && s.Side != TheirsSide:
			return invalid("resolutions[%d].side: expected ours, theirs or base, got %.60q", i, string(s.Side))
		case s.Mode != 0 && (s.Side != "" || s.Delete):
			return invalid("resolutions[%d].mode: only with content or blob_sha", i)
		case s.Mode != 0 && !s.Mode.IsRegular() && !s.Mode.IsSymlink():
			return invalid("resolutions[%d].mode: expected 100644, 100755 or 120000", i)
		case s.Pick < 0 || s.Pick >= picks:
			return invalid("resolutions[%d].commit_index: expected a number from 0 to %d, got %d", i, picks-1, s.Pick)
		case seen[key{s.Path, s.Pick}]:
			return invalid("resolutions[%d]: path %.200q is resolved twice", i, s.Path)
		}
		seen[key{s.Path, s.Pick}] = true
	}
	return nil
}

// resolveConflicts applies the resolutions of a pick, or of a merge, to its result, which then has
// the conflicts that are left. It returns the stored blobs that the new tree relies on.
//
// Errors: [ErrNoConflict]; [ErrInvalid] for a conflict that has no version to choose from;
// [ErrNotFound] for a blob; merge.ErrInTheWay; merge.ErrTooLarge.
func resolveConflicts(
	ctx context.Context, view *odb.View, result *merge.Result, resolutions []Resolution, pick int,
) (needs []object.ID, err error) {
	conflicts := make(map[string]*merge.Conflict, len(result.Conflicts))
	for i := range result.Conflicts {
		if c := &result.Conflicts[i]; conflicts[c.Path] == nil || c.Staged() {
			conflicts[c.Path] = c
		}
	}
	versions := make(map[string]merge.Version)
	for i := range resolutions {
		s := &resolutions[i]
		if s.Pick != pick {
			continue
		}
		c := conflicts[s.Path]
		switch {
		case c == nil:
			return nil, noConflict(i, s.Path)
		case !c.Staged():
			return nil, invalid("resolutions[%d]: the conflict of %.200q, %s, cannot be resolved here", i, s.Path, c.Kind)
		}
		v, err := s.version(ctx, view, result, c)
		if err != nil {
			return nil, fmt.Errorf("resolutions[%d]: %w", i, err)
		}
		if !s.Blob.IsZero() {
			needs = append(needs, s.Blob)
		}
		versions[s.Path] = v
	}
	if len(versions) == 0 {
		return nil, nil
	}
	return needs, result.Resolve(ctx, versions)
}

func noConflict(index int, path string) error {
	return &failure{kind: ErrNoConflict, text: fmt.Sprintf("resolutions[%d]: path %.200q does not conflict", index, path)}
}

// version returns what a resolution puts at the path of a conflict.
func (s *Resolution) version(
	ctx context.Context, view *odb.View, result *merge.Result, c *merge.Conflict,
) (v merge.Version, err error) {
	switch {
	case s.Delete:
		return v, nil
	case s.Side != "":
		return c.Stages[map[ResolutionSide]int{BaseSide: 0, OursSide: 1, TheirsSide: 2}[s.Side]], nil
	case s.Content != nil:
		v.ID, err = result.AddBlob([]byte(*s.Content))
	default:
		var info odb.Info
		info, err = view.Asking().Stat(ctx, s.Blob)
		if errors.Is(err, odb.ErrNotFound) || err == nil && info.Type != object.TypeBlob {
			err = fail(ErrObjectNotFound, "blob_sha: there is no blob %s in this repository", s.Blob)
		}
		v.ID = s.Blob
	}
	if err != nil {
		return v, err
	}
	if v.Mode = s.Mode; v.Mode == 0 {
		there, err := result.Find(ctx, s.Path)
		if err != nil {
			return v, err
		}
		if v.Mode = object.ModeBlob; there.Mode.IsRegular() || there.Mode.IsSymlink() {
			v.Mode = there.Mode
		}
	}
	return v, nil
}
