package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"

	"packhorse/pack/object"
)

// Sizes of the generated data.
const (
	textBytes   = 30 << 20 // of a file of text that is compared and blamed
	wideEntries = 800_000  // of one folder: 31 MB
	noiseBytes  = 100 << 20
	pushBytes   = 10 << 20
	bombDepth   = 9 // of folders of ten: a billion files
	tagChain    = 50
	longCommits = 200 // with messages of 1 MiB
)

// versions are texts of many lines, each with some lines changed from the one before.
func versions(random *rand.Rand, size, count int) [][]byte {
	var lines []string
	for total := 0; total < size; total += len(lines[len(lines)-1]) {
		lines = append(lines, fmt.Sprintf("%08x %08x\n", random.Uint32(), random.Uint32()%1000))
	}
	all := make([][]byte, count)
	for i := range all {
		for range len(lines) / 20 {
			lines[random.IntN(len(lines))] = fmt.Sprintf("%d %08x\n", i, random.Uint32())
		}
		all[i] = []byte(strings.Join(lines, ""))
	}
	return all
}

// seed makes a repository for each organization, and pushes the data of the loads.
func (h *house) seed(ctx context.Context) error {
	random := rand.New(rand.NewPCG(1, 2))
	h.named = make(map[string]object.ID)
	bundles := []func(*bundle, *rand.Rand){h.seedText, h.seedWide, h.seedNoise, h.seedBombs}
	for _, fill := range bundles {
		var b bundle
		fill(&b, random)
		for _, r := range b.refs {
			h.named[r.name] = r.to
		}
		body, err := b.push()
		if err != nil {
			return err
		}
		for _, org := range orgs {
			if err := h.fill(ctx, org, body); err != nil {
				return err
			}
		}
	}
	for range 8 {
		p, err := randomPush(random)
		if err != nil {
			return err
		}
		h.pushes = append(h.pushes, p)
	}
	return nil
}

// repository is the name of the one that each organization has.
const repository = "r"

func (h *house) fill(ctx context.Context, org string, body []byte) error {
	if _, known := h.tokens[org+"/"+repository]; !known {
		if _, err := h.token(org, repository); err != nil {
			return err
		}
		text := `{"default_branch":"text"}`
		got, err := h.do(ctx, ask{
			org: org, repo: repository, method: http.MethodPost, path: "repos", contentType: "application/json",
			body: strings.NewReader(text), length: int64(len(text)),
		})
		if err != nil || got.status != http.StatusCreated {
			return fmt.Errorf("create the repository: %+v, %w", got, err)
		}
	}
	got, err := h.do(ctx, pushOf(org, body))
	if err != nil || got.status != http.StatusOK {
		return fmt.Errorf("push: %+v, %w", got, err)
	}
	if !strings.Contains(got.reason, "unpack ok") || strings.Contains(got.reason, "ng ") {
		return fmt.Errorf("push: %.300s", got.reason)
	}
	return nil
}

func pushOf(org string, body []byte) ask {
	return ask{
		org: org, repo: repository, method: http.MethodPost, path: "git-receive-pack",
		contentType: "application/x-git-receive-pack-request",
		body:        bytes.NewReader(body), length: int64(len(body)), keep: true,
	}
}

func (h *house) seedText(b *bundle, random *rand.Rand) {
	var parent []object.ID
	for i, text := range versions(random, textBytes, 3) {
		small := b.add(object.TypeBlob, text[:textBytes/3])
		tree := b.tree(file("large.txt", b.add(object.TypeBlob, text)), file("medium.txt", small))
		parent = []object.ID{b.commit(tree, i, fmt.Sprint("version ", i), parent...)}
	}
	b.ref("refs/heads/text", parent[0])
}

func (h *house) seedWide(b *bundle, _ *rand.Rand) {
	content := b.add(object.TypeBlob, []byte("x\n"))
	entries := make([]object.TreeEntry, wideEntries)
	for i := range entries {
		entries[i] = file(fmt.Sprintf("f%09d", i), content)
	}
	b.ref("refs/heads/wide", b.commit(b.tree(folder("wide", b.tree(entries...))), 1, "wide"))
}

func (h *house) seedNoise(b *bundle, random *rand.Rand) {
	b.ref("refs/heads/noise", b.commit(b.tree(file("noise", b.add(object.TypeBlob, noise(random, noiseBytes)))), 1,
		"noise"))
}

func (h *house) seedBombs(b *bundle, _ *rand.Rand) {
	for _, side := range []string{"ours", "theirs"} {
		id, entry := b.add(object.TypeBlob, []byte(side)), file
		for range bombDepth {
			var entries []object.TreeEntry
			for i := range 10 {
				entries = append(entries, entry(fmt.Sprint("f", i), id))
			}
			id, entry = b.tree(entries...), folder
		}
		b.ref("refs/heads/"+side, b.commit(id, 2, side, b.commit(b.tree(), 1, "base")))
	}
	deep := b.commit(b.tree(), 1, "tagged")
	kind := "commit"
	for i := range tagChain {
		text := fmt.Appendf(nil, "object %s\ntype %s\ntag t%d\ntagger A <a@example.com> 1 +0000\n\nt\n", deep, kind, i)
		deep, kind = b.add(object.TypeTag, text), "tag"
	}
	b.ref("refs/tags/deep", deep)
	var long []object.ID
	for i := range longCommits {
		long = []object.ID{b.commit(b.tree(), i, fmt.Sprint(i)+strings.Repeat("message ", mib/8), long...)}
	}
	b.ref("refs/heads/long", long[0])
}

// noise are bytes that nothing makes smaller.
func noise(random *rand.Rand, size int) []byte {
	data := make([]byte, 0, size)
	for len(data) < size {
		n := random.Uint64()
		data = append(data, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32), byte(n>>40), byte(n>>48), byte(n>>56))
	}
	return data[:size]
}

// newPush is a push of a file of noise but for its command, so that it can be sent under any name.
type newPush struct {
	tip  object.ID
	pack []byte
}

func randomPush(random *rand.Rand) (newPush, error) {
	var b bundle
	tip := b.commit(b.tree(file("noise", b.add(object.TypeBlob, noise(random, pushBytes)))), 1, "pushed")
	pack, err := b.pack()
	return newPush{tip, pack}, err
}

// body is that of a push to a ref that is not there yet, and its length. The clients share the
// pack.
func (p newPush) body(ref string) (body io.Reader, length int64) {
	var commands bytes.Buffer
	writeCommands(&commands, []refChange{{ref, p.tip}})
	return io.MultiReader(&commands, bytes.NewReader(p.pack)), int64(commands.Len() + len(p.pack))
}
