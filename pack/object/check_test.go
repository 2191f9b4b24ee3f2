package object_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// checkCase is an object and the fault that git finds in it; tolerated marks the faults that
// Packhorse lets in.
type checkCase struct {
	kind      object.Type
	data      string
	fault     string
	tolerated bool
}

func commitCase(author, fault string) checkCase {
	return checkCase{
		kind: object.TypeCommit, data: treeLine + "author " + author + "\n" + commitLine + "\nx\n", fault: fault,
	}
}

func treeCase(fault string, names ...string) checkCase {
	var data strings.Builder
	for _, name := range names {
		if folder, ok := strings.CutSuffix(name, "/"); ok {
			data.WriteString(entry("40000", folder, hexA))
		} else {
			data.WriteString(entry("100644", name, hexC))
		}
	}
	return checkCase{kind: object.TypeTree, data: data.String(), fault: fault}
}

const (
	tagStart  = "object " + hexB + "\ntype commit\ntag v1.0\n"
	taggerBad = "tagger T <t> x +0000\n"
	zeroHex   = "0000000000000000000000000000000000000000"
)

func commitData(data, fault string) checkCase {
	return checkCase{kind: object.TypeCommit, data: data, fault: fault}
}

func tagData(data, fault string) checkCase {
	return checkCase{kind: object.TypeTag, data: data, fault: fault}
}

func treeData(data, fault string) checkCase {
	return checkCase{kind: object.TypeTree, data: data, fault: fault}
}

