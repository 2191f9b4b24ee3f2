package demo

import (
	"encoding/binary"
	"strings"
)

// person is an author of the story.
type person struct{ name, email, zone string }

var (
	ada   = person{"Ada Lindqvist", "ada@kettle.example", "+0100"}
	bruno = person{"Bruno Okafor", "bruno@kettle.example", "+0000"}
	chen  = person{"Chen Wei", "chen.wei@kettle.example", "+0800"}
	dalia = person{"Dalia Haddad", "dalia@kettle.example", "+0200"}
)

// The branches of the story, beside main.
const (
	// Merged was merged into main.
	Merged = "fahrenheit"
	// Ahead is ahead of main and merges without a conflict.
	Ahead = "chime"
	// Conflicting conflicts with main in File.
	Conflicting = "strong-tea"
	// File has been changed by everybody.
	File = "data/teas.csv"
	// Script was renamed: it was kettle.py before.
	Script = "kettle/timer.py"
)

const (
	csvHead = "name,celsius,minutes\n"
	program = `#!/usr/bin/env python3
"""Tells how to brew a tea."""
import csv
import sys


def teas(path="data/teas.csv"):
    with open(path) as lines:
        return {row["name"]: row for row in csv.DictReader(lines)}


def main():
    tea = teas()[sys.argv[1]]
    print(f"{tea['celsius']} °C, {tea['minutes']} minutes")


if __name__ == "__main__":
    main()
`
)

// tell tells the story: seven weeks of a small program that knows how long tea takes.
func tell(b *builder) {
	march(b)
	april(b)
}

