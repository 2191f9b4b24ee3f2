package oracle

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// History says what [Repository.Seed] makes. The zero value is a small, varied history.
type History struct {
	Seed    uint64
	Commits int // 0 means 40
	Files   int // names in use at most; 0 means 30
	Merges  bool
	Tags    bool // every tenth commit gets an annotated tag
	Binary  bool // some files hold random bytes
}

// Seed builds a history on refs/heads/main and returns its tip. Equal arguments give equal objects:
// files of text lines in nested folders that grow, change, move, vanish and turn executable.
func (r *Repository) Seed(h History) string {
	r.tb.Helper()
	if h.Commits == 0 {
		h.Commits = 40
	}
	if h.Files == 0 {
		h.Files = 30
	}
	s := &seeder{History: h, random: rand.New(rand.NewPCG(h.Seed, 0x9e3779b97f4a7c15)), files: map[string][]byte{}}
	for i := range h.Commits {
		s.commit(i)
	}
	fmt.Fprintf(&s.out, "done\n")
	r.Input(s.out.Bytes(), "fast-import", "--quiet", "--done", "--date-format=raw")
	return r.Git("rev-parse", "refs/heads/main")
}

// seeder writes a stream for git fast-import.
type seeder struct {
	History
	random *rand.Rand
	out    bytes.Buffer
	files  map[string][]byte
}

func (s *seeder) commit(i int) {
	branch := "main"
	if s.Merges && i%5 == 3 {
		branch = "side"
		fmt.Fprintf(&s.out, "reset refs/heads/side\nfrom :%d\n\n", i)
	}
	date := 1_600_000_000 + i*3600
	fmt.Fprintf(&s.out, "commit refs/heads/%s\nmark :%d\n", branch, i+1)
	fmt.Fprintf(&s.out, "author Author %d <a%d@example.com> %d %+03d00\n", i%3, i%3, date, i%5-2)
	fmt.Fprintf(&s.out, "committer %s <%s> %d +0000\n", Name, Email, date+60)
	s.data([]byte(fmt.Sprintf("change %d\n\n%s", i, s.line())))
	switch {
	case s.Merges && i%5 == 4:
		fmt.Fprintf(&s.out, "from :%d\nmerge :%d\n", i-1, i)
		s.rewrite()
	case i > 0:
		fmt.Fprintf(&s.out, "from :%d\n", i)
	}
	for range 1 + s.random.IntN(4) {
		s.change()
	}
	if s.Tags && i%10 == 9 {
		fmt.Fprintf(&s.out, "tag v%d\nfrom :%d\ntagger %s <%s> %d +0000\n", i, i+1, Name, Email, date+120)
		s.data([]byte(fmt.Sprintf("version %d\n", i)))
	}
}

// rewrite writes every file again, since a merge begins with the files of its first parent only.
func (s *seeder) rewrite() {
	s.out.WriteString("deleteall\n")
	for _, name := range s.names() {
		fmt.Fprintf(&s.out, "M 100644 inline %s\n", name)
		s.data(s.files[name])
	}
}

func (s *seeder) names() []string { return slices.Sorted(maps.Keys(s.files)) }

// change edits, moves, removes or adds one file.
func (s *seeder) change() {
	names := s.names()
	var name string
	if len(names) > 0 {
		name = names[s.random.IntN(len(names))]
	}
	action := s.random.IntN(20)
	switch {
	case len(names) < s.Files && (action < 8 || len(names) < 3):
		name = s.name()
		s.files[name] = s.content()
	case action == 8 && len(names) > 3:
		fmt.Fprintf(&s.out, "D %s\n", name)
		delete(s.files, name)
		return
	case action == 9:
		target := s.name()
		if _, taken := s.files[target]; taken {
			return
		}
		fmt.Fprintf(&s.out, "R %s %s\n", name, target)
		s.files[target] = s.files[name]
		delete(s.files, name)
		return
	default:
		s.files[name] = s.edit(s.files[name])
	}
	mode := "100644"
	if s.random.IntN(12) == 0 {
		mode = "100755"
	}
	fmt.Fprintf(&s.out, "M %s inline %s\n", mode, name)
	s.data(s.files[name])
}

// name draws a path that is never a folder of another: folders are d0 to d3, files have an ending.
func (s *seeder) name() string {
	var path strings.Builder
	for range s.random.IntN(4) {
		fmt.Fprintf(&path, "d%d/", s.random.IntN(4))
	}
	fmt.Fprintf(&path, "file%d.txt", s.random.IntN(2*s.Files))
	return path.String()
}

func (s *seeder) content() []byte {
	if s.Binary && s.random.IntN(6) == 0 {
		blob := make([]byte, 1+s.random.IntN(4000))
		for i := range blob {
			blob[i] = byte(s.random.Uint32())
		}
		return blob
	}
	var text []byte
	for range s.random.IntN(200) {
		text = append(text, s.line()...)
	}
	return text
}

// edit replaces a few lines.
func (s *seeder) edit(content []byte) []byte {
	lines := bytes.SplitAfter(content, []byte{'\n'})
	for range 1 + s.random.IntN(5) {
		at := s.random.IntN(len(lines))
		lines = slices.Replace(slices.Clone(lines), at, at+s.random.IntN(2), []byte(s.line()))
	}
	return bytes.Join(lines, nil)
}

var words = strings.Fields(
	"horse pack tree blob commit carry saddle trail load bridle hoof rein path mule cargo north river stone",
)

func (s *seeder) line() string {
	line := make([]string, 1+s.random.IntN(9))
	for i := range line {
		line[i] = words[s.random.IntN(len(words))]
	}
	return strings.Join(line, " ") + "\n"
}

func (s *seeder) data(content []byte) { fmt.Fprintf(&s.out, "data %d\n%s\n", len(content), content) }