var checkCases = map[string]checkCase{
	"commit":                 commitData(treeLine+parentLine+authorLine+commitLine+"\nx\n", ""),
	"commit without message": commitData(treeLine+authorLine+commitLine, ""),
	"commit with extras": commitData(treeLine+authorLine+commitLine+"encoding x\ngpgsig a\n b\nnonsense\n\nx\n",
		""),
	"commit with upper-case tree": commitData("tree "+strings.ToUpper(hexA)+"\n"+authorLine+commitLine+"\nx\n", ""),
	"commit of nothing":           commitData("", "unreadable"),
	"no tree":                     commitData(authorLine+commitLine+"\nx\n", "unreadable"),
	"bad tree":                    commitData("tree "+hexA+"0\n"+authorLine+commitLine+"\nx\n", "unreadable"),
	"bad parent": commitData(treeLine+"parent "+hexA[1:]+"\n"+authorLine+commitLine+"\nx\n",
		"unreadable"),
	"long parent":            commitData(treeLine+"parent "+hexA+"0\n"+authorLine+commitLine+"\nx\n", "unreadable"),
	"no author":              commitData(treeLine+commitLine+"\nx\n", "missingAuthor"),
	"two authors":            commitData(treeLine+authorLine+authorLine+commitLine+"\nx\n", "multipleAuthors"),
	"no committer":           commitData(treeLine+authorLine+"\nx\n", "missingCommitter"),
	"parent behind author":   commitData(treeLine+authorLine+parentLine+commitLine+"\nx\n", "missingCommitter"),
	"encoding before author": commitData(treeLine+"encoding x\n"+authorLine+commitLine+"\nx\n", "missingAuthor"),
	"NUL in message":         commitData(treeLine+authorLine+commitLine+"\nx\x00\n", "nulInCommit"),
	"NUL in header":          commitData(treeLine+authorLine+commitLine+"a\x00b c\n\nx\n", "nulInHeader"),
	"unterminated header":    commitData(treeLine+authorLine+commitLine+"more", "unterminatedHeader"),
	"bad committer":          commitData(treeLine+authorLine+"committer C <c> x +0000\n\nx\n", "badDate"),
	"missing name":           commitCase("<a> 1 +0000", "missingNameBeforeEmail"),
	"empty name":             commitCase(" <a> 1 +0000", ""),
	"empty email":            commitCase("A <> 1 +0000", ""),
	"nothing":                commitCase("", "missingEmail"),
	"name only":              commitCase("A", "missingEmail"),
	"bracket in name":        commitCase("A> <a> 1 +0000", "badName"),
	"no space before email":  commitCase("A<a> 1 +0000", "missingSpaceBeforeEmail"),
	"email open":             commitCase("A <a 1 +0000", "badEmail"),
	"email twice":            commitCase("A <a<b> 1 +0000", "badEmail"),
	"no space before date": {
		kind: object.TypeCommit, data: treeLine + "author A <a>1 +0000\n" + commitLine + "\nx\n",
		fault: "missingSpaceBeforeDate", tolerated: true,
	},
	"email last": {
		kind:      object.TypeCommit,
		data:      treeLine + "author A <a>\n" + commitLine + "\nx\n",
		fault:     "missingSpaceBeforeDate",
		tolerated: true,
	},
	"zero-padded date":       commitCase("A <a> 01 +0000", "zeroPaddedDate"),
	"zero date":              commitCase("A <a> 0 +0000", ""),
	"zero date without zone": commitCase("A <a> 0", "zeroPaddedDate"),
	"date overflow":          commitCase("A <a> 9223372036854775808 +0000", "badDateOverflow"),
	"date overflow by far":   commitCase("A <a> 99999999999999999999999999 +0000", "badDateOverflow"),
	"largest date":           commitCase("A <a> 9223372036854775807 +0000", ""),
	"negative date":          commitCase("A <a> -1 +0000", "badDateOverflow"),
	"signed date":            commitCase("A <a> +1 +0000", ""),
	"spaces before date":     commitCase("A <a>  \t1 +0000", ""),
	"no date":                commitCase("A <a> x +0000", "badDate"),
	"no zone":                commitCase("A <a> 1", "badDate"),
	"bad zone": {
		kind: object.TypeCommit, data: treeLine + "author A <a> 1 +051800\n" + commitLine + "\nx\n",
		fault: "badTimezone", tolerated: true,
	},
	"no zone but a space": {
		kind: object.TypeCommit, data: treeLine + "author A <a> 1 \n" + commitLine + "\nx\n", fault: "badTimezone",
		tolerated: true,
	},
	"tag":                   tagData(tagStart+"tagger T <t> 1 +0000\n\nx\n", ""),
	"tag without tagger":    tagData(tagStart+"\nx\n", ""),
	"tag without message":   tagData(tagStart+"tagger T <t> 1 +0000\n", ""),
	"tag with NUL":          tagData(tagStart+"\nx\x00\n", ""),
	"tag with odd name":     tagData("object "+hexB+"\ntype commit\ntag a..b c\n\nx\n", ""),
	"tag with extra header": tagData(tagStart+"tagger T <t> 1 +0000\nextra x\n\nx\n", ""),
	"tag of a tag":          tagData("object "+hexD+"\ntype tag\ntag v1.0\n\nmessage\n", ""),
	"tag too short":         tagData("object "+hexD+"\ntype tag\ntag a\n", "unreadable"),
	"tag just long enough":  tagData("object "+hexD+"\ntype tag\ntag ab\n", ""),
	"tag without object": tagData("type commit\ntag v1.0\n\na message that is long enough to be a tag\n",
		"unreadable"),
	"tag with bad object":    tagData("object "+hexA+"0\ntype commit\ntag v1.0\n\nx\n", "unreadable"),
	"tag without type":       tagData("object "+hexA+"\ntag v1.0\n\nand a longer message\n", "unreadable"),
	"tag with bad type":      tagData("object "+hexA+"\ntype comit\ntag v1.0\n\nx\n", "unreadable"),
	"tag without name":       tagData("object "+hexB+"\ntype commit\ntagger T <t> 1 +0000\n\nx\n", "unreadable"),
	"tag with bad tagger":    tagData(tagStart+taggerBad+"\nx\n", "badDate"),
	"tag with NUL in header": tagData(tagStart+"a\x00b\n\nx\n", "nulInHeader"),
	"tag unterminated":       tagData(tagStart+"tagger T <t> 1 +0000", "unterminatedHeader"),
	"empty tree":             treeData("", ""),
	"tree":                   treeCase("", "a", "b.c", "b/", "c"),
	"modes": treeData(
		entry("100755", "a", hexC)+entry("120000", "b", hexC)+entry("160000", "c", hexB)+entry("40000", "d", hexA), "",
	),
	"odd modes": treeData(
		entry("100664", "a", hexC)+entry("120777", "b", hexC)+entry("644", "c", hexB), "",
	),
	"zero-padded mode": {
		kind: object.TypeTree, data: entry("040000", "a", hexA), fault: "zeroPaddedFilemode", tolerated: true,
	},
	"cut off":                       treeData(entry("100644", "a", hexC)[:20], "badTree"),
	"second cut off":                treeData(entry("100644", "a", hexC)+"100644", "badTree"),
	"mode not octal":                treeData(entry("100844", "a", hexC), "badTree"),
	"entry without name":            treeCase("badTree", "a", ""),
	"null ID":                       treeData(entry("100644", "a", zeroHex), "nullSha1"),
	"slash":                         treeCase("fullPathname", "a/b"),
	"leading slash":                 treeCase("fullPathname", "/b"),
	"dot":                           treeCase("hasDot", "."),
	"dot dot":                       treeCase("hasDotdot", "../"),
	"three dots":                    treeCase("", "..."),
	"duplicate":                     treeCase("duplicateEntries", "a", "a"),
	"duplicate folder":              treeCase("duplicateEntries", "a/", "a/"),
	"file and folder":               treeCase("duplicateEntries", "a", "a/"),
	"folder and file":               treeCase("duplicateEntries", "a/", "a"),
	"file, others, folder":          treeCase("duplicateEntries", "foo", "foo.bar", "foo.bar.baz", "foo.bar/", "foo/"),
	"file, far folder":              treeCase("duplicateEntries", "foo", "foo.bar", "foo.bas/", "foo/"),
	"file, others":                  treeCase("", "foo", "foo.bar", "foo.baz/", "foo0", "foo1/"),
	"unsorted":                      treeCase("treeNotSorted", "b", "a"),
	"folder sorted as file":         treeCase("treeNotSorted", "a/", "a.b"),
	".git":                          treeCase("hasDotgit", ".git/"),
	".GIT":                          treeCase("hasDotgit", ".GiT"),
	".git and dots":                 treeCase("hasDotgit", ".git. . "),
	".git stream":                   treeCase("hasDotgit", ".git::$INDEX_ALLOCATION"),
	".git backslash":                treeCase("hasDotgit", `.git\x`),
	"backslash .git":                treeCase("hasDotgit", `a\.git`),
	"backslash twice":               treeCase("hasDotgit", `a\b\.git `),
	"backslash git~1":               treeCase("hasDotgit", `a\GIT~1`),
	"git~1":                         treeCase("hasDotgit", "git~1"),
	"GIT~1 and dots":                treeCase("hasDotgit", "GIT~1..."),
	"git~2":                         treeCase("", "git~2"),
	".git ignored code point":       treeCase("hasDotgit", ".g\u200cit"),
	".git behind byte order mark":   treeCase("hasDotgit", "\ufeff.git"),
	".git ends in bad UTF-8":        treeCase("hasDotgit", ".git\xff"),
	".git ends in U+FFFF":           treeCase("hasDotgit", ".git\uffff"),
	".git other code point":         treeCase("", ".g\u2010it"),
	".gitx":                         treeCase("", ".gi", ".gitx", "git"),
	".gitmodules link":              treeData(entry("120000", ".gitmodules", hexC), "gitmodulesSymlink"),
	".gitmodules link, NTFS":        treeData(entry("120000", ".GITMODULES .", hexC), "gitmodulesSymlink"),
	".gitmodules link, stream":      treeData(entry("120000", ".gitmodules:x", hexC), "gitmodulesSymlink"),
	".gitmodules link, short":       treeData(entry("120000", "GITMOD~4", hexC), "gitmodulesSymlink"),
	".gitmodules link, fifth":       treeData(entry("120000", "gitmod~5", hexC), ""),
	".gitmodules link, hash":        treeData(entry("120000", "GI7EBA~1", hexC), "gitmodulesSymlink"),
	".gitmodules link, hash 12":     treeData(entry("120000", "gi7eb~12", hexC), "gitmodulesSymlink"),
	".gitmodules link, hash 0":      treeData(entry("120000", "gi7eb~02", hexC), ""),
	".gitmodules link, tilde":       treeData(entry("120000", "~1234567 .", hexC), "gitmodulesSymlink"),
	".gitmodules link, hash dots":   treeData(entry("120000", "gi7eba~9..", hexC), "gitmodulesSymlink"),
	".gitmodules link, hash more":   treeData(entry("120000", "gi7eba~10", hexC), ""),
	".gitmodules link, HFS":         treeData(entry("120000", ".gitmod\u200dules", hexC), "gitmodulesSymlink"),
	".gitmodules link, backslash":   treeData(entry("120000", `a\.gitmodules`, hexC), "gitmodulesSymlink"),
	".gitattributes link":           treeData(entry("120000", ".gitattributes", hexC), ""),
	".gitignore and .mailmap links": treeData(entry("120000", ".gitignore", hexC)+entry("120000", ".mailmap", hexC), ""),
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range checkCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := object.Check(test.kind, []byte(test.data))
			var fault *object.CheckError
			switch {
			case test.fault == "" || test.tolerated:
				if err != nil {
					t.Errorf("refused: %v", err)
				}
			case !errors.As(err, &fault):
				t.Errorf("error %v, want %s", err, test.fault)
			case fault.Type != test.kind, fault.Name != test.fault && test.fault != "unreadable":
				t.Errorf("%v, want %s", fault, test.fault)
			}
		})
	}
}