func march(b *builder) {
	b.commit("main", ada, "2026-03-02 09:14", "Begin with three teas", func(f files) {
		f.put("README.md", "# kettle\n\nHow hot, and how long?\n")
		f.put(File, csvHead+"Assam,95,4\nSencha,70,2\nRooibos,100,6\n")
	})
	b.commit("main", ada, "2026-03-02 11:02", "Print what a tea needs", func(f files) {
		f.put("kettle.py", program)
	})
	b.commit("main", bruno, "2026-03-03 20:47", "Say how to run it", func(f files) {
		f.add("README.md", "\n    ./kettle.py Assam\n")
	})
	b.commit("main", chen, "2026-03-04 18:30", "Add oolong", func(f files) {
		f.add(File, "Tieguanyin,90,3\n")
	})
	b.commit("main", ada, "2026-03-05 08:55", "Answer for an unknown tea\n\nA traceback is no answer.", func(f files) {
		f.replace("kettle.py", "    tea = teas()[sys.argv[1]]\n",
			"    tea = teas().get(sys.argv[1])\n    if tea is None:\n        sys.exit(f\"no tea is called {sys.argv[1]}\")\n")
	})
	b.commit("main", bruno, "2026-03-06 21:15", "Add two black teas", func(f files) {
		f.replace(File, "Assam,95,4\n", "Assam,95,4\nCeylon,95,4\nDarjeeling,90,3\n")
	})
	b.commit("main", dalia, "2026-03-09 10:20", "Ignore what Python leaves behind", func(f files) {
		f.put(".gitignore", "__pycache__/\n*.pyc\n")
	})
	b.commit("main", dalia, "2026-03-09 10:41", "Test the list", func(f files) {
		f.put("tests/test_teas.py", "from kettle import teas\n\n\ndef test_assam():\n    assert teas()[\"Assam\"][\"celsius\"] == \"95\"\n")
	})
	b.note("main", bruno, "2026-03-09 19:00", "Reviewed-by: Bruno Okafor <bruno@kettle.example>")
	b.commit("main", chen, "2026-03-11 17:05", "Brew Sencha cooler\n\nAt 70 degrees it was bitter.", func(f files) {
		f.replace(File, "Sencha,70,2\n", "Sencha,65,2\n")
	})
	b.commit("main", ada, "2026-03-12 09:30", "Write down how to brew", func(f files) {
		f.put("docs/brewing.md", "# Brewing\n\n1. Warm the pot.\n2. Boil fresh water.\n3. Let it cool as the list says.\n4. Wait.\n")
	})
	b.tag("v0.1.0", "main", ada, "2026-03-13 16:00", "kettle 0.1.0\n\nSix teas, and a script that knows them.")

	b.begin(Merged, "main")
	b.commit("main", chen, "2026-03-16 18:12", "Add white tea", func(f files) { f.add(File, "Bai Mudan,80,5\n") })
	b.commit(Merged, dalia, "2026-03-16 10:08", "Convert degrees", func(f files) {
		f.put("kettle_units.py", "def fahrenheit(celsius):\n    return celsius * 9 / 5 + 32\n")
	})
	b.commit(Merged, dalia, "2026-03-17 11:40", "Take --fahrenheit", func(f files) {
		f.replace("kettle.py", "import csv\nimport sys\n", "import csv\nimport sys\n\nfrom kettle_units import fahrenheit\n")
		f.replace("kettle.py", "    print(f\"{tea['celsius']} °C, {tea['minutes']} minutes\")\n",
			"    heat = f\"{tea['celsius']} °C\"\n    if \"--fahrenheit\" in sys.argv:\n"+
				"        heat = f\"{fahrenheit(int(tea['celsius'])):.0f} °F\"\n"+
				"    print(f\"{heat}, {tea['minutes']} minutes\")\n")
	})
	b.commit("main", bruno, "2026-03-18 22:03", "Fix a step that was missing", func(f files) {
		f.replace("docs/brewing.md", "4. Wait.\n", "4. Pour it over the leaves.\n5. Wait.\n")
	})
	b.commit(Merged, dalia, "2026-03-19 09:55", "Test the conversion", func(f files) {
		f.put("tests/test_units.py", "from kettle_units import fahrenheit\n\n\ndef test_boiling():\n    assert fahrenheit(100) == 212\n")
	})
	b.merge("main", Merged, ada, "2026-03-20 15:26", "Merge branch '"+Merged+"'\n\nWho thinks in Fahrenheit can brew now, too.")
	b.note("main", chen, "2026-03-21 12:00", "Tested-by: Chen Wei <chen.wei@kettle.example>")
	b.commit("main", ada, "2026-03-23 09:11", "Draw a logo", func(f files) { f.put("docs/logo.bmp", logo()) })
	b.commit("main", bruno, "2026-03-24 20:20", "Show the logo", func(f files) {
		f.replace("README.md", "# kettle\n", "# kettle\n\n![a cup](docs/logo.bmp)\n")
	})
	b.commit("main", dalia, "2026-03-26 10:30", "Make a package of the scripts", func(f files) {
		f.move("kettle.py", Script)
		f.move("kettle_units.py", "kettle/units.py")
		f.replace(Script, "from kettle_units import", "from kettle.units import")
		f.replace("tests/test_teas.py", "from kettle import", "from kettle.timer import")
		f.replace("tests/test_units.py", "from kettle_units import", "from kettle.units import")
		f.replace("README.md", "./kettle.py Assam", "python3 -m kettle.timer Assam")
		f.put("kettle/__init__.py", "")
	})
	b.commit("main", chen, "2026-03-27 19:44", "Add a second infusion for oolong", func(f files) {
		f.replace(File, "Tieguanyin,90,3\n", "Tieguanyin,90,3\nTieguanyin again,95,4\n")
	})
	b.tag("v0.2.0", "main", ada, "2026-03-27 17:00", "kettle 0.2.0\n\nFahrenheit, and a logo.")
}

