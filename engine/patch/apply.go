package patch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Apply applies the patch to the tree root, zero for an empty one, writes the new contents into q
// and returns the changes. It may be called again for another tree; contents of earlier calls stay
// in q.
//
// A patch that does not fit is an outcome. Errors: [ErrTooLarge], and those of the stores.
func (p *Patch) Apply(ctx context.Context, q *odb.Quarantine, root object.ID) (Outcome, error) {
	a := &applier{
		Patch:   p,
		objects: q,
		base:    base{view: q.View().Linked(), root: root},
		paths:   make(map[string]*state),
		links:   make(map[string]linkChange),
	}
	a.prepare()
	results := make([]result, len(p.files))
	for i, f := range p.files {
		reason, err := a.apply(ctx, f, &results[i])
		if limit, ok := errors.AsType[*LimitError](err); ok {
			return Outcome{}, &LimitError{Path: f.name(), Limit: limit.Limit, Max: limit.Max}
		}
		if err != nil {
			return Outcome{}, err
		}
		if reason != "" {
			return Outcome{Rejected: &Rejection{Path: f.name(), Reason: reason}}, nil
		}
	}
	return a.outcome(ctx, results)
}

// name is how a part is called in messages.
func (f *file) name() string {
	if f.oldName != "" {
		return f.oldName
	}
	return f.newName
}

// applier holds a patch against a tree.
type applier struct {
	*Patch
	objects *odb.Quarantine
	base    base

	// paths holds what parts have made, or will make, of a path. Parts for one file build on each
	// other by it.
	paths map[string]*state
	// links holds where the patch makes and removes symbolic links.
	links map[string]linkChange

	work int64
}

// state is the state of a path in the patch so far: a result, or its absence, done or announced.
type state struct {
	result   *result
	toRemove bool
	removed  bool
}

// linkChange describes the change of a symbolic link at a path.
type linkChange struct{ goes, stays bool }

// result is the result of a part for its file.
type result struct {
	oldName, newName string
	isNew, isCopy    bool
	isDelete         bool
	mode             object.Mode
	content          content
}

// prepare notes what later parts will do, since earlier ones may depend on it: git's own patches
// swap names, and change the type of a file by removing it first.
func (a *applier) prepare() {
	for i := range a.files {
		f := &a.files[i]
		if f.newName == "" || f.isRename {
			a.paths[f.oldName] = &state{toRemove: true}
		}
		if f.oldName != "" && object.Mode(f.oldMode).IsSymlink() && (f.isRename || f.isDelete != no) {
			change := a.links[f.oldName]
			change.goes = true
			a.links[f.oldName] = change
		}
		if f.newName != "" && object.Mode(f.newMode).IsSymlink() {
			change := a.links[f.newName]
			change.stays = true
			a.links[f.newName] = change
		}
	}
}

// apply applies one part to the tree as the previous parts have changed it. It returns the reason
// why the part does not apply, "" if it does.
func (a *applier) apply(ctx context.Context, f file, r *result) (reason string, err error) {
	previous, reason := a.previous(&f)
	if reason != "" {
		return reason, nil
	}
	old, reason, err := a.preimage(ctx, &f, previous)
	if reason != "" || err != nil {
		return reason, err
	}
	if reason, err := a.checkNew(ctx, &f); reason != "" || err != nil {
		return reason, err
	}
	if f.isDelete == no {
		if reason, err := a.behindLink(ctx, f.newName); reason != "" || err != nil {
			return reason, err
		}
	}
	*r = result{
		oldName: f.oldName, newName: f.newName, isNew: f.isNew == yes, isCopy: f.isCopy, isDelete: f.isDelete == yes,
		mode: object.Mode(f.newMode),
	}
	if r.content, reason, err = a.patched(ctx, &f, old); reason != "" || err != nil {
		return reason, err
	}
	if f.newName != "" {
		a.paths[f.newName] = &state{result: r}
	}
	if f.newName == "" || f.isRename {
		a.paths[f.oldName] = &state{removed: true}
	}
	if r.isDelete && r.content.size > 0 {
		return "the patch removes it and leaves contents", nil
	}
	return "", nil
}

// previous finds the result of an earlier part that f builds on, nil for none. Renames and copies
// mean the tree as it was.
func (a *applier) previous(f *file) (*result, string) {
	s := a.paths[f.oldName]
	switch {
	case f.oldName == "", f.isRename, f.isCopy, s == nil, s.toRemove:
		return nil, ""
	case s.removed:
		return nil, "an earlier part of the patch renames or deletes it"
	}
	return s.result, ""
}

// preimage finds the content that f applies to, and fills in the fields that its header omits.
func (a *applier) preimage(ctx context.Context, f *file, previous *result) (old content, reason string, err error) {
	if f.oldName == "" {
		return content{}, "", nil
	}
	var mode object.Mode
	if previous != nil {
		mode, old = previous.mode, previous.content
	} else {
		e, ok, err := a.base.file(ctx, f.oldName)
		if err != nil {
			return old, "", err
		}
		if !ok && f.isNew != open {
			return old, "it does not exist", nil
		}
		if !ok {
			f.isNew, f.isDelete, f.oldName = yes, no, ""
			return old, "", nil
		}
		mode = e.mode
		if old, err = a.stored(ctx, e); err != nil {
			return old, "", err
		}
	}
	if f.isNew == open {
		f.isNew = no
	}
	if f.oldMode == 0 {
		f.oldMode = uint32(mode)
	}
	if (mode^object.Mode(f.oldMode))&object.ModeMask != 0 {
		return old, fmt.Sprintf("it has the mode %s, and the patch expects %06o", mode, f.oldMode), nil
	}
	if f.newMode == 0 && f.isDelete == no {
		f.newMode = uint32(mode)
	}
	return old, "", nil
}

// checkNew checks the name and the mode that f gives.
func (a *applier) checkNew(ctx context.Context, f *file) (reason string, err error) {
	if f.newName != "" && (f.isNew == yes || f.isRename || f.isCopy) {
		s := a.paths[f.newName]
		if s == nil || !s.toRemove && !s.removed {
			_, ok, err := a.base.file(ctx, f.newName)
			if err != nil {
				return "", err
			}
			if ok {
				return fmt.Sprintf("%s exists already", f.newName), nil
			}
		}
		if f.newMode == 0 {
			f.newMode = f.oldMode
			if f.isNew == yes {
				f.newMode = uint32(object.ModeBlob)
			}
		}
	}
	if f.newName != "" && f.oldName != "" {
		if f.newMode == 0 {
			f.newMode = f.oldMode
		}
		if object.Mode(f.oldMode^f.newMode)&object.ModeMask != 0 {
			return fmt.Sprintf("the mode %06o cannot become %06o", f.oldMode, f.newMode), nil
		}
	}
	if object.Mode(f.newMode).IsTree() && f.newName != "" {
		return fmt.Sprintf("%06o is the mode of a folder", f.newMode), nil
	}
	return "", nil
}

// behindLink says whether a folder on the way to a path is a symbolic link.
func (a *applier) behindLink(ctx context.Context, path string) (reason string, err error) {
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path, '/') {
		path = path[:i]
		change := a.links[path]
		isLink := change.stays
		if !isLink && !change.goes {
			e, ok, err := a.base.file(ctx, path)
			if err != nil {
				return "", err
			}
			isLink = ok && e.mode.IsSymlink()
		}
		if isLink {
			return fmt.Sprintf("it lies behind the symbolic link %s", path), nil
		}
	}
	return "", nil
}
