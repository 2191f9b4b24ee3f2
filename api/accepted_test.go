package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/githttp"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
	"packhorse/pack/pktline"
)

// acceptance is a server that accepts things that may be wrong, and another one that must accept
// what git has cloned from the first.
type acceptance struct {
	t           *testing.T
	host, other *engine.Host
	from, to    *fixture
	// ignored are the faults that git is not to look for.
	ignored []string
	stage   int
}

func newAcceptance(t *testing.T, config engine.Config) *acceptance {
	t.Helper()
	a := &acceptance{t: t}
	a.host, a.from = newGitServer(t, config)
	a.other, a.to = newGitServer(t, engine.Config{})
	return a
}

// newGitServer is a server for git over empty stores.
func newGitServer(t *testing.T, config engine.Config) (*engine.Host, *fixture) {
	t.Helper()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), config)
	t.Cleanup(shut)
	door := githttp.New(githttp.Config{Host: host})
	return host, serve(t, nil, func(c *api.Config) { c.Git = api.Git{Serve: door.Serve, Refuse: githttp.Refuse} })
}

// gitURL is the address of a repository for git, with a token that may write.
func (f *fixture) gitURL(repo string) string {
	return fmt.Sprintf("http://t:%s@%s/%s.git", strings.TrimPrefix(token(repo, "git:write"), "Bearer "), f.address, repo)
}

// pin has branches lead to commits of a repository, so that a clone gets them.
func (a *acceptance) pin(w *enginetest.Written) {
	a.t.Helper()
	var commands []engine.Command
	for i, id := range w.Commits {
		commands = append(commands, engine.Command{Name: fmt.Sprintf("refs/heads/pin/%d", i), New: id})
	}
	enginetest.Push(a.t, w.Repo, packtest.Encode(), commands...)
}

// survives has git clone repositories, check them and push them into the other server; before and
// after maintenance, and after a new search for all deltas.
func (a *acceptance) survives(repos ...string) {
	a.t.Helper()
	a.fsck("as it came", a.host)
	a.cloned("as it came", repos...)
	a.maintain(engine.MaintainOptions{All: true})
	a.cloned("after gc", repos...)
	a.maintain(engine.MaintainOptions{All: true, RepackOptions: packgen.RepackOptions{Anew: true}})
	a.cloned("after gc --anew", repos...)
	a.fsck("the other server", a.other)
}

func (a *acceptance) maintain(options engine.MaintainOptions) {
	a.t.Helper()
	for done, err := range a.host.Maintain(a.t.Context(), options) {
		if err != nil || done.Err != nil {
			a.t.Fatal(err, done.Err)
		}
	}
	a.fsck(fmt.Sprintf("after maintenance, anew %v", options.Anew), a.host)
}

func (a *acceptance) fsck(when string, host *engine.Host) {
	a.t.Helper()
	for checked, err := range host.Fsck(a.t.Context(), engine.FsckOptions{}) {
		if err != nil || checked.Damaged() || checked.Objects.WarningCount > 0 {
			a.t.Errorf("%s: fsck: %v, %q, %q", when, err, checked.Problems(), checked.Warnings())
		}
	}
}

func (a *acceptance) cloned(when string, repos ...string) {
	a.t.Helper()
	dir := a.t.TempDir()
	for _, repo := range repos {
		clone := filepath.Join(dir, repo)
		fetching, checking := []string{"-c", "transfer.fsckObjects=true"}, []string{"-C", clone}
		for _, fault := range a.ignored {
			fetching = append(fetching, "-c", "fetch.fsck."+fault+"=ignore")
			checking = append(checking, "-c", "fsck."+fault+"=ignore")
		}
		pushed := fmt.Sprint(repo, a.stage)
		a.stage++
		enginetest.Create(a.t, a.other, pushed)
		for _, args := range [][]string{
			append(fetching, "clone", "--quiet", "--mirror", a.from.gitURL(repo), clone),
			append(checking, "fsck", "--strict", "--full", "--no-dangling", "--no-progress"),
			{"-C", clone, "push", "--quiet", "--mirror", a.to.gitURL(pushed)},
		} {
			git := exec.CommandContext(a.t.Context(), "git", args...)
			git.Env = oracle.EnvOutside(dir)
			if told, err := git.CombinedOutput(); err != nil {
				a.t.Fatalf("%s %s: git %s: %v\n%s", repo, when, strings.Join(args, " "), err, told)
			}
		}
	}
}

