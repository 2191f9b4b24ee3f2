package revwalk_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// shallowInfo returns the lines of the shallow-info section of an answer of git upload-pack, in
// protocol v2.
func shallowInfo(t *testing.T, g *odbtest.Repository, arguments []string) ([]string, error) {
	t.Helper()
	var request bytes.Buffer
	w := pktline.NewWriter(&request)
	for _, line := range []string{"command=fetch", "object-format=sha1"} {
		odbtest.Must(t, w.Printf("%s\n", line))
	}
	odbtest.Must(t, w.Delim())
	for _, line := range arguments {
		odbtest.Must(t, w.Printf("%s\n", line))
	}
	odbtest.Must(t, w.Printf("done\n"))
	odbtest.Must(t, w.Flush())
	cmd := exec.CommandContext(t.Context(), "git", "upload-pack", "--stateless-rpc", g.Dir)
	cmd.Env = append(oracle.Env(g.Dir), "GIT_PROTOCOL=version=2")
	cmd.Stdin = &request
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New(strings.TrimSpace(stderr.String()))
	}
	r := pktline.NewReader(bytes.NewReader(out))
	var told []string
	for {
		kind, payload, err := r.Read()
		line := strings.TrimSuffix(string(payload), "\n")
		if err != nil || kind != pktline.Data || line == "packfile" {
			return told, err
		}
		if line != "shallow-info" {
			told = append(told, line)
		}
	}
}

// deepenLines returns the arguments of a fetch with such options; refs name options.Not.
func deepenLines(wants []object.ID, options revwalk.DeepenOptions, refs []string) []string {
	lines := []string{"no-progress"}
	for _, want := range wants {
		lines = append(lines, "want "+want.String())
	}
	for _, id := range options.ClientShallow {
		lines = append(lines, "shallow "+id.String())
	}
	if options.Depth > 0 {
		lines = append(lines, fmt.Sprintf("deepen %d", options.Depth))
	}
	if options.Relative {
		lines = append(lines, "deepen-relative")
	}
	if options.Since != 0 {
		lines = append(lines, fmt.Sprintf("deepen-since %d", options.Since))
	}
	for _, ref := range refs {
		lines = append(lines, "deepen-not "+ref)
	}
	return lines
}

func TestDeepenAgainstGit(t *testing.T) {
	t.Parallel()
	for _, options := range []odbtest.HistoryOptions{
		{Seed: 21, CommitCount: 120},
		{Seed: 22, CommitCount: 200, Skew: 4000},
	} {
		t.Run(fmt.Sprint(options.Seed), func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, options)
			v := odbtest.Clone(t, g.Repository)
			r := rand.New(rand.NewPCG(options.Seed, 4))
			tips, commits := g.Tips(), g.Commits()
			names := strings.Fields(g.Git("for-each-ref", "--format=%(refname)", "refs/heads"))
			for range 80 {
				wants := odbtest.Pick(r, tips, 1+r.IntN(3))
				deepen := revwalk.DeepenOptions{ClientShallow: odbtest.Pick(r, commits, r.IntN(4)), Tips: tips}
				slices.SortFunc(deepen.ClientShallow, object.ID.Compare)
				deepen.ClientShallow = slices.Compact(deepen.ClientShallow)
				var not []string
				switch r.IntN(5) {
				case 0:
					deepen.Depth = revwalk.DepthInfinite
				case 1:
					deepen.Depth, deepen.Relative = 1+r.IntN(6), true
				case 2:
					deepen.Since = 1_500_000_000 + r.Int64N(20_000)
				case 3:
					not = append(not, names[r.IntN(len(names))])
					deepen.Not = g.IDs("", "rev-parse", not[0])
				default:
					deepen.Depth = 1 + r.IntN(8)
				}
				compareDeepen(t, g, v, wants, deepen, not)
			}
		})
	}
}

func compareDeepen(
	t *testing.T, g *odbtest.Repository, v *odb.View, wants []object.ID, options revwalk.DeepenOptions, not []string,
) {
	t.Helper()
	want, gitErr := shallowInfo(t, g, deepenLines(wants, options, not))
	shallow, unshallow, err := revwalk.Deepen(t.Context(), v, wants, options)
	if errors.Is(err, revwalk.ErrNoCommits) && gitErr != nil &&
		strings.HasSuffix(gitErr.Error(), revwalk.ErrNoCommits.Error()) {
		return
	}
	if err != nil || gitErr != nil {
		t.Fatalf("deepen %v %+v: %v, git: %v", wants, options, err, gitErr)
	}
	got := strings.Fields(odbtest.Lines("shallow:", shallow) + odbtest.Lines("unshallow:", unshallow))
	for i := range got {
		got[i] = strings.Replace(got[i], ":", " ", 1)
	}
	if options.Relative { // git's order is that of a hash table
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		options.Tips = nil
		t.Errorf("deepen %v %+v\n got %q\nwant %q", wants, options, got, want)
	}
}
