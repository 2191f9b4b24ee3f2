package odbtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// AddPack adds a pack as a segment and checks nothing: not the objects, and not what they link to.
// It takes several times the memory of the pack.
//
// Two lists, if given, are the tips and the external references of the segment's summary.
func (d *Draft) AddPack(packed []byte, lists ...[]object.ID) {
	d.Helper()
	ctx := d.Context()
	w, err := segment.NewWriter(ctx, d.Store.Env())
	d.Must(err)
	_, err = w.Write(packed)
	d.Must(err)
	objects, err := resolvePlainly(packed)
	d.Must(err)
	for _, o := range objects {
		d.Must(w.AddRow(ctx, o.row))
		if o.row.Type == object.TypeCommit {
			row, err := segment.ParseGraphRow(o.data)
			d.Must(err)
			d.Must(w.AddGraph(ctx, o.row.ID, &row))
		}
	}
	if len(lists) == 2 {
		w.SetSummary(&segment.Summary{Tips: lists[0], External: lists[1]})
	}
	sealed, err := w.Finish(ctx)
	d.Must(err)
	d.Quarantine.AddSegment(sealed)
}

// AddHot adds an object to the hot tier as it comes in a small pack, and checks nothing: stored is
// the object, or a delta against base if that is not zero. size is that of the object in bytes.
func (d *Draft) AddHot(id object.ID, t object.Type, size int64, base object.ID, stored []byte) {
	d.Helper()
	d.Must(d.Quarantine.AddPacked(d.Context(), &odb.HotValue{
		ID: id, Type: t, Size: size, Base: base, ContentSize: int64(len(stored)),
		Payload: pack.Deflate(nil, stored, pack.LevelDefault),
	}, nil))
}

// plainObject is an object of a pack and its row in the index.
type plainObject struct {
	row  segment.Row
	data []byte
}

// resolvePlainly returns the objects of a pack by their offsets.
func resolvePlainly(packed []byte) (map[int64]*plainObject, error) {
	r := pack.NewReader(bytes.NewReader(packed), pack.ReaderOptions{})
	objects := make(map[int64]*plainObject)
	ids := make(map[object.ID]int64)
	var waiting []pack.Entry
	programs := make(map[int64][]byte)
	done := func(e pack.Entry, t object.Type, data []byte, base int64) error {
		id, err := object.Hash(t, data)
		objects[e.Offset] = &plainObject{data: data, row: segment.Row{
			ID: id, Type: t, Size: int64(len(data)), Offset: e.Offset, PackedSize: e.PackedSize, Base: base, CRC32: e.CRC32,
		}}
		ids[id] = e.Offset
		return err
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		content, err := r.ReadContent(nil)
		if err != nil {
			return nil, err
		}
		if e = r.Entry(); e.Kind.IsDelta() {
			programs[e.Offset] = content
			waiting = append(waiting, e)
		} else if err := done(e, e.Kind.Type(), content, -1); err != nil {
			return nil, err
		}
	}
	for len(waiting) > 0 {
		var left []pack.Entry
		for _, e := range waiting {
			at, ok := e.BaseOffset, true
			if e.Kind == pack.KindRefDelta {
				at, ok = ids[e.BaseID]
			}
			base := objects[at]
			if !ok || base == nil {
				left = append(left, e)
				continue
			}
			data, err := delta.Apply(nil, base.data, programs[e.Offset], 1<<40)
			if err == nil {
				err = done(e, base.row.Type, data, at)
			}
			if err != nil {
				return nil, err
			}
		}
		if len(left) == len(waiting) {
			return nil, fmt.Errorf("%d deltas without a base", len(left))
		}
		waiting = left
	}
	return objects, nil
}