// TestWhatTheAPIAcceptsGitClones makes writes of every kind that may be refused. git clones the
// results of all others with strict checks, and another server takes them.
func TestWhatTheAPIAcceptsGitClones(t *testing.T) {
	t.Parallel()
	accepted, count := 0, oracle.CaseCount(t, 200, 100)
	batch := min(count, 1000) // writes to one server, so that git is asked once for all of them
	for done := 0; done < count && !t.Failed(); done += batch {
		t.Run(fmt.Sprint("seed ", done/batch), func(t *testing.T) {
			a := newAcceptance(t, engine.Config{})
			w := enginetest.NewWriter(t, a.host, uint64(done/batch))
			for range batch {
				err := w.Write(t.Context())
				if err == nil {
					accepted++
				} else if problem.From(err).Status >= http.StatusInternalServerError {
					t.Errorf("a write failed: %v", err)
				}
			}
			var names []string
			for _, repo := range w.Repos {
				a.pin(repo)
				names = append(names, repo.Name)
			}
			a.survives(names...)
		})
	}
	if accepted < count/5 {
		t.Errorf("of %d writes only %d were accepted", count, accepted)
	}
	t.Logf("%d of %d writes accepted", accepted, count)
}

// TestWhatPushesAcceptGitClones pushes packs that may be wrong, with refs to all objects in them
// that are not those of an ordinary history. git clones what is accepted with strict checks, and
// another server takes it.
func TestWhatPushesAcceptGitClones(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(odbtest.PackMutations))
	accepted, count := 0, oracle.CaseCount(t, 200, 100)
	batch := min(count, 1000) // pushes to one server
	for done := 0; done < count && !t.Failed(); done += batch {
		seed := uint64(done / batch)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			config := engine.Config{}
			if seed%2 == 1 {
				config.Objects.Limits.HotValueBytes = 1 // segments
			}
			a := newAcceptance(t, config)
			a.ignored = toleratedFaults
			enginetest.Create(t, a.host, "r")
			s := odbtest.NewPackSource(t, oracle.History{Seed: seed, Commits: 20, Files: 8, Tags: true},
				rand.New(rand.NewPCG(seed, 23)))
			if report := a.push(s.OldPack, s.Old+" refs/heads/old"); report[0] != "unpack ok" {
				t.Fatal(report)
			}
			for i := range batch {
				packed := odbtest.PackMutations[names[(done+i)%len(names)]](s)
				refs := []string{fmt.Sprintf("%s refs/heads/%d", s.Tip, i)}
				for j, id := range s.Odd {
					refs = append(refs, fmt.Sprintf("%s refs/odd/%d/%d", id, i, j))
				}
				if slices.ContainsFunc(a.push(packed, refs...), func(line string) bool { return strings.HasPrefix(line, "ok ") }) {
					accepted++
				}
			}
			a.survives("r")
		})
	}
	if accepted < count/8 {
		t.Errorf("of %d pushes only %d were accepted", count, accepted)
	}
	t.Logf("%d of %d pushes accepted", accepted, count)
}

// toleratedFaults are those that real histories are full of, and that are accepted for that reason.
var toleratedFaults = []string{"badTimezone", "missingSpaceBeforeDate", "zeroPaddedFilemode"}

// push sends a pack and refs to create, each as "ID name", to the repository "r", and returns the
// report.
func (a *acceptance) push(packed []byte, created ...string) (report []string) {
	a.t.Helper()
	var body []byte
	for i, ref := range created {
		line := object.ZeroID.String() + " " + ref
		if i == 0 {
			line += "\x00 report-status"
		}
		body = pktline.AppendLine(body, []byte(line))
	}
	body = append(append(body, "0000"...), packed...)
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.from.gitURL("r")+"/git-receive-pack",
		bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	answer, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		a.t.Fatal(err)
	}
	in := pktline.NewReader(bytes.NewReader(answer))
	for {
		kind, line, err := in.Read()
		if errors.Is(err, io.EOF) && len(report) > 0 {
			return report
		}
		if err != nil || response.StatusCode >= http.StatusInternalServerError {
			a.t.Fatalf("a push is answered with %d, %q, %v", response.StatusCode, report, err)
		}
		if kind == pktline.Data {
			report = append(report, strings.TrimSpace(string(line)))
		}
	}
}
