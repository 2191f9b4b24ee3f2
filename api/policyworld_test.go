package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// history has the commits to which the tests of policies move refs: the installed git has made it,
// and knows the signers.
type history struct {
	git    *oracle.Repository
	public []byte            // the key that the organization has registered
	ids    map[string]string // from a name to an object
	empty  []byte            // a pack of nothing

	mu    sync.Mutex // guards the fields below
	packs map[string][]byte

	parents map[string][]string
	signed  map[string]bool // by the registered key, as git says
	peeled  map[string]string
}

// policyTime is the constant time of the hosts of these tests: their commits have the same IDs each
// time.
var policyTime = time.Unix(1_700_000_000, 0)

func newHistory(t *testing.T) *history {
	t.Helper()
	ours, other := oracle.SSHSigner(t, "ed25519"), oracle.SSHSigner(t, "ed25519")
	h := &history{git: oracle.New(t), public: ours.Public, ids: map[string]string{}, packs: map[string][]byte{}}
	commit := func(name string, by *oracle.Signer, files string, parents ...string) {
		args := []string{"commit-tree", "-m", name, h.tree(files)}
		for _, parent := range parents {
			args = append(args, "-p", h.ids[parent])
		}
		if by != nil {
			args = append(append([]string{}, by.Args...), append(args, "-S")...)
		}
		h.ids[name] = h.git.Git(args...)
	}
	commit("root", &ours, "f=1")
	commit("base", &ours, "f=2", "root")
	commit("signed", &ours, "f=2 g=1", "base")
	commit("unsigned", nil, "f=2 h=1", "base")
	commit("other key's", &other, "f=2 o=1", "base")
	commit("signed on unsigned", &ours, "f=2 h=1 v=1", "unsigned")
	commit("signed merge of unsigned", &ours, "f=2 g=1 h=1", "signed", "unsigned")
	commit("signed aside", &ours, "f=1 s=1", "root")
	commit("unsigned aside", nil, "f=1 s=2", "root")
	h.ids["blob"] = h.blob("blob")
	h.ids["note"] = h.blob("a note\n")
	tree := strings.TrimSpace(string(h.git.Input(fmt.Appendf(nil, "100644 blob %s\t%s\n", h.ids["note"], h.ids["base"]),
		"mktree")))
	h.ids["notes"] = h.git.Git(append(append([]string{}, ours.Args...), "commit-tree", "-S", "-m", "notes", tree)...)
	for _, name := range []string{"signed", "unsigned"} {
		tag := fmt.Sprintf("object %s\ntype commit\ntag t\ntagger A <a@example.com> 1700000000 +0000\n\nt\n", h.ids[name])
		h.ids["tag of "+name] = h.git.Write("tag", []byte(tag))
	}
	h.empty = h.git.Input(nil, "pack-objects", "--stdout", "-q")
	h.learn(t)
	return h
}

func (h *history) blob(content string) string {
	return strings.TrimSpace(string(h.git.Input([]byte(content), "hash-object", "-w", "--stdin")))
}

// tree stores files, given as "name=content ...".
func (h *history) tree(files string) string {
	var lines strings.Builder
	for file := range strings.FieldsSeq(files) {
		name, content, _ := strings.Cut(file, "=")
		fmt.Fprintf(&lines, "100644 blob %s\t%s\n", h.blob(content+"\n"), name)
	}
	return strings.TrimSpace(string(h.git.Input([]byte(lines.String()), "mktree")))
}

// learn asks git how the objects that have names are related, and which commits are signed.
func (h *history) learn(t *testing.T) {
	t.Helper()
	h.parents, h.signed, h.peeled = map[string][]string{}, map[string]bool{}, map[string]string{}
	for _, id := range h.ids {
		if commit, err := h.git.Try(nil, "rev-parse", "--verify", "--quiet", id+"^{commit}"); err == nil {
			h.peeled[id] = strings.TrimSpace(string(commit))
		}
	}
	tips := slices.Sorted(maps.Values(h.peeled))
	for line := range strings.Lines(h.git.Git(append([]string{"rev-list", "--parents"}, tips...)...)) {
		ids := strings.Fields(line)
		h.parents[ids[0]] = ids[1:]
		h.peeled[ids[0]] = ids[0]
	}
	allowed := filepath.Join(t.TempDir(), "signers")
	must(os.WriteFile(allowed, append([]byte("* "), h.public...), 0o600))
	args := append([]string{"-c", "gpg.ssh.allowedSignersFile=" + allowed, "log", "--format=%H %G?"}, tips...)
	for line := range strings.Lines(h.git.Git(args...)) {
		id, verdict, _ := strings.Cut(strings.TrimSpace(line), " ")
		h.signed[id] = verdict == "G"
	}
}

// reach returns the commits that ids lead to. An object that git does not know is one that a server
// has just made.
func (h *history) reach(ids ...string) map[string]bool {
	all := map[string]bool{}
	for len(ids) > 0 {
		id := ids[len(ids)-1]
		ids = ids[:len(ids)-1]
		if !all[id] {
			all[id] = true
			ids = append(ids, h.parents[id]...)
		}
	}
	return all
}

// commit peels an object, which may be one that a server has just made; it is "" for an object that
// leads to no commit.
func (h *history) commit(id string) string {
	if commit, ok := h.peeled[id]; ok {
		return commit
	}
	if slices.Contains(slices.Collect(maps.Values(h.ids)), id) {
		return ""
	}
	return id
}