// TestCheckCasesAreGits holds the table above against git.
func TestCheckCasesAreGits(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	ids := map[string]string{}
	for name, test := range checkCases {
		ids[name] = r.Write(test.kind.String(), []byte(test.data))
	}
	faults := r.Fsck()
	for name, test := range checkCases {
		got := faults[ids[name]]
		if test.fault == "" && got != nil || test.fault != "" && !slices.Contains(got, test.fault) {
			t.Errorf("%s: git has %v, the table %q", name, got, test.fault)
		}
	}
}

// TestCheckAgreesWithGit damages objects at random and compares verdicts.
func TestCheckAgreesWithGit(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	var packed bytes.Buffer
	objects := map[string]checkCase{}
	for len(objects) < 2000 {
		names := sortedKeys(checkCases)
		test := checkCases[names[random.IntN(len(names))]]
		test.data = mutate(random, test.data, checkCases[names[random.IntN(len(names))]].data)
		id, err := object.Hash(test.kind, []byte(test.data))
		if err != nil {
			t.Fatal(err)
		}
		objects[id.String()] = test
	}
	w := packtest.NewWriter(&packed, uint32(len(objects)), pack.LevelFast)
	for _, id := range sortedKeys(objects) {
		if _, err := w.WriteWhole(objects[id].kind, []byte(objects[id].data)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := oracle.New(t)
	r.Input(packed.Bytes(), "index-pack", "--stdin")
	faults := r.Fsck("badTimezone", "missingSpaceBeforeDate", "zeroPaddedFilemode")
	for id, test := range objects {
		err := object.Check(test.kind, []byte(test.data))
		git := faults[id]
		var fault *object.CheckError
		switch {
		case err == nil && len(git) > 0:
			t.Errorf("%s %q accepted, git has %v", test.kind, test.data, git)
		case err != nil && len(git) == 0:
			t.Errorf("%s %q refused: %v, git has nothing", test.kind, test.data, err)
		case err != nil && errors.As(err, &fault) && !slices.Contains(git, fault.Name) &&
			!slices.Contains(git, "unreadable") && !slices.Contains(git, "badTree"):
			t.Errorf("%s %q: %v, git has %v", test.kind, test.data, err, git)
		}
	}
}

// mutate damages data a little, with pieces of other at times.
func mutate(random *rand.Rand, data, other string) string {
	b := []byte(data)
	for range 1 + random.IntN(3) {
		at, end := cut(random, len(b))
		switch random.IntN(5) {
		case 0:
			b = slices.Delete(b, at, end)
		case 1:
			from, to := cut(random, len(other))
			b = slices.Insert(b, at, []byte(other[from:to])...)
		case 2:
			b = slices.Insert(b, at, b[at:end]...)
		case 3:
			b = slices.Insert(b, at, "<> \n.~:\\/0\x00-+"[random.IntN(13)])
		case 4:
			if len(b) > 0 {
				b[random.IntN(len(b))] ^= 1 << random.IntN(8)
			}
		}
	}
	return string(b)
}

func cut(random *rand.Rand, size int) (from, to int) {
	from = random.IntN(size + 1)
	return from, min(size, from+random.IntN(24))
}

func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func TestCheckTreeOptions(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 255)
	data := entry("100644", ".gitattributes", hexC) + entry("100644", ".gitmodules", hexB) +
		entry("40000", "GITMOD~1", hexA) +
		entry("120000", "gitatt~1", hexC) + entry("100644", long, hexC)
	var found []string
	check := object.TreeCheck{NameMax: 255, Found: func(name []byte, file object.Dotfile, _ object.Mode, id object.ID) {
		found = append(found, fmt.Sprintf("%s: %s %.4s", name, file, id))
	}}
	if err := object.CheckTree([]byte(data), check); err != nil {
		t.Error(err)
	}
	if want := []string{
		".gitattributes: .gitattributes 4567", ".gitmodules: .gitmodules 89ab", "GITMOD~1: .gitmodules 0123",
	}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	data += entry("100644", long+"n", hexC)
	if err := object.CheckTree([]byte(data), check); !errors.Is(err, object.ErrNameTooLong) {
		t.Errorf("long name: %v", err)
	}
}

// TestCheckTreeFindsBothDotfiles: a short name that is a number alone can stand for either.
func TestCheckTreeFindsBothDotfiles(t *testing.T) {
	t.Parallel()
	var found []object.Dotfile
	check := object.TreeCheck{Found: func(_ []byte, file object.Dotfile, _ object.Mode, _ object.ID) {
		found = append(found, file)
	}}
	if err := object.CheckTree([]byte(entry("100644", "~1000000", hexC)), check); err != nil {
		t.Error(err)
	}
	if want := []object.Dotfile{object.Gitmodules, object.Gitattributes}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}
