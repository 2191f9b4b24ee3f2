package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// origin is where the base has what an operation writes, and what that was when [Plan.Prepare] last
// looked.
type origin struct {
	*Source
	node *node
	mode object.Mode
	id   object.ID
	// edited is the blob that the edits were applied to, zero for none, and result what they made of
	// it; the quarantine has that only while it has forgotten as often.
	edited, result object.ID
	forgotten      int
}

// originOf returns where op, which writes n, takes what it writes from the base, nil if it does
// not.
func (p *Plan) originOf(op *Operation, n *node) (*origin, error) {
	from := op.Source
	switch {
	case from == nil:
		return nil, nil
	case from.From == "" && !from.Move:
		return &origin{Source: from, node: n}, nil
	}
	at, err := p.walk(from.From, object.ModeTree, func(n *node) error {
		n.changes = n.changes || from.Move
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case at == n:
		return nil, &InvalidError{Path: from.From, Reason: "is moved or copied to itself"}
	case from.Move && (at.taken != nil || at.remove != nil):
		return nil, &InvalidError{Path: from.From, Reason: "is moved or deleted twice"}
	case from.Move:
		at.taken, at.changes = op, true
	}
	return &origin{Source: from, node: at}, nil
}

// EditedCount is the number of files that are written by edits of what the base has.
func (p *Plan) EditedCount() (count int) {
	for _, n := range p.nodes {
		if n.origin != nil && len(n.origin.Edits) > 0 {
			count++
		}
	}
	return count
}

// Prepare finds what the operations need from the tree base, which may be the zero ID for none, and
// writes edited files into q. [Plan.Apply] does that, too, and then has little left to do for the
// same base.
//
// Errors: [InvalidError] for something that does not exist, or is not of the kind that the
// operation needs; [EditError]; [LimitError]; those of the stores.
func (p *Plan) Prepare(ctx context.Context, q *odb.Quarantine, base object.ID) error {
	if err := p.Locate(ctx, q.View().Linked(), base); err != nil {
		return err
	}
	var work int64
	for i, n := range p.nodes {
		op := &p.ops[i]
		if op.Asked {
			if err := op.checkAsked(ctx, q.View()); err != nil {
				return err
			}
		}
		if n.write != op || n.origin == nil {
			continue
		}
		if err := n.find(); err != nil {
			return err
		}
		if len(n.origin.Edits) == 0 {
			continue
		}
		if err := n.edit(ctx, q, &work); err != nil {
			return err
		}
	}
	return nil
}

// CheckAsked refuses the IDs of blobs that clients have sent and v cannot read. Errors:
// [InvalidError], [LimitError], those of v.
func (p *Plan) CheckAsked(ctx context.Context, v *odb.View) error {
	for i := range p.ops {
		if op := &p.ops[i]; op.Asked {
			if err := op.checkAsked(ctx, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (op *Operation) checkAsked(ctx context.Context, v *odb.View) error {
	info, err := v.Stat(ctx, op.Content)
	if errors.Is(err, odb.ErrNotFound) || err == nil && info.Type != object.TypeBlob {
		return &InvalidError{Path: op.Path, Reason: fmt.Sprintf("is to get blob %s, which this repository does not have",
			op.Content)}
	}
	if err != nil {
		return fmt.Errorf("read blob %s: %w", op.Content, err)
	}
	if limit := v.Limits().ObjectBytes; info.Size > limit {
		return &LimitError{Path: op.Path, Limit: "size of blob_sha in bytes (--object-max)", Max: limit}
	}
	return nil
}

// find takes from the base what n gets.
func (n *node) find() error {
	o, op := n.origin, n.write
	o.mode, o.id = o.node.met.mode.Canonical(), o.node.met.id
	path, what := op.Path, "edited"
	switch {
	case o.Move:
		path, what = o.From, "moved"
	case o.From != "":
		path, what = o.From, "copied"
	}
	switch isFile := o.mode.Type() == object.TypeBlob; {
	case o.id.IsZero():
		return &InvalidError{Path: path, Reason: fmt.Sprintf("is to be %s and does not exist", what)}
	case len(o.Edits) > 0 && !isFile:
		return &InvalidError{Path: path, Reason: "is to be edited and is not a file"}
	}
	if reason := checkComponent(n.name, cmp.Or(op.Mode, o.mode)); reason != "" {
		return &InvalidError{Path: op.Path, Reason: reason}
	}
	return nil
}

// edit applies the edits to what find has found, and counts what they go through.
func (n *node) edit(ctx context.Context, q *odb.Quarantine, work *int64) error {
	o := n.origin
	if o.edited == o.id && o.forgotten == q.Forgotten() {
		o.id = o.result
		return nil
	}
	data, err := readEdited(ctx, q.View().Linked(), o.id)
	if err == nil {
		data, err = Replace(ctx, data, o.Edits, work)
	}
	if err == nil {
		err = pass(work, writeWork*len(data))
	}
	if err != nil {
		return atPath(n.write.Path, err)
	}
	result, err := q.Write(ctx, object.TypeBlob, data, o.id)
	if err != nil {
		return fmt.Errorf("write blob: %w", err)
	}
	o.edited, o.result, o.forgotten = o.id, result, q.Forgotten()
	o.id = result
	return nil
}

// atPath names the path in errors about an operation.
func atPath(path string, err error) error {
	if failed, ok := errors.AsType[*EditError](err); ok {
		failed.Path = path
	}
	if limit, ok := errors.AsType[*LimitError](err); ok {
		limit.Path = path
	}
	return err
}

// editCosts is the memory that an edited file takes: what it was, what it is, and its compressed
// form.
const editCosts = 3

// readEdited returns a file that is to be edited.
func readEdited(ctx context.Context, v *odb.View, id object.ID) ([]byte, error) {
	info, err := v.Stat(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", id, err)
	}
	if info.Size > EditedBytesMax {
		return nil, errEditedTooLarge()
	}
	if err := fair.Need(ctx, editCosts*info.Size); err != nil {
		return nil, err
	}
	_, data, err := v.Read(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", id, err)
	}
	return data, nil
}
