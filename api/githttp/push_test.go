package githttp_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/pktline"
	"packhorse/refs"
)

const (
	zero = "0000000000000000000000000000000000000000"
	// allCapabilities are those of a git client of today.
	allCapabilities = "report-status-v2 side-band-64k object-format=sha1 agent=test"
)

// report is the answer to a push.
type report struct {
	lines   []string // unpack, ok, ng
	remarks []string // further output for the user
	fatal   string
}

func readReport(tb testing.TB, answer []byte, banded bool) report {
	tb.Helper()
	var out report
	if banded {
		var inner []byte
		var text strings.Builder
		in := pktline.NewReader(bytes.NewReader(answer))
		for {
			kind, payload, err := in.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				tb.Fatalf("answer %q: %v", answer, err)
			}
			switch {
			case kind != pktline.Data:
			case payload[0] == pktline.BandData:
				inner = append(inner, payload[1:]...)
			case payload[0] == pktline.BandProgress:
				text.Write(payload[1:])
			default:
				out.fatal += string(payload)
			}
		}
		answer = inner
		out.remarks = slices.DeleteFunc(lines(text.String()), func(line string) bool { return strings.Contains(line, "%") })
	}
	for _, line := range readTranscript(tb, answer).lines {
		if line != flush {
			out.lines = append(out.lines, line)
		}
	}
	return out
}

// pushBody is a request to receive-pack.
func pushBody(capabilities string, commands []string, rest ...[]byte) []byte {
	commands = slices.Clone(commands)
	commands[0] += "\x00 " + capabilities
	return append(request(append(commands, flush)...), bytes.Join(rest, nil)...)
}

// packOf makes a pack of the objects reachable from some revisions of a repository, as git
// pack-objects --revs takes them.
func packOf(git *oracle.Repository, revisions ...string) []byte {
	return git.Input([]byte(strings.Join(revisions, "\n")+"\n"), "pack-objects", "-q", "--revs", "--stdout",
		"--delta-base-offset", "--thin")
}

