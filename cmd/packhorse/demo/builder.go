package demo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"packhorse/pack/object"
)

// stored is an object of the repository.
type stored struct {
	kind object.Type
	data []byte
}

// files are the content of a commit by path.
type files map[string]string

// put writes a file.
func (f files) put(path, text string) { f[path] = text }

// add appends lines to a file.
func (f files) add(path, lines string) { f[path] += lines }

// replace replaces the one place of a file that has a text. A text that is not there once is a
// mistake in the story: it leaves a file without a name, which the builder finds.
func (f files) replace(path, before, after string) {
	if strings.Count(f[path], before) != 1 {
		f[""] = fmt.Sprintf("%s: %q", path, before)
		return
	}
	f[path] = strings.Replace(f[path], before, after, 1)
}

// move gives a file another path.
func (f files) move(from, to string) {
	f[to] = f[from]
	delete(f, from)
}

// branch is a branch as it grows.
type branch struct {
	tip   object.ID
	files files
	fork  files // those of the commit that it began at, for its merge
}

// builder makes objects of a story. The first error is kept, and ends nothing.
type builder struct {
	objects  []stored
	known    map[object.ID]bool
	branches map[string]*branch
	names    []string // of refs, in the order in which they came to be
	tips     map[string]object.ID
	notes    files
	err      error
}

func newBuilder() *builder {
	return &builder{
		known: make(map[object.ID]bool), branches: make(map[string]*branch), tips: make(map[string]object.ID),
		notes: make(files),
	}
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// write adds an object, once.
func (b *builder) write(kind object.Type, data []byte) object.ID {
	id, err := object.Hash(kind, data)
	if err != nil {
		b.fail(err)
	}
	if !b.known[id] {
		b.known[id] = true
		b.objects = append(b.objects, stored{kind, data})
	}
	return id
}

// tree writes the tree of files, whose paths begin with a prefix that is left out.
func (b *builder) tree(all files, prefix string) object.ID {
	entries := make(map[string]object.TreeEntry)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		rest, below := strings.CutPrefix(path, prefix)
		if !below {
			continue
		}
		name, _, isFolder := strings.Cut(rest, "/")
		if _, done := entries[name]; done {
			continue
		}
		if isFolder {
			entries[name] = object.TreeEntry{Mode: object.ModeTree, Name: name, ID: b.tree(all, prefix+name+"/")}
			continue
		}
		mode := object.ModeBlob
		if strings.HasPrefix(all[path], "#!") {
			mode = object.ModeExec
		}
		entries[name] = object.TreeEntry{Mode: mode, Name: name, ID: b.write(object.TypeBlob, []byte(all[path]))}
	}
	sorted := slices.Collect(maps.Values(entries))
	object.SortTree(sorted)
	return b.write(object.TypeTree, object.AppendTree(nil, sorted))
}

// point moves a ref.
func (b *builder) point(name string, to object.ID) {
	if _, there := b.tips[name]; !there {
		b.names = append(b.names, name)
	}
	b.tips[name] = to
}

func (b *builder) refs() []Ref {
	refs := make([]Ref, len(b.names))
	for i, name := range b.names {
		refs[i] = Ref{name, b.tips[name]}
	}
	return refs
}

// at is a moment of the story, written "2026-03-02 09:14", in a person's time zone.
func (b *builder) at(when string, p person) object.Signature {
	moment, err := time.Parse("2006-01-02 15:04 -0700", when+" "+p.zone)
	if err != nil {
		b.fail(err)
	}
	return object.Signature{Name: p.name, Email: p.email, Seconds: moment.Unix(), Zone: p.zone}
}

// record writes a commit.
func (b *builder) record(all files, parents []object.ID, by person, when, message string) object.ID {
	if fault, ok := all[""]; ok {
		b.fail(fmt.Errorf("%q replaces what is not there once: %s", message, fault))
	}
	signature := b.at(when, by)
	commit := object.Commit{
		Tree: b.tree(all, ""), Parents: parents, Author: signature, Committer: signature, Message: message + "\n",
	}
	return b.write(object.TypeCommit, commit.Append(nil))
}

// commit adds a commit to a branch, which it may begin.
func (b *builder) commit(on string, by person, when, message string, edit func(f files)) {
	at := b.branches[on]
	var parents []object.ID
	if at == nil {
		at = &branch{files: make(files)}
		b.branches[on] = at
	} else {
		parents = []object.ID{at.tip}
	}
	at.files = maps.Clone(at.files)
	edit(at.files)
	at.tip = b.record(at.files, parents, by, when, message)
	b.point("refs/heads/"+on, at.tip)
}

// begin begins a branch at the tip of another one.
func (b *builder) begin(name, from string) {
	at := b.branches[from]
	b.branches[name] = &branch{tip: at.tip, files: maps.Clone(at.files), fork: at.files}
	b.point("refs/heads/"+name, at.tip)
}

// merge merges a branch into the one that it began at. Both must not have changed the same file.
func (b *builder) merge(into, from string, by person, when, message string) {
	ours, theirs := b.branches[into], b.branches[from]
	merged := maps.Clone(ours.files)
	for path, text := range theirs.files {
		switch base, there := theirs.fork[path]; {
		case there && text == base:
		case there && ours.files[path] != base:
			b.fail(errors.New("a merge of the story conflicts in " + path))
		default:
			merged[path] = text
		}
	}
	ours.files = merged
	ours.tip = b.record(merged, []object.ID{ours.tip, theirs.tip}, by, when, message)
	b.point("refs/heads/"+into, ours.tip)
}

// tag adds an annotated tag of the tip of a branch.
func (b *builder) tag(name, on string, by person, when, message string) {
	tagger := b.at(when, by)
	text := fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger %s\n\n%s\n", b.branches[on].tip, name, tagger, message)
	b.point("refs/tags/"+name, b.write(object.TypeTag, []byte(text)))
}

// note adds a note about the tip of a branch, as git notes does.
func (b *builder) note(on string, by person, when, text string) {
	const ref = "refs/notes/commits"
	var parents []object.ID
	if tip, there := b.tips[ref]; there {
		parents = []object.ID{tip}
	}
	b.notes = maps.Clone(b.notes)
	b.notes.put(b.branches[on].tip.String(), text+"\n")
	b.point(ref, b.record(b.notes, parents, by, when, "Notes added by 'git notes add'"))
}
