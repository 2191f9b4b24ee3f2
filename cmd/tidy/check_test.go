package main

import (
	"bytes"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

const document = "# Architecture\n\n" +
	"```floors\n" +
	"3  cmd/tool\n" +
	"2  engine   engine/merge  engine/diff\n" +
	"1  odb   # with its rooms\n" +
	"0  odb/kv  pack\n" +
	"below  pack/invariants\n" +
	"beside  bench\n" +
	"tests  odb/kv/kvtest\n" +
	"```\n\n" +
	"```modules\n" +
	"example.com/store/v2  odb/kv  # keys\n" +
	"example.com/rapid  tests\n" +
	"```\n"

// inOrder is a module without findings.
var inOrder = map[string]string{
	"go.mod":                "module fake\n\ngo 1.26\n",
	"ARCHITECTURE.md":       document,
	"README.md":             "run it in /tmp/data\n",
	"cmd/tool/main.go":      "// Command tool is a tool.\npackage main\n\nimport _ \"fake/engine\"\n",
	"engine/engine.go":      "// Package engine composes.\npackage engine\n\nimport (\n\t_ \"fake/engine/merge\"\n\t_ \"fake/odb\"\n\t_ \"fmt\"\n)\n",
	"engine/merge/merge.go": "// Package merge merges.\npackage merge\n",
	"engine/diff/diff.go":   "// Package diff diffs.\npackage diff\n",

	"odb/odb.go": "// Package odb holds objects.\npackage odb\n\nimport (\n\t_ \"fake/odb/kv\"\n\t_ \"fake/pack\"\n)\n",

	"odb/kv/kv.go": "// Package kv holds keys.\npackage kv\n\nimport (\n\t_ \"example.com/store/v2/vfs\"\n\t_ \"fake/pack/invariants\"\n)\n",

	"odb/kv/kv_test.go":             "package kv_test\n\nimport (\n\t_ \"example.com/rapid\"\n\t_ \"fake/odb/kv/kvtest\"\n)\n",
	"odb/kv/kvtest/kvtest.go":       "// Package kvtest tests stores.\npackage kvtest\n\nimport _ \"fake/odb/kv\"\n",
	"pack/invariants/invariants.go": "// Package invariants checks.\npackage invariants\n",
	"pack/pack.go":                  "// Package pack reads packs.\npackage pack\n",

	"bench/bench.go":                 "// Command bench measures.\npackage main\n\nimport (\n\t_ \"example.com/anything\"\n\t_ \"fake/engine\"\n\t_ \"fake/odb/kv/kvtest\"\n)\n",
	"bench/testdata/broken.go":       "package\n",
	"engine/nested/go.mod":           "module other\n",
	"engine/nested/util/anything.go": "package util\n",
}

// law is a page with numbered headings.
const law = "# Law\n\n## The rest\n\n### 2. One thing, or none\n\n### 14. Another\n\n```\n## No heading\n```\n\n"

func TestCheck(t *testing.T) {
	t.Parallel()
	home := "/" + "home/someone/packhorse"
	tests := map[string]struct {
		files map[string]string // replace those of inOrder; "" removes
		want  []string
	}{
		"in order": {},
		"upwards": {
			files: map[string]string{"pack/up.go": "package pack\n\nimport _ \"fake/odb\"\n"},
			want:  []string{"pack/up.go:3: upwards: pack on floor 0 imports odb on floor 1"},
		},
		"a test upwards": {
			files: map[string]string{"pack/up_test.go": "package pack_test\n\nimport _ \"fake/odb\"\n"},
			want:  []string{"pack/up_test.go:3: upwards: pack on floor 0 imports odb on floor 1"},
		},
		"from below": {
			files: map[string]string{"pack/invariants/up.go": "package invariants\n\nimport _ \"fake/pack\"\n"},
			want:  []string{"pack/invariants/up.go:3: upwards: pack/invariants lies below the tower and imports pack"},
		},
		"sideways between rooms": {
			files: map[string]string{"engine/merge/side.go": "package merge\n\nimport _ \"fake/engine/diff\"\n"},
			want:  []string{"engine/merge/side.go:3: sideways on floor 2: engine/merge imports engine/diff"},
		},
		"sideways between towers": {
			files: map[string]string{"odb/kv/side.go": "package kv\n\nimport _ \"fake/pack\"\n"},
			want:  []string{"odb/kv/side.go:3: sideways on floor 0: odb/kv imports pack"},
		},
		"a test room outside tests": {
			files: map[string]string{"engine/room.go": "package engine\n\nimport _ \"fake/odb/kv/kvtest\"\n"},
			want:  []string{"engine/room.go:3: odb/kv/kvtest is for tests"},
		},
		"a test room upwards": {
			files: map[string]string{"odb/kv/kvtest/up.go": "package kvtest\n\nimport _ \"fake/engine\"\n"},
			want:  []string{"odb/kv/kvtest/up.go:3: upwards: odb/kv on floor 0 imports engine on floor 2"},
		},
		"what stands beside": {
			files: map[string]string{"engine/beside.go": "package engine\n\nimport _ \"fake/bench\"\n"},
			want:  []string{"engine/beside.go:3: bench stands beside the tower, nothing in the tower imports it"},
		},
		"not drawn": {
			files: map[string]string{"refs/refs.go": "// Package refs names.\npackage refs\n"},
			want:  []string{"refs: stands on no floor: draw it in ARCHITECTURE.md"},
		},
		"drawn and gone": {
			files: map[string]string{"engine/diff/diff.go": ""},
			want:  []string{"ARCHITECTURE.md:5: engine/diff is drawn and not there"},
		},
		"malformed drawing": {
			files: map[string]string{"ARCHITECTURE.md": strings.Replace(document, "beside  bench", "roof  bench\n4  odb", 1)},
			want: []string{
				"ARCHITECTURE.md:9: \"roof\" is no floor",
				"ARCHITECTURE.md:10: odb is drawn twice",
				"bench: stands on no floor: draw it in ARCHITECTURE.md",
				"bench/bench.go:5: example.com/anything is not in the modules block of ARCHITECTURE.md",
			},
		},
		"goroutines without a guard": {
			files: map[string]string{
				"odb/go.go": "package odb\n\nimport \"sync\"\n\nvar running sync.WaitGroup\n\nfunc f() {\n\tgo f()\n\trunning.Go(f)\n" +
					"\trunning.Go(func() {})\n\tgo f() // bare: it must end the process\n}\n",
				"odb/go_test.go": "package odb\n\nfunc g() { go g() }\n",
				"odb/timer.go": "package odb\n\nimport \"time\"\n\nfunc t() {\n\ttime.AfterFunc(1, func() { _ = t })\n" +
					"\ttime.AfterFunc(1, func() { t() })\n\ttime.AfterFunc(1, t)\n}\n",
				"odb/group.go":     "package odb\n\nfunc h(group interface{ Go(func() error) }) {\n\tgroup.Go(func() error { return nil })\n}\n",
				"bench/started.go": "package bench\n\nfunc f() { go f() }\n",
			},
			want: []string{
				"odb/go.go:8: a go statement without a guard against panics: use package odb/rescue",
				"odb/go.go:9: WaitGroup.Go without a guard against panics: use package odb/rescue",
				"odb/go.go:10: WaitGroup.Go without a guard against panics: use package odb/rescue",
				"odb/timer.go:6: AfterFunc without a guard against panics: use package odb/rescue",
			},
		},
		"a dependency out of its fence": {
			files: map[string]string{"odb/fence.go": "package odb\n\nimport _ \"example.com/store/v2\"\n"},
			want:  []string{"odb/fence.go:3: example.com/store/v2 stops at odb/kv"},
		},
		"a dependency of tests": {
			files: map[string]string{"odb/fence.go": "package odb\n\nimport _ \"example.com/rapid\"\n"},
			want:  []string{"odb/fence.go:3: example.com/rapid stops at tests"},
		},
		"a dependency not listed": {
			files: map[string]string{"odb/fence.go": "package odb\n\nimport _ \"example.com/store\"\n"},
			want:  []string{"odb/fence.go:3: example.com/store is not in the modules block of ARCHITECTURE.md"},
		},
		"a place that imports nothing": {
			files: map[string]string{"odb/kv/kv.go": "// Package kv holds keys.\npackage kv\n"},
			want:  []string{"ARCHITECTURE.md:14: odb/kv does not import example.com/store/v2"},
		},
		"no package comment": {
			files: map[string]string{"pack/pack.go": "package pack\n"},
			want:  []string{"pack: no file has a package comment that begins with Package pack"},
		},
		"a hidden package comment": {
			files: map[string]string{"pack/hidden.go": "// Package pack is hidden.\n\npackage pack\n"},
			want:  []string{"pack/hidden.go:1: a blank line hides the package comment from go doc"},
		},
		"a drawer": {
			files: map[string]string{"odb/util.go": "package odb\n", "odb/helpers_test.go": "package odb_test\n"},
			want: []string{
				"odb/helpers_test.go: helpers is a drawer, not a noun: name what is in it",
				"odb/util.go: util is a drawer, not a noun: name what is in it",
			},
		},
		"a path of one machine": {
			files: map[string]string{"README.md": "# Fake\n\ncd " + home + "\nsee https://example.com" + home + "\n"},
			want:  []string{"README.md:3: tells a path of one machine"},
		},
		"a path in a file that is no text": {
			files: map[string]string{"pack/testdata/pack.bin": "\x00 " + home},
		},
		"citations that hold": {
			files: map[string]string{
				"docs/law.md": law,
				"pack/pack.go": "// Package pack reads packs: docs/law.md 2, as docs/law.md,\n// \"The\n// rest\" has it.\npackage pack\n\n" +
					"// See https://example.com/gone.md, *.md and docs/law.md 2 and 14.\nvar _ = \"gone.md 3\"\n",
				"odb/kv/README.md": "[law](../../docs/law.md#2-one-thing-or-none), [law](docs/law.md), in [the table](README.md)\n",
				"README.md": "`odb/kv`, `odb/kv/`, `kv/kv.go`, `kv.go`, `refs/heads/main`, `go test ./x.go`,\n`TestKeys/sub` (in `odb/kv`\n" +
					"and in `pack`), `org.yaml`, `.go`, `kv.Open`\n\n```\n`engine/gone.go`, gone.md\n```\n",
				"odb/kv/keys_test.go": "package kv_test\n\nfunc TestKeys() {}\n",
				"pack/keys_test.go":   "package pack_test\n\nfunc TestKeys() {}\n",
				"odb/kv/open.go":      "package kv\n\nvar Open = 1\n",
				"Makefile":            "# see docs/law.md\n",
			},
		},
		"citations of pages that are gone": {
			files: map[string]string{
				"README.md":         "\nsee docs/law.md and\n[more](more.md)\n",
				"Makefile":          "x: ## see law.md\n",
				"pack/pack.go":      "// Package pack reads packs.\n//\n// It keeps law.md 2.\npackage pack\n",
				"pack/pack_test.go": "package pack_test\n\n/* See\n   law.md. */\n",
			},
			want: []string{
				"Makefile:1: cites law.md, which is not in the tree",
				"README.md:2: cites docs/law.md, which is not in the tree",
				"README.md:3: cites more.md, which is not in the tree",
				"pack/pack.go:3: cites law.md, which is not in the tree",
				"pack/pack_test.go:4: cites law.md, which is not in the tree",
			},
		},
		"citations of what a page does not have": {
			files: map[string]string{
				"docs/law.md": law,
				"pack/pack.go": "// Package pack reads packs: docs/law.md 3, and docs/law.md 2, 14 and 15.\npackage pack\n\n" +
					"// a is docs/law.md, \"The next\", and docs/law.md, \"No heading\".\nvar a = 1\n",
				"README.md": "[law](docs/law.md#14-another), [law](docs/law.md#14)\n",
			},
			want: []string{
				"README.md:1: cites docs/law.md#14, which is no heading there",
				"pack/pack.go:1: cites docs/law.md 15, which is no number there",
				"pack/pack.go:1: cites docs/law.md 3, which is no number there",
				"pack/pack.go:4: cites docs/law.md, \"No heading\", which is no heading there",
				"pack/pack.go:4: cites docs/law.md, \"The next\", which is no heading there",
			},
		},
		"citations of files and tests that are gone": {
			files: map[string]string{
				"docs/law.md": law +
					"`TestKeys` (in `odb/kv` and in\n`pack`), `TestGone`, `odb/gone`, `refs/gone.go`, `gone.go`, `odb/kv.go`\n",
				"odb/kv/keys_test.go": "package kv_test\n\nfunc TestKeys() {}\n\nfunc (x) TestGone() {}\n",
				"odb/kv/notes.md":     "`odb/gone` is of another page.\n",
			},
			want: []string{
				"docs/law.md:13: cites TestKeys, which is no test in pack",
				"docs/law.md:14: cites TestGone, which is no test",
				"docs/law.md:14: cites gone.go, which is not in the tree",
				"docs/law.md:14: cites odb/gone, which is not in the tree",
				"docs/law.md:14: cites odb/kv.go, which is not in the tree",
				"docs/law.md:14: cites refs/gone.go, which is not in the tree",
			},
		},
		"citations of identifiers that are gone": {
			files: map[string]string{
				"docs/law.md": law +
					"`kv.Open`, `kv.Gone`, `kv.Store.life`, `kv.Store.gone`, `Store.Close`, `Store.Gone`, `Gone.At`\n" +
					"`hotLayer.id`, `hotLayer.gone`, `kv.limit`, `result.status`, `org.yaml`, `Store.Reader`, `Cache.Get`\n",
				"odb/kv/store.go": "package kv\n\ntype Store struct {\n\tReader\n\tlife int\n}\n\n" +
					"type Reader interface{ Get() }\n\ntype hotLayer struct{ id int }\n\n" +
					"type Cache[K any] int\n\nfunc (*Cache[K]) Get() {}\n\n" +
					"var Open = 1\n\nfunc (s *Store) Close() {}\n",
			},
			want: []string{
				"docs/law.md:13: cites Gone.At, which is not declared",
				"docs/law.md:13: cites Store.Gone, which is not declared",
				"docs/law.md:13: cites kv.Gone, which is not declared",
				"docs/law.md:13: cites kv.Store.gone, which is not declared",
				"docs/law.md:14: cites hotLayer.gone, which is not declared",
			},
		},
		"long lines": {
			files: map[string]string{
				"README.md": strings.Repeat("prose ", 17) + "\n\n| " + strings.Repeat("table ", 17) + "|\n\n    " +
					strings.Repeat("block ", 17) + "\n\n```\n" + strings.Repeat("block ", 17) + "\n```\n",
				"bench/results/redis.md": strings.Repeat("made ", 21) + "\n",
				"pack/pack.go": "// Package pack reads packs.\n//\n//\t" + strings.Repeat("block ", 17) + "\npackage pack\n\n" +
					"// A " + strings.Repeat("comment ", 13) + "\nvar a = 1 // " + strings.Repeat("note ", 17) + "\n\n" +
					"//nolint:" + strings.Repeat("long", 24) + "\nvar b = `" + strings.Repeat("long ", 24) + "\n" +
					strings.Repeat("long ", 25) + "`\n\nvar c = 1 + " + strings.Repeat("1 + ", 28) + "1\n",
			},
			want: []string{
				"README.md:1: prose ends behind column 100",
				"pack/pack.go:6: comment ends behind column 100",
				"pack/pack.go:13: code ends behind column 120",
			},
		},
		"the top level": {
			files: map[string]string{"internal/README.md": "x\n"},
			want:  []string{"internal: does not belong at the top level"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			count, err := run(moduleWith(test.files), &out)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSuffix(out.String(), "\n"); got != strings.Join(test.want, "\n") {
				t.Errorf("findings:\n%s\nwant:\n%s", got, strings.Join(test.want, "\n"))
			}
			if count != len(test.want) {
				t.Errorf("count %d, want %d", count, len(test.want))
			}
		})
	}
}

func TestCheckCannotLook(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"no module":           {"go.mod": "go 1.26\n"},
		"no go.mod":           {"go.mod": ""},
		"malformed source":    {"pack/pack.go": "package\n"},
		"no document":         {"ARCHITECTURE.md": ""},
		"no drawing":          {"ARCHITECTURE.md": strings.ReplaceAll(document, "```floors", "```")},
		"no end of a drawing": {"ARCHITECTURE.md": strings.TrimSuffix(document, "```\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if count, err := run(moduleWith(files), &out); err == nil {
				t.Errorf("%d findings without an error", count)
			}
		})
	}
}

// moduleWith returns inOrder with some files replaced.
func moduleWith(files map[string]string) fs.FS {
	all := maps.Clone(inOrder)
	maps.Copy(all, files)
	root := fstest.MapFS{}
	for name, text := range all {
		if text != "" {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return root
}
