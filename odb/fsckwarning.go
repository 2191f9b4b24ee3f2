package odb

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// warn adds a warning, which is no damage, to the report.
func (f *fsck) warn(layer segment.LayerID, id object.ID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.WarningCount++
	if len(f.report.Warnings) < fsckProblemsMax {
		f.report.Warnings = append(f.report.Warnings, FsckProblem{Layer: layer, Object: id, Err: err})
	}
}

// judgedMax bounds the files that a check remembers by the names under which git reads them.
const judgedMax = 1 << 16

// isJudged reports whether a file has been checked, and remembers it.
func (f *fsck) isJudged(found Dotfile) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.judged[found]; ok {
		return true
	}
	if f.judged == nil || len(f.judged) >= judgedMax {
		f.judged = make(map[Dotfile]struct{})
	}
	f.judged[found] = struct{}{}
	return false
}

// checkContent applies git's rules to an object. Its bytes are the received ones, so it reports
// violations as warnings.
func (c *objectChecker) checkContent(ctx context.Context, at Location, t object.Type, data []byte) error {
	var found []namedDotfile
	err := object.Check(t, data)
	if t == object.TypeTree {
		err = object.CheckTree(data,
			object.TreeCheck{Found: func(name []byte, file object.Dotfile, mode object.Mode, id object.ID) {
				found = append(found, namedDotfile{NewDotfile(file, mode, id), name})
			}})
	}
	if err != nil {
		c.fsck.warn(at.layer.layerID(), at.id, fmt.Errorf("git's fsck objects to it: %w", err))
	}
	for i := range found {
		if c.fsck.isJudged(found[i].Dotfile) {
			continue
		}
		err := c.view.CheckDotfile(ctx, found[i].Dotfile)
		if IsObjection(err) {
			c.fsck.warn(at.layer.layerID(), found[i].ID,
				fmt.Errorf("git's fsck objects to it as the %q of tree %s: %w", found[i].name, at.id, err))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// IsObjection reports whether an error says that git's checks refuse an object that can be read.
func IsObjection(err error) bool {
	_, ok := errors.AsType[*object.CheckError](err)
	return ok || errors.Is(err, object.ErrNameTooLong)
}
