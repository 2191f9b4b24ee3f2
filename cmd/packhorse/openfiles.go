package main

import "packhorse/odb/file"

// openFiles divides the descriptors of a server's files. What may never want for one is the
// key-value store: it ends the process if it cannot begin a log.
type openFiles struct {
	tables   int             // of the key-value store; 0 for its default
	segments int             // 0 for the default
	others   *file.OpenLimit // files that are being written, and cached packs; nil without a limit
}

// segmentsMost is the most segments that a server keeps open.
const segmentsMost = 256

// divideFiles leaves an eighth to folders, outbound connections and the like. A task, for which
// countMax is 0, has plenty.
func divideFiles(countMax int) openFiles {
	if countMax == 0 {
		return openFiles{}
	}
	return openFiles{
		tables: min(countMax/4, 1000), segments: min(countMax/8, segmentsMost),
		others: file.NewOpenLimit(countMax / 2),
	}
}