// brings reports whether a ref that moves to id gets an unsigned commit that is not reachable from
// any of the ids of not.
func (h *history) brings(id string, not ...string) bool {
	commit := h.commit(id)
	if commit == "" {
		return false
	}
	var hide []string
	for _, id := range not {
		if commit := h.commit(id); commit != "" {
			hide = append(hide, commit)
		}
	}
	known := h.reach(hide...)
	for id := range h.reach(commit) {
		if !known[id] && !h.signed[id] {
			return true
		}
	}
	return false
}

// pack returns a pack of the objects reachable from ids.
func (h *history) pack(ids ...string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := strings.Join(ids, " ")
	if h.packs[key] == nil {
		h.packs[key] = h.git.Input([]byte(strings.Join(ids, "\n")+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	}
	return h.packs[key]
}

// policyServer is a server with both doors, whose organization has registered the key of a history.
type policyServer struct {
	*writable
	*history
	host *engine.Host
	fs   vfs.FS
}

func newPolicyServer(t *testing.T, h *history) *policyServer {
	t.Helper()
	s := &policyServer{history: h, fs: vfs.NewMem()}
	host, shut := enginetest.OpenOn(t, s.fs, engine.Config{
		SecretKey:   secretKey,
		Now:         func() time.Time { return policyTime },
		SigningKeys: func(string) [][]byte { return [][]byte{h.public} },
	})
	t.Cleanup(shut)
	s.host = host
	git := githttp.New(githttp.Config{Host: host})
	s.writable = newWritableOn(t, host, func(c *api.Config) { c.Git = api.Git{Serve: git.Serve, Refuse: githttp.Refuse} })
	return s
}

// boundToken is a token for a repository under a policy.
func boundToken(repo string, rules []auth.RefRule, ops ...string) string {
	text, err := auth.Mint(keys().private, auth.Claims{
		Org: "acme", Subject: "ci", Repo: repo, Scopes: []string{"git:write", "repo:write"},
		Expires: time.Now().Add(time.Hour), Refs: rules, Ops: ops,
	})
	must(err)
	return text
}

// standing is all that a client sees of the refs of a repository. The zero value is that of one
// that is not there.
type standing struct {
	head     string
	sequence uint64
	refs     map[string]string // by stored name
}

func (s *standing) equal(other *standing) bool {
	return s.head == other.head && s.sequence == other.sequence && maps.Equal(s.refs, other.refs)
}

func (s *policyServer) standing(repo string) (now standing) {
	s.t.Helper()
	r, err := s.host.Repository(context.Background(), "acme", repo)
	if errors.Is(err, engine.ErrNotFound) {
		return now
	}
	must(err)
	now.refs = map[string]string{}
	for _, space := range []refs.Namespace{refs.Main, refs.Ephemeral} {
		shown, err := r.Advertise(context.Background(), space)
		must(err)
		for ref, err := range shown.All(context.Background(), "") {
			must(err)
			now.refs[space.Full(ref.Name)] = ref.ID.String()
		}
		if space == refs.Main {
			now.head, now.sequence = shown.HeadName(), shown.Version().Sequence
		}
		must(shown.Close())
	}
	return now
}

// has reports whether a repository has an object.
func (s *policyServer) has(repo, id string) bool {
	s.t.Helper()
	r, err := s.host.Repository(context.Background(), "acme", repo)
	if errors.Is(err, engine.ErrNotFound) {
		return false
	}
	must(err)
	view, err := r.Objects(context.Background())
	must(err)
	defer view.Close()
	parsed, err := object.ParseID(id)
	must(err)
	_, err = view.Stat(context.Background(), parsed)
	if err != nil && !errors.Is(err, odb.ErrNotFound) {
		must(err)
	}
	return err == nil
}

// files lists the store of files, except for files that reads of forks create in the background. It
// sees none where stores are shared.
func (s *policyServer) files() (all []string) {
	if odbtest.Shared() {
		return nil
	}
	s.t.Helper()
	var list func(dir string)
	list = func(dir string) {
		names, err := s.fs.List(dir)
		must(err)
		for _, name := range names {
			path := s.fs.PathJoin(dir, name)
			info, err := s.fs.Stat(path)
			must(err)
			if info.IsDir() {
				list(path)
			} else {
				all = append(all, path)
			}
		}
	}
	list("files")
	slices.Sort(all)
	return all
}

// place pushes to a repository without an actor: names of stored refs in the order of the
// arguments, each with an ID behind it, "" to delete the ref.
func (s *policyServer) place(repo *engine.Repository, pack []byte, pairs ...string) {
	s.t.Helper()
	now := s.standing(repo.Item().Name)
	for _, space := range []refs.Namespace{refs.Main, refs.Ephemeral} {
		var commands []engine.Command
		for i := 0; i < len(pairs); i += 2 {
			in, name := refs.SplitNamespace(pairs[i])
			if in != space {
				continue
			}
			command := engine.Command{Name: name}
			if at := now.refs[pairs[i]]; at != "" {
				command.Old = parsedID(at)
			}
			if pairs[i+1] != "" {
				command.New = parsedID(pairs[i+1])
			}
			commands = append(commands, command)
		}
		if len(commands) == 0 {
			continue
		}
		ctx := context.Background()
		p, err := repo.Receive(ctx, engine.Actor{Org: "acme", Subject: "seed"},
			engine.PushRequest{Namespace: space, Commands: commands, Pack: bytes.NewReader(pack)})
		must(err)
		result, err := p.Finish(ctx, nil)
		p.Close()
		must(err)
		must(result.Unpack)
		for _, done := range result.Commands {
			must(done.Err)
		}
	}
}

func parsedID(text string) object.ID {
	id, err := object.ParseID(text)
	must(err)
	return id
}
