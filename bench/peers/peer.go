package main

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// peer is a git server under measurement.
type peer interface {
	name() string
	// pid is the root of the server's processes.
	pid() int
	// create makes an empty repository and returns how to reach it.
	create(ctx context.Context, repo string) (remote, error)
	// remote returns the address of an existing repository.
	remote(ctx context.Context, repo string) (remote, error)
	// repack does the maintenance of a repository that the peer would do sooner or later.
	repack(ctx context.Context, repo string) error
	stop() error
}

// apiPeer is a peer with an API to create repositories and commits.
type apiPeer interface {
	peer
	createRequest(ctx context.Context, repo string) (*http.Request, error)
	commitRequest(ctx context.Context, token string, files ...upload) (*http.Request, error)
	token(ctx context.Context, repo string) (string, error) // of a repository
	tip(ctx context.Context, token string) (string, error)  // of its only branch
	getRequest(ctx context.Context, token, target string) (*http.Request, error)
	// jsonRequests makes POSTs to a path of the API whose bodies are lines of JSON.
	jsonRequests(
		ctx context.Context, repo, path, contentType string, count int, lines func(i int) []any,
	) ([]*http.Request, error)
}

// bitmapPeer is a peer that answers fetches by bitmaps, quicker and with more bytes, and can be
// asked to do without.
type bitmapPeer interface {
	peer
	// withoutBitmaps returns how to reach a repository with the same content that is answered from
	// without bitmaps.
	withoutBitmaps(ctx context.Context, repo string) (remote, error)
}

// plumber is a peer whose repositories git's own commands can write to.
type plumber interface {
	peer
	// plumb runs a command in a repository and returns the CPU time that it took.
	plumb(ctx context.Context, repo string, stdin []byte, args ...string) (time.Duration, error)
}

// upload is a file to commit.
type upload struct {
	path    string
	content []byte
}

// forgetful is a peer that keeps answers, and can be made to forget them, so that the next one is
// made as for the first time.
type forgetful interface{ forget() error }

// forget makes a peer forget the answers that it keeps, if it keeps any.
func forget(p peer) error {
	if f, ok := p.(forgetful); ok {
		return f.forget()
	}
	return nil
}

// errNoPeer says that a peer is not installed here.
var errNoPeer = errors.New("not installed")

// remote is a repository of a peer.
type remote struct {
	url           string // without credentials
	authorization string // header, "" for none
	gitURL        string // with credentials, for git itself
}
