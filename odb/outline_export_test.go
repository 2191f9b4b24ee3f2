package odb

import "context"

// Outlines returns how many segments a view has, and how many of them have an outline.
func Outlines(ctx context.Context, v *View) (segments, outlines int, err error) {
	for _, l := range v.Segments() {
		g, err := l.Acquire(ctx)
		if err != nil {
			return 0, 0, err
		}
		_, ok, err := g.Summary(ctx)
		l.Release(g)
		if err != nil {
			return 0, 0, err
		}
		segments++
		if ok {
			outlines++
		}
	}
	return segments, outlines, nil
}