func april(b *builder) {
	b.commit("main", bruno, "2026-03-30 21:30", "Count down", func(f files) {
		f.replace(Script, "import csv\nimport sys\n", "import csv\nimport sys\nimport time\n")
		f.replace(Script, "def main():\n", "def wait(minutes):\n    for left in range(minutes * 60, 0, -1):\n"+
			"        print(f\"\\r{left // 60}:{left % 60:02}\", end=\"\", flush=True)\n        time.sleep(1)\n"+
			"    print(\"\\rready\")\n\n\ndef main():\n")
	})
	b.commit("main", bruno, "2026-03-31 20:05", "Wait only when asked", func(f files) {
		f.replace(Script, "    print(f\"{heat}, {tea['minutes']} minutes\")\n",
			"    print(f\"{heat}, {tea['minutes']} minutes\")\n    if \"--wait\" in sys.argv:\n        wait(int(tea[\"minutes\"]))\n")
	})
	b.begin(Conflicting, "main")
	b.commit(Conflicting, bruno, "2026-04-01 21:00", "Brew black tea as my grandmother did", func(f files) {
		f.replace(File, "Assam,95,4\nCeylon,95,4\n", "Assam,100,7\nCeylon,100,6\n")
	})
	b.commit("main", dalia, "2026-04-02 09:20", "List the teas", func(f files) {
		f.replace(Script, "def main():\n", "def main():\n    if len(sys.argv) < 2:\n        print(*teas(), sep=\"\\n\")\n        return\n")
	})
	b.commit("main", chen, "2026-04-03 18:50", "Sort the list by name", func(f files) {
		f.put(File, csvHead+"Assam,95,4\nBai Mudan,80,5\nCeylon,95,4\nDarjeeling,90,3\nRooibos,100,6\nSencha,65,2\n"+
			"Tieguanyin,90,3\nTieguanyin again,95,4\n")
	})
	b.commit(Conflicting, bruno, "2026-04-06 20:40", "Warn of strong tea", func(f files) {
		f.add("docs/brewing.md", "\nBlack tea is strong here. Milk helps.\n")
	})
	b.commit("main", ada, "2026-04-07 08:45", "Brew Assam for five minutes\n\nFour were too few for whole leaves.", func(f files) {
		f.replace(File, "Assam,95,4\n", "Assam,95,5\n")
	})
	b.commit("main", dalia, "2026-04-08 10:15", "Test that every tea can be brewed", func(f files) {
		f.add("tests/test_teas.py", "\n\ndef test_all():\n    for tea in teas().values():\n"+
			"        assert 60 <= int(tea[\"celsius\"]) <= 100\n        assert int(tea[\"minutes\"]) > 0\n")
	})
	b.commit("main", chen, "2026-04-10 19:30", "Add genmaicha", func(f files) {
		f.replace(File, "Rooibos,", "Genmaicha,80,3\nRooibos,")
	})
	b.begin(Ahead, "main")
	b.commit(Ahead, dalia, "2026-04-13 10:00", "Ring a bell when the tea is ready", func(f files) {
		f.replace(Script, "\\rready", "\\rready\\a")
	})
	b.commit("main", ada, "2026-04-14 09:05", "Remember what changed", func(f files) {
		f.put("CHANGELOG.md", "# Changes\n\n## 1.0.0\n\n- Counts down with `--wait`.\n- Lists the teas.\n\n"+
			"## 0.2.0\n\n- `--fahrenheit`.\n\n## 0.1.0\n\n- The first teas.\n")
	})
	b.commit("main", bruno, "2026-04-15 21:10", "Say what the list has", func(f files) {
		f.add("README.md", "\nThe teas are in `data/teas.csv`: a name, degrees Celsius, and minutes.\n")
	})
	b.tag("v1.0.0", "main", ada, "2026-04-17 17:30", "kettle 1.0.0\n\nIt waits with you.")
	b.note("main", ada, "2026-04-17 17:35", "Release notes are in CHANGELOG.md")
	b.commit(Ahead, dalia, "2026-04-20 11:25", "Keep quiet with --silent", func(f files) {
		f.replace(Script, "    print(\"\\rready\\a\")\n",
			"    print(\"\\rready\" if \"--silent\" in sys.argv else \"\\rready\\a\")\n")
	})
	b.commit("main", chen, "2026-04-21 18:00", "Cool water for genmaicha a little more", func(f files) {
		f.replace(File, "Genmaicha,80,3\n", "Genmaicha,75,3\n")
	})
}

// cup is the logo, a character a pixel, the lowest row last.
const cup = `
................
.....#...#......
......#...#.....
.....#...#......
......#...#.....
................
..##########....
..##########.##.
..##########...#
..##########...#
..##########.##.
...########.....
....######......
................
.##############.
................
`

// logo returns the cup as a Windows bitmap of 24 bits, without compression: its bytes depend on no
// version of a library.
func logo() string {
	rows := strings.Fields(cup)
	width, height := len(rows[0]), len(rows)
	const headerBytes = 54
	size := headerBytes + height*width*3 // rows are a multiple of 4 bytes
	image := append([]byte("BM"), make([]byte, headerBytes-2, size)...)
	for at, value := range map[int]int{2: size, 10: headerBytes, 14: 40, 18: width, 22: height, 34: size - headerBytes} {
		binary.LittleEndian.PutUint32(image[at:], uint32(value))
	}
	binary.LittleEndian.PutUint16(image[26:], 1)  // plane
	binary.LittleEndian.PutUint16(image[28:], 24) // bits a pixel
	for y := height - 1; y >= 0; y-- {            // the lowest first
		for _, pixel := range rows[y] {
			if pixel == '#' {
				image = append(image, 0x20, 0x40, 0x80) // blue, green, red
			} else {
				image = append(image, 0xff, 0xff, 0xff)
			}
		}
	}
	return string(image)
}
