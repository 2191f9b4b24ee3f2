package main

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// tower is the floors block of ARCHITECTURE.md: a line is a floor's number and its folders, with a
// comment after "#". Three more lines begin with a word: "below" lists folders that import none of
// the module and that all may import, "beside" lists folders that may import anything and are
// imported by each other only, "tests" lists rooms that only tests, folders beside, and other such
// rooms import.
//
// A folder may import folders of a lower floor, and on its own floor a folder that it contains or
// that contains it. Its tests keep to the same, and to the rooms of "tests". A room of "tests" may
// import what the folder that contains it may, and that folder.
type tower struct {
	floors map[string]int // folder to floor; beside, tests and below are numbers too
	lines  map[string]int // folder to its line in the document
}

// Floors without a number.
const (
	floorBeside = -1
	floorTests  = -2
	floorBelow  = -3
)

// parseTower reads the lines of the floors block. A malformed line is a finding.
func parseTower(lines []blockLine) (tower, []finding) {
	t := tower{floors: map[string]int{}, lines: map[string]int{}}
	var findings []finding
	for _, line := range lines {
		words := line.words()
		if len(words) == 0 {
			continue
		}
		floor, err := strconv.Atoi(words[0])
		switch {
		case words[0] == "beside":
			floor = floorBeside
		case words[0] == "tests":
			floor = floorTests
		case words[0] == "below":
			floor = floorBelow
		case err != nil || floor < 0:
			findings = append(findings, finding{drawing, line.number, fmt.Sprintf("%q is no floor", words[0])})
			continue
		}
		for _, folder := range words[1:] {
			if _, twice := t.floors[folder]; twice {
				findings = append(findings, finding{drawing, line.number, folder + " is drawn twice"})
				continue
			}
			t.floors[folder], t.lines[folder] = floor, line.number
		}
	}
	return t, findings
}

// check returns the imports that the drawing does not allow, the packages that it does not show,
// and the folders it shows that are not there.
func (t tower) check(mod *module) []finding {
	var findings []finding
	there := map[string]bool{}
	for _, pkg := range mod.packages {
		there[pkg.folder] = true
		if _, ok := t.floors[pkg.folder]; !ok {
			findings = append(findings, finding{pkg.folder, 0, "stands on no floor: draw it in " + drawing})
			continue
		}
		for _, f := range pkg.files {
			for _, imp := range mod.imports(f) {
				target, ours := mod.folderOf(imp.path)
				if !ours || target == pkg.folder {
					continue
				}
				if reason := t.refuse(pkg.folder, target, f.test); reason != "" {
					findings = append(findings, finding{f.path, imp.line, reason})
				}
			}
		}
	}
	for folder, line := range t.lines {
		if !there[folder] {
			findings = append(findings, finding{drawing, line, folder + " is drawn and not there"})
		}
	}
	return findings
}

// refuse returns why from may not import to, or "".
func (t tower) refuse(from, to string, test bool) string {
	floor, drawn := t.floors[to]
	if !drawn {
		return "" // found once, at the package itself
	}
	own := t.floors[from]
	switch {
	case own == floorBeside, floor == floorBelow:
		return ""
	case own == floorBelow:
		return fmt.Sprintf("upwards: %s lies below the tower and imports %s", from, to)
	case floor == floorTests:
		if test || own == floorTests {
			return ""
		}
		return to + " is for tests"
	case test && within(to, from):
		return "" // a folder is tested together with its own subfolders
	case floor == floorBeside:
		return to + " stands beside the tower, nothing in the tower imports it"
	case own == floorTests:
		host := t.host(from)
		if to == host || within(to, host) && floor >= 0 {
			return ""
		}
		return t.refuse(host, to, test)
	case floor < own || floor == own && (within(from, to) || within(to, from)):
		return ""
	case floor == own:
		return fmt.Sprintf("sideways on floor %d: %s imports %s", own, from, to)
	default:
		return fmt.Sprintf("upwards: %s on floor %d imports %s on floor %d", from, own, to, floor)
	}
}

// host returns the numbered folder that contains a room of "tests", or "." when none does.
func (t tower) host(room string) string {
	for folder := path.Dir(room); folder != "."; folder = path.Dir(folder) {
		if floor, ok := t.floors[folder]; ok && floor >= 0 {
			return folder
		}
	}
	return "."
}

// within reports whether folder lies inside outer.
func within(folder, outer string) bool { return strings.HasPrefix(folder, outer+"/") }
