package grep

import "context"

// Text searches one text as [Search] does a file, and reports whether there is more than fits one
// page.
func Text(ctx context.Context, text []byte, o Options) (lines []Line, more bool, err error) {
	o.setDefaults()
	var scan scanner
	scan.reset(&o, o.From.Line)
	if !isBinary(text) {
		err = searchText(ctx, &scan, text)
	}
	return scan.lines, scan.full, err
}