// comparePush gives both the same push, and wants the same report and the same refs afterwards.
func (tw *twins) comparePush(body []byte, exact bool) (got, want report) {
	tw.t.Helper()
	banded := bytes.Contains(body, []byte("side-band-64k"))
	got = readReport(tw.t, tw.remote.post("git-receive-pack", 0, body), banded)
	want = readReport(tw.t, tw.run(0, body, "receive-pack", "--stateless-rpc", tw.git.Dir), banded)
	gotLines, wantLines := got.lines, want.lines
	if !exact {
		gotLines, wantLines = outcomes(got.lines), outcomes(want.lines)
	}
	if !slices.Equal(gotLines, wantLines) {
		tw.t.Errorf("reported\n%s\nand by git\n%s", strings.Join(gotLines, "\n"), strings.Join(wantLines, "\n"))
	}
	if got, want := tw.remote.refs(refs.Main), allRefs(tw.git); !slices.Equal(got, want) {
		tw.t.Errorf("refs\n%s\nand of git\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return got, want
}

// outcomes cuts the reasons off a report.
func outcomes(report []string) []string {
	var out []string
	for _, line := range report {
		words := strings.Fields(line)
		if words[0] == "unpack" && line != "unpack ok" {
			words[1] = "failed"
		}
		out = append(out, strings.Join(words[:min(2, len(words))], " "))
	}
	return out
}

// TestPushAgainstGit sends commands that git clients do not send, or only when they lose a race.
func TestPushAgainstGit(t *testing.T) {
	t.Parallel()
	// In commands, names in braces stand for objects.
	tests := map[string]struct {
		commands     []string
		capabilities string
		revisions    []string // of the pack; none: no pack
		loose        bool     // only the results of commands are compared, not their wording
		remark       string   // a remark of git's that the server must send, too
	}{
		"create":          {commands: []string{"{0} {new} refs/heads/new"}, revisions: []string{"new", "^main"}},
		"update":          {commands: []string{"{main} {new} refs/heads/main"}, revisions: []string{"new", "^main"}},
		"rewind":          {commands: []string{"{main} {old} refs/heads/main"}, revisions: []string{"^main"}},
		"same":            {commands: []string{"{main} {main} refs/heads/main"}, revisions: []string{"^main"}},
		"everything anew": {commands: []string{"{0} {new} refs/heads/new"}, revisions: []string{"new"}},
		"old client": {
			commands: []string{"{0} {new} refs/heads/new"}, revisions: []string{"new", "^main"}, capabilities: "report-status",
		},
		"no report": {
			commands: []string{"{0} {new} refs/heads/new"}, revisions: []string{"new", "^main"}, capabilities: "side-band-64k",
		},
		"silent client": {
			commands: []string{"{0} {new} refs/heads/new"}, revisions: []string{"new", "^main"}, capabilities: "quiet",
		},
		"odd names": {commands: []string{
			"{0} {old} refs/heads/ünï", "{0} {old} refs/x/y", "{0} {old} refs/heads/a.b", "{0} {old} refs/heads/-x",
		}, revisions: []string{"^main"}},
		"tag of a blob": {
			commands:  []string{"{0} {blob} refs/tags/blob", "{0} {tree} refs/tags/tree", "{0} {tag} refs/tags/tag"},
			revisions: []string{"^main", "blob", "tree", "tag"},
		},
		"delete":       {commands: []string{"{side} {0} refs/heads/side"}},
		"delete a tag": {commands: []string{"{v9} {0} refs/tags/v9", "{side} {0} refs/heads/side"}},
		"deletion and update": {
			commands:  []string{"{side} {0} refs/heads/side", "{main} {new} refs/heads/main"},
			revisions: []string{"new", "^main"},
		},
		"room for a folder": {
			commands: []string{"{side} {0} refs/heads/side", "{0} {old} refs/heads/side/x"}, revisions: []string{"^main"},
		},

		"lost race": {
			commands: []string{"{old} {new} refs/heads/main"}, revisions: []string{"new", "^main"},
			remark: "error: cannot lock ref 'refs/heads/main': is at {main} but expected {old}",
		},
		"lost race to create": {
			commands: []string{"{0} {new} refs/heads/main"}, revisions: []string{"new", "^main"},
			remark: "error: cannot lock ref 'refs/heads/main': reference already exists",
		},
		"update of nothing": {
			commands: []string{"{old} {new} refs/heads/none"}, revisions: []string{"new", "^main"},
		},
		"lost race to delete":    {commands: []string{"{old} {0} refs/heads/side"}},
		"deletion of nothing":    {commands: []string{"{old} {0} refs/heads/none"}},
		"deletion that was done": {commands: []string{"{side} {0} refs/heads/side", "{side} {0} refs/heads/side"}},
		"two values for one": {
			commands: []string{"{0} {old} refs/heads/x", "{0} {new} refs/heads/x"}, revisions: []string{"new", "^main"},
		},
		"deletion of the default": {
			commands: []string{"{main} {0} refs/heads/main"},
			remark:   "error: refusing to delete the current branch: refs/heads/main",
		},
		"default and another branch": {commands: []string{"{main} {0} refs/heads/main", "{side} {0} refs/heads/side"}},
		"file in a file": {
			commands: []string{"{0} {old} refs/heads/main/x"}, revisions: []string{"^main"},
			remark: "error: cannot lock ref 'refs/heads/main/x': 'refs/heads/main' exists; cannot create 'refs/heads/main/x'",
		},
		"file over a folder": {
			commands: []string{"{0} {old} refs/heads/d/x", "{0} {old} refs/heads/d"}, revisions: []string{"^main"},
		},
		"one of several": {
			commands:  []string{"{0} {new} refs/heads/new", "{old} {new} refs/heads/main", "{0} {old} refs/heads/b"},
			revisions: []string{"new", "^main"},
		},
		"funny names": {commands: []string{
			"{0} {old} refs/heads/a..b", "{0} {old} HEAD", "{0} {old} main", "{0} {old} refs/heads",
			"{0} {old} refs/heads/x.lock", "{0} {old} refs/heads/a b", "{old} {0} refs/heads/..", "{0} {old} refs/stash",
		}, revisions: []string{"^main"}},
		"branch to a tag": {
			commands: []string{"{0} {tag} refs/heads/tag", "{0} {old} refs/heads/good"}, revisions: []string{"^main", "tag"},
		},
		"branch to a blob": {commands: []string{"{0} {blob} refs/heads/blob"}, revisions: []string{"^main", "blob"}},
		"missing object": {
			commands: []string{"{0} {none} refs/heads/none", "{0} {new} refs/heads/new"}, revisions: []string{"new", "^main"},
		},
		"atomic": {
			commands:     []string{"{0} {new} refs/heads/new", "{side} {0} refs/heads/side"},
			revisions:    []string{"new", "^main"},
			capabilities: allCapabilities + " atomic",
		},
		"atomic, lost race": {
			commands:  []string{"{0} {new} refs/heads/new", "{old} {new} refs/heads/main", "{side} {0} refs/heads/side"},
			revisions: []string{"new", "^main"}, capabilities: allCapabilities + " atomic", loose: true,
		},
		"atomic, one funny": {
			commands:     []string{"{0} {new} refs/heads/new", "{0} {old} refs/heads/a..b"},
			revisions:    []string{"new", "^main"},
			capabilities: allCapabilities + " atomic",
		},
		"atomic, one twice": {
			commands:     []string{"{0} {new} refs/heads/new", "{0} {old} refs/heads/new"},
			revisions:    []string{"new", "^main"},
			capabilities: allCapabilities + " atomic",
			loose:        true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := map[string]string{"0": zero, "none": strings.Repeat("5", 40)}
			tw := newTwins(t, func(git *oracle.Repository) {
				objects["main"] = git.Seed(oracle.History{Seed: 51, Commits: 15, Merges: true, Tags: true})
				objects["side"], objects["v9"] = git.Git("rev-parse", "side"), git.Git("rev-parse", "v9")
				objects["old"] = git.Git("rev-parse", "main~2")
			})
			other := oracle.New(t) // where the new objects are
			other.Git("fetch", "--quiet", tw.git.Dir, "refs/*:refs/*")
			objects["blob"] = other.Write("blob", []byte("new blob\n"))
			objects["tree"] = strings.TrimSpace(string(other.Input([]byte("100644 blob "+objects["blob"]+"\tfile\n"), "mktree")))
			objects["new"] = other.Git("commit-tree", "-m", "new", "-p", objects["main"], objects["tree"])
			other.Git("tag", "-a", "-m", "tag", "tag", objects["new"])
			objects["tag"] = other.Git("rev-parse", "tag")
			replace := func(text string) string {
				for name, id := range objects {
					text = strings.ReplaceAll(text, "{"+name+"}", id)
				}
				return text
			}
			var commands, revisions []string
			for _, command := range test.commands {
				commands = append(commands, replace(command))
			}
			var pack []byte
			if len(test.revisions) > 0 {
				for _, revision := range test.revisions {
					name, hidden := strings.CutPrefix(revision, "^")
					revisions = append(revisions, map[bool]string{true: "^"}[hidden]+objects[name])
				}
				pack = packOf(other, revisions...)
			}
			got, want := tw.comparePush(pushBody(cmp.Or(test.capabilities, allCapabilities), commands, pack), !test.loose)
			if remark := replace(test.remark); remark != "" {
				for who, remarks := range map[string][]string{"packhorse": got.remarks, "git": want.remarks} {
					if !slices.Contains(remarks, remark) {
						t.Errorf("%s says %q, not %q", who, remarks, remark)
					}
				}
			}
		})
	}
}

// TestPushFirstBranch pushes a branch that is not main to a new repository: a clone has it checked
// out.
func TestPushFirstBranch(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	if _, err := r.host.CreateRepository(
		t.Context(), engine.Actor{Org: enginetest.Org}, engine.CreateRequest{Name: "fresh"},
	); err != nil {
		t.Fatal(err)
	}
	git := oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 52, Commits: 3})
	git.Git("push", "--quiet", r.base+"/fresh.git", "main:refs/heads/trunk")
	versions(t, func(t *testing.T, version int) { //nolint:thelper // it is the test
		clone := cloneFrom(t, r.base+"/fresh.git", version)
		if name, id := clone.Git("symbolic-ref", "HEAD"), clone.Git("rev-parse", "HEAD"); name != "refs/heads/trunk" ||
			id != tip {
			t.Errorf("HEAD is %s at %s", name, id)
		}
	})
}

// TestPushWithoutDefault pushes branches other than the configured default branch: the user is told
// that HEAD leads nowhere.
func TestPushWithoutDefault(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	git := oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 52, Commits: 3})
	push := func(variant, name string) []string {
		body := pushBody(allCapabilities, []string{zero + " " + tip + " refs/heads/" + name}, packOf(git, tip))
		return r.pushVariant(variant, "", body).remarks
	}
	warning := "warning: HEAD names the branch main, which does not exist: a clone checks out nothing"
	for _, step := range []struct {
		variant, name string
		warned        bool
	}{{"+ephemeral", "draft", false}, {"", "a", true}, {"", "b", true}, {"", "main", false}, {"", "c", false}} {
		if remarks := push(step.variant, step.name); slices.Contains(remarks, warning) != step.warned {
			t.Errorf("a push of %s%s says %q", step.name, step.variant, remarks)
		}
	}
}
