package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	filesCount   = 100 // files of a commit
	filesCommits = 20  // commits of a sample
)

// filesJob commits small files, each commit to a folder of its own.
func filesJob(ctx context.Context, b *bench, p peer) (operation, error) {
	repo := b.fresh("files")
	if _, err := p.create(ctx, repo); err != nil {
		return nil, err
	}
	commits := make([][]upload, filesCommits)
	for i := range commits {
		for j := range filesCount {
			path := fmt.Sprintf("dir%02d/file%02d.txt", i, j)
			commits[i] = append(commits[i], upload{path, bytes.Repeat(fmt.Appendf(nil, "a line of %s\n", path), 40)})
		}
	}
	switch p := p.(type) {
	case apiPeer:
		return apiUploads(ctx, p, repo, commits)
	case plumber:
		streams := make([][]byte, len(commits))
		for i, files := range commits {
			streams[i] = importStream(files, i)
		}
		return func(ctx context.Context) (got outcome, err error) {
			cpu := time.Duration(0)
			got, err = together(1, len(streams), func(i int) error {
				used, err := p.plumb(ctx, repo, streams[i], "fast-import", "--quiet")
				cpu += used
				return err
			})
			got.cpu = cpu
			return got, err
		}, nil
	default:
		return nil, errCannot
	}
}

// apiUploads makes a call for every commit.
func apiUploads(ctx context.Context, api apiPeer, repo string, commits [][]upload) (operation, error) {
	token, err := api.token(ctx, repo)
	if err != nil {
		return nil, err
	}
	requests := make([]*http.Request, len(commits))
	for i, files := range commits {
		if requests[i], err = api.commitRequest(ctx, token, files...); err != nil {
			return nil, err
		}
	}
	return func(context.Context) (outcome, error) {
		return together(1, len(requests), func(i int) error { return send(http.DefaultClient, requests[i]) })
	}, nil
}

// importStream is a commit of files on top of main as git fast-import reads it; number 0 begins the
// branch.
func importStream(files []upload, number int) []byte {
	var stream bytes.Buffer
	fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter Bench <bench@example.com> %d +0000\ndata 7\ncommit\n",
		1_800_000_000+number)
	if number > 0 {
		stream.WriteString("from refs/heads/main^0\n")
	}
	for _, f := range files {
		fmt.Fprintf(&stream, "M 100644 inline %s\ndata %d\n%s\n", f.path, len(f.content), f.content)
	}
	return stream.Bytes()
}

// bigFileJob commits one large file of new content.
func bigFileJob(
	content func(random *rand.Rand, size int) []byte,
) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		repo := b.fresh("large")
		if _, err := p.create(ctx, repo); err != nil {
			return nil, err
		}
		data := content(rand.New(rand.NewPCG(1, uint64(b.made))), b.large)
		switch p := p.(type) {
		case apiPeer:
			return apiUploads(ctx, p, repo, [][]upload{{{"large.bin", data}}})
		case plumber:
			path := filepath.Join(b.dir, repo+".bin")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return nil, err
			}
			return func(ctx context.Context) (got outcome, err error) {
				got.cpu, err = p.plumb(ctx, repo, nil, "hash-object", "-w", path)
				return got, err
			}, nil
		default:
			return nil, errCannot
		}
	}
}

// randomBytes do not compress.
func randomBytes(random *rand.Rand, size int) []byte {
	data := make([]byte, 0, size+8)
	for len(data) < size {
		data = binary.LittleEndian.AppendUint64(data, random.Uint64())
	}
	return data[:size]
}

// randomText is lines of words, some of them much more frequent than others, that compress about as
// well as program text.
func randomText(random *rand.Rand, size int) []byte {
	words := make([]string, 4_000)
	for i := range words {
		words[i] = fmt.Sprintf("%0*x", 2+i%9, random.Uint32())
	}
	frequent := rand.NewZipf(random, 1.2, 4, uint64(len(words)-1))
	data := make([]byte, 0, size+64)
	for len(data) < size {
		for range 1 + random.IntN(12) {
			data = append(append(data, words[frequent.Uint64()]...), ' ')
		}
		data = append(data, '\n')
	}
	return data[:size]
}

// plumb runs a command of git in a repository and returns the CPU time that it took.
func (p *httpBackend) plumb(ctx context.Context, repo string, stdin []byte, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", p.path(repo)}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	err := run(cmd)
	if cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}
